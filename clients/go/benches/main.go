// Benches prints the section of results/benchmarks-clients.md about Go, with one server on the port of its argument. It
// compares this client's mutex with those of redsync and bsm/redislock: how fast one goroutine acquires and releases,
// how fast a lock passes from one of 48 to the next, and what each costs the server. `--quick` is a short run, and
// `--cost` measures what acquiring and releasing costs the client.
package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

const (
	goroutines = 48
	lease      = 30 * time.Second
	rounds     = 3
)

// mutex acquires the lock, however long that takes, calls held, and releases it.
type mutex struct {
	title string
	turn  func(held func()) error
}

func mutexes(rdb *redis.Client) []mutex {
	ctx := context.Background()
	ours := redislock.New(rdb).Mutex("ours", redislock.WithLease(lease))
	theirs := bsm.New(rdb)
	all := []mutex{{"redislock for Go | in the queue", func(held func()) error {
		hold, err := ours.Lock(ctx)
		if err != nil {
			return err
		}
		held()
		return hold.Unlock(ctx)
	}}}
	pools := redsync.New(goredis.NewPool(rdb))
	redsyncs := func(title string, options ...redsync.Option) mutex {
		options = append(options, redsync.WithExpiry(lease), redsync.WithTries(1<<20))
		return mutex{title, func(held func()) error {
			lock := pools.NewMutex("redsync", options...)
			if err := lock.LockContext(ctx); err != nil {
				return err
			}
			held()
			_, err := lock.UnlockContext(ctx)
			return err
		}}
	}
	all = append(all, redsyncs("redsync 4 | asks after 50 to 250 ms"),
		redsyncs("redsync 4 | asks after 5 ms", redsync.WithRetryDelay(5*time.Millisecond)))
	for _, pause := range []time.Duration{100 * time.Millisecond, 5 * time.Millisecond} {
		title := fmt.Sprintf("bsm/redislock 0.9 | asks after %d ms", pause.Milliseconds())
		all = append(all, mutex{title, func(held func()) error {
			lock, err := theirs.Obtain(ctx, "bsm", lease, &bsm.Options{RetryStrategy: bsm.LinearBackoff(pause)})
			if err != nil {
				return err
			}
			held()
			return lock.Release(ctx)
		}})
	}
	return all
}

// figures are the results of one round.
type figures struct{ perSecond, requests, cpuMicros float64 }

type counters struct {
	at       time.Time
	requests int
	cpu      float64
}

func of(server *servertest.Server) counters {
	var c counters
	for _, command := range []string{"lock.acquire", "lock.release", "lock.cancel", "set", "eval", "evalsha"} {
		c.requests += server.Calls(command)
	}
	for _, found := range regexp.MustCompile(`used_cpu_(?:user|sys):([\d.]+)`).
		FindAllStringSubmatch(server.Ask("INFO", "cpu").(string), -1) {
		seconds, _ := strconv.ParseFloat(found[1], 64)
		c.cpu += seconds
	}
	c.at = time.Now()
	return c
}

// turns lets count goroutines acquire the lock in turn for the given time. It counts the turns of a single goroutine,
// or the hand-offs among several.
func turns(server *servertest.Server, m mutex, count int, length time.Duration) figures {
	check(m.turn(func() {})) // Opens connections and loads scripts in advance.
	var counted atomic.Int64
	last := count
	before, ends := of(server), time.Now().Add(length)
	var all sync.WaitGroup
	for number := range count {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(ends) {
				check(m.turn(func() {
					if last != number || count == 1 {
						counted.Add(1)
					}
					last = number
				}))
			}
		}()
	}
	all.Wait()
	after, done := of(server), float64(max(counted.Load(), 1))
	return figures{done / after.at.Sub(before.at).Seconds(), float64(after.requests-before.requests) / done,
		(after.cpu - before.cpu) * 1e6 / done}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

const text = `## Go

One process, one server; the median of %d rounds of %v and of %v. A pair is taken and given back by one
goroutine, and nobody waits. Hand-offs are between %d goroutines, each of which asks again at once; a turn of
the one that had the turn before is none. They hold the lock for no time. Requests are commands that the client
sent, CPU is the server's own. redsync waits for 50 to 250 ms if nothing is set.

`

func main() {
	lengths, pairs := []time.Duration{2 * time.Second, 5 * time.Second}, 1000
	if slices.Contains(os.Args, "--quick") {
		lengths = []time.Duration{200 * time.Millisecond, 500 * time.Millisecond}
		pairs = 100
	}
	if slices.Contains(os.Args, "--cost") {
		cost(pairs)
		return
	}
	process := &servertest.Process{}
	defer process.End()
	server := servertest.Start(process)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	fmt.Printf(text, rounds, lengths[0], lengths[1], goroutines)
	fmt.Println("| lock | a waiter | pairs per second | requests per pair | server CPU µs per pair | " +
		"hand-offs per second | requests per hand-off | server CPU µs per hand-off |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, m := range mutexes(rdb) {
		row := "| " + m.title + " |"
		for i, count := range []int{1, goroutines} {
			var found []figures
			for range rounds {
				found = append(found, turns(server, m, count, lengths[i]))
			}
			slices.SortFunc(found, func(a, b figures) int { return int(a.perSecond - b.perSecond) })
			median := found[rounds/2]
			row += fmt.Sprintf(" %.0f | %.1f | %.0f |", median.perSecond, median.requests, median.cpuMicros)
		}
		fmt.Println(row)
	}
}
