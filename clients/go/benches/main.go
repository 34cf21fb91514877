// Benches prints the section of results/benchmarks-clients.md about Go: what a lock costs with this client, with raw
// commands, redsync and bsm/redislock. `--quick` is a short run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

const (
	lease   = 30 * time.Second
	release = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`
	count   = `if not redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then return nil end
		local n = redis.call("incr", KEYS[2])
		redis.call("del", KEYS[1])
		return n`
)

var ctx = context.Background()

// A turn acquires the lock, however long that takes, calls held, and releases it.
type turn func(caller int, held func()) error

// A contender makes its turn with a separate go-redis client.
type contender struct {
	name string
	of   func(rdb *redis.Client) turn
}

var (
	raw = contender{"raw `LOCK.ACQUIRE` + `LOCK.RELEASE`", func(rdb *redis.Client) turn {
		return func(caller int, held func()) error {
			for {
				// go-redis waits for a reply for 3 s at most.
				err := rdb.Do(ctx, "LOCK.ACQUIRE", "raw", token(caller), "PX", lease.Milliseconds(), "BLOCK", 2000).Err()
				if err == nil {
					break
				}
				if !errors.Is(err, redis.Nil) {
					return err
				}
			}
			held()
			return rdb.Do(ctx, "LOCK.RELEASE", "raw", token(caller)).Err()
		}
	}}
	setNX = contender{"raw `SET NX PX` + EVALSHA", func(rdb *redis.Client) turn {
		script := loaded(rdb, release)
		return func(caller int, _ func()) error {
			if taken, err := rdb.SetNX(ctx, "set", token(caller), lease).Result(); err != nil || !taken {
				return fmt.Errorf("not granted: %w", err)
			}
			return script.EvalSha(ctx, rdb, []string{"set"}, token(caller)).Err()
		}
	}}
	ours = contender{"**redis-lock**", func(rdb *redis.Client) turn {
		locks := redislock.New(rdb, redislock.WithLease(lease))
		return func(_ int, held func()) error {
			hold, err := locks.Mutex("ours").Lock(ctx)
			if err != nil {
				return err
			}
			held()
			return hold.Unlock(ctx)
		}
	}}
	script = contender{"raw script: SET NX, INCR, DEL", func(rdb *redis.Client) turn {
		script := loaded(rdb, count)
		return func(caller int, _ func()) error {
			return script.EvalSha(ctx, rdb, []string{"script", "n"}, token(caller), lease.Milliseconds()).Err()
		}
	}}
	exec = contender{"**redis-lock**, `Exec`", func(rdb *redis.Client) turn {
		locks := redislock.New(rdb, redislock.WithLease(lease))
		return func(int, func()) error { return locks.Mutex("ours").Exec(ctx, "INCR", "n").Err() }
	}}
	others = []contender{
		{"redsync", func(rdb *redis.Client) turn {
			pools := redsync.New(goredis.NewPool(rdb))
			return func(_ int, held func()) error {
				lock := pools.NewMutex("redsync", redsync.WithExpiry(lease), redsync.WithTries(1<<20))
				if err := lock.LockContext(ctx); err != nil {
					return err
				}
				held()
				_, err := lock.UnlockContext(ctx)
				return err
			}
		}},
		{"bsm/redislock, every 100 ms", func(rdb *redis.Client) turn {
			client := bsm.New(rdb)
			options := &bsm.Options{RetryStrategy: bsm.LinearBackoff(100 * time.Millisecond)} // it has no default
			return func(_ int, held func()) error {
				lock, err := client.Obtain(ctx, "bsm", lease, options)
				if err != nil {
					return err
				}
				held()
				return lock.Release(ctx)
			}
		}},
	}
)

func token(caller int) string { return "bench:" + strconv.Itoa(caller) + ":0123456789abcdef" }

func loaded(rdb *redis.Client, text string) *redis.Script {
	script := redis.NewScript(text)
	check(script.Load(ctx, rdb).Err())
	return script
}

// A work is done by its contenders in turns.
type work struct {
	name       string
	callers    int
	base       int // the contender that the others are compared with
	contenders []contender
	inside     func(rdb *redis.Client) // what a caller does while it holds the lock
}

func works() []work {
	nothing, waiting := func(*redis.Client) {}, append([]contender{raw, ours}, others...)
	return []work{
		{"pair", 1, 1, append([]contender{setNX}, waiting...), nothing},
		{"hand-off, 2", 2, 0, waiting, nothing},
		{"hand-off, 48", 48, 0, waiting, nothing},
		{"INCR under the lock", 1, 0, append([]contender{script, exec}, others...),
			func(rdb *redis.Client) { check(rdb.Incr(ctx, "n").Err()) }},
	}
}

// turns lets the callers acquire the lock in turn. It returns the turns of a single caller, or the hand-offs.
func turns(do turn, callers int, inside func(), length time.Duration) float64 {
	var counted atomic.Int64
	last, ends := -1, time.Now().Add(length)
	var all sync.WaitGroup
	for caller := range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(ends) || counted.Load() == 0 {
				check(do(caller, func() {
					inside()
					if last != caller && callers > 1 {
						counted.Add(1)
					}
					last = caller
				}))
				if callers == 1 {
					counted.Add(1)
				}
			}
		}()
	}
	all.Wait()
	return float64(counted.Load())
}

// A sample has the figures of a round, in the order of the columns: as counters, or per unit of work.
type sample [columns]float64

const (
	clientCPU = iota
	ratio
	serverCPU
	requests
	bytes
	connections
	allocations
	columns
)

var counter = regexp.MustCompile(`(\w+):([\d.]+)`)

func (s *sample) readServer(server *servertest.Server) {
	for _, field := range counter.FindAllStringSubmatch(server.Ask("INFO", "stats", "cpu").(string), -1) {
		value, _ := strconv.ParseFloat(field[2], 64)
		switch field[1] {
		case "used_cpu_user", "used_cpu_sys":
			s[serverCPU] += value * 1e6
		case "total_commands_processed":
			s[requests] = value
		case "total_net_input_bytes", "total_net_output_bytes":
			s[bytes] += value
		case "total_connections_received":
			s[connections] = value
		}
	}
}

func (s *sample) readClient() {
	var usage syscall.Rusage
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	s[clientCPU] = float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1000
	s[allocations] = float64(memory.Mallocs)
}

// measure returns what do costs, including the first of its two INFO requests.
func measure(server *servertest.Server, do func()) sample {
	var before, after sample
	before.readServer(server)
	before.readClient()
	do()
	after.readClient()
	after.readServer(server)
	for i := range after {
		after[i] -= before[i]
	}
	return after
}

func (w work) measure(server *servertest.Server, rounds int, length time.Duration) {
	does, samples := make([]func() float64, len(w.contenders)), make([][]sample, len(w.contenders))
	opened := make([]float64, len(w.contenders))
	for i, each := range w.contenders {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 100})
		opened[i] = measure(server, func() { // It connects and warms up.
			do := each.of(rdb)
			does[i] = func() float64 { return turns(do, w.callers, func() { w.inside(rdb) }, length) }
			does[i]()
		})[connections]
	}
	own := measure(server, func() {})
	for range rounds {
		for i, do := range does {
			var units float64
			found := measure(server, func() { units = do() })
			for column := range found {
				found[column] = (found[column] - own[column]) / units
			}
			samples[i] = append(samples[i], found)
		}
	}
	for i, each := range w.contenders {
		sorted := func(column int) []float64 {
			var values []float64
			for round, sample := range samples[i] {
				sample[ratio] = sample[clientCPU] / samples[w.base][round][clientCPU]
				values = append(values, sample[column])
			}
			return slices.Sorted(slices.Values(values))
		}
		median := func(column int) float64 { return sorted(column)[rounds/2] }
		cpu := sorted(clientCPU)
		fmt.Printf("| %s | %s | %s (%s to %s) | %.2f | %s | %.1f | %s | %.0f | %s |\n", w.name, each.name,
			whole(cpu[rounds/2]), whole(cpu[0]), whole(cpu[rounds-1]), median(ratio), whole(median(serverCPU)),
			median(requests), whole(median(bytes)), opened[i], whole(median(allocations)))
	}
}

func whole(value float64) string {
	digits := strconv.FormatFloat(value, 'f', 0, 64)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

func version(module string) string {
	build, _ := debug.ReadBuildInfo()
	at := slices.IndexFunc(build.Deps, func(each *debug.Module) bool { return each.Path == module })
	return strings.TrimPrefix(build.Deps[at].Version, "v")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

const heading = `## Go

Go %s, go-redis %s, redsync %s, bsm/redislock %s; %d rounds of %d ms, and for
hand-offs %d of %d ms. The callers are goroutines.

| workload | lock | client CPU, µs | to raw commands | server CPU, µs | requests | bytes | connections | allocations |
| --- | --- | --: | --: | --: | --: | --: | --: | --: |
`

func main() {
	rounds, length, handOffRounds, handOffLength := 15, 150*time.Millisecond, 5, time.Second
	if slices.Contains(os.Args, "--quick") {
		rounds, length, handOffRounds, handOffLength = 3, 50*time.Millisecond, 3, 200*time.Millisecond
	}
	process := &servertest.Process{}
	defer process.End()
	server := servertest.Start(process)
	fmt.Printf(heading, strings.TrimPrefix(runtime.Version(), "go"), version("github.com/redis/go-redis/v9"),
		version("github.com/go-redsync/redsync/v4"), version("github.com/bsm/redislock"),
		rounds, length.Milliseconds(), handOffRounds, handOffLength.Milliseconds())
	for _, work := range works() {
		if work.callers == 1 {
			work.measure(server, rounds, length)
		} else {
			work.measure(server, handOffRounds, handOffLength)
		}
	}
}
