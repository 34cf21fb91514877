package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

const costRounds = 31

// contender does one pair of acquire and release, or, in one request, a command under the lock.
type contender struct {
	title, base string // its cost is also printed as a ratio to that of base
	pair        func() error
}

func contenders(rdb *redis.Client) []contender {
	ctx := context.Background()
	const compareAndDelete = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`
	unlock := redis.NewScript(compareAndDelete)
	count := redis.NewScript(`if not redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then return nil end
		local n = redis.call("incr", KEYS[2])
		redis.call("del", KEYS[1])
		return n`)
	pools := redsync.New(goredis.NewPool(rdb))
	ours := redislock.New(rdb, redislock.WithLease(lease))
	number := 0
	token := func() string {
		number++
		return "raw:" + strconv.Itoa(number)
	}
	return []contender{
		{"SET NX PX, EVALSHA", "SET NX PX, EVALSHA", func() error {
			value := token()
			if taken, err := rdb.SetNX(ctx, "raw", value, lease).Result(); err != nil || !taken {
				return fmt.Errorf("not granted: %w", err)
			}
			return unlock.EvalSha(ctx, rdb, []string{"raw"}, value).Err()
		}},
		{"redsync", "SET NX PX, EVALSHA", func() error {
			lock := pools.NewMutex("redsync", redsync.WithExpiry(lease))
			if err := lock.LockContext(ctx); err != nil {
				return err
			}
			_, err := lock.UnlockContext(ctx)
			return err
		}},
		{"Lock, Unlock", "SET NX PX, EVALSHA", func() error {
			hold, err := ours.Mutex("ours").Lock(ctx)
			if err != nil {
				return err
			}
			return hold.Unlock(ctx)
		}},
		{"one script", "one script", func() error {
			return count.EvalSha(ctx, rdb, []string{"script", "n"}, token(), lease.Milliseconds()).Err()
		}},
		{"Exec", "one script", func() error { return ours.Mutex("ours").Exec(ctx, "INCR", "n").Err() }},
		{"first script loads", "", func() error {
			if err := unlock.Load(ctx, rdb).Err(); err != nil {
				return err
			}
			return count.Load(ctx, rdb).Err()
		}},
	}
}

// cost prints the CPU time of this process per pair, user and system, without that of the server. Each round runs all
// contenders in turn, so that a busy machine slows them alike. The ratios are medians of the ratios within a round.
func cost(pairs int) {
	process := &servertest.Process{}
	defer process.End()
	server := servertest.Start(process)
	pin(server)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	all := contenders(rdb)
	check(all[len(all)-1].pair())
	all = all[:len(all)-1]
	used := make([][]float64, len(all))
	for round := range costRounds + 1 {
		for i, each := range all {
			before := cpu()
			for range pairs {
				check(each.pair())
			}
			if round > 0 { // The first one connects and warms up.
				used[i] = append(used[i], float64((cpu()-before).Nanoseconds())/1000/float64(pairs))
			}
		}
	}
	fmt.Println("| lock | client CPU µs per pair | ratio |\n| --- | --- | --- |")
	for i, each := range all {
		base := slices.IndexFunc(all, func(other contender) bool { return other.title == each.base })
		var ratios []float64
		for round := range costRounds {
			ratios = append(ratios, used[i][round]/used[base][round])
		}
		fmt.Printf("| %s | %.1f | %.2f |\n", each.title, median(used[i]), median(ratios))
	}
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

func cpu() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// pin leaves this process the core that `bench` gave it, and the server another one.
func pin(server *servertest.Server) {
	info := server.Ask("INFO", "server").(string)
	_, rest, _ := strings.Cut(info, "process_id:")
	id, _, _ := strings.Cut(rest, "\r")
	check(exec.Command("taskset", "--all-tasks", "--pid", "--cpu-list", "0", id).Run())
}
