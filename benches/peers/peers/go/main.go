// Load is the load of load.rs, in Go: `load KIND name=value…` takes the same arguments and prints the same lines. An
// owner is a goroutine; each link is one client of go-redis with its default pool.
//
//	redislock, redislock:renewed, redislock:session    the client of this repository
//	redsync        its mutex: it retries after 50 to 250 ms. By default it gives up after 32 tries; here it continues,
//	               like all others, and its expiry (8 s by default) is the task's lease
package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
)

const (
	trialLock  = 90_000
	trialLocks = 10_000
	timeout    = time.Minute
)

// held is a lock that was granted.
type held struct {
	fence   int64
	release func() error
}

// acquire waits until the lock is granted.
type acquire func(lock uint64) (held, error)

var (
	ctx    = context.Background()
	task   = map[string]string{}
	output sync.Mutex
	isOver atomic.Bool
	errs   struct {
		sync.Mutex
		count int
		last  string
	}
)

func word(name string) string { return task[name] }

func number(name string) uint64 {
	value, err := strconv.ParseUint(task[name], 10, 64)
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return value
}

// now is the clock of the run: monotonic, in nanoseconds.
func now() uint64 {
	var at syscall.Timespec
	const clockMonotonic = 1
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&at)), 0)
	return uint64(at.Nano())
}

func say(format string, values ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", values...)
}

func failed(err error) {
	errs.Lock()
	defer errs.Unlock()
	errs.count++
	errs.last = oneLine(err)
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }

func connect(kind string) (acquire, error) {
	lease := time.Duration(number("lease")) * time.Second
	rdb := redis.NewClient(&redis.Options{Addr: word("endpoints")})
	if kind == "redsync" {
		pools := redsync.New(goredis.NewPool(rdb))
		return func(lock uint64) (held, error) {
			mutex := pools.NewMutex(fmt.Sprint("lock-", lock), redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt))
			if err := mutex.LockContext(ctx); err != nil {
				return held{}, err
			}
			return held{release: func() error {
				_, err := mutex.UnlockContext(ctx)
				return err
			}}, nil
		}, nil
	}
	options := []redislock.Option{redislock.WithLease(lease)}
	switch kind {
	case "redislock":
	case "redislock:renewed":
		options = append(options, redislock.WithAutoRenew())
	case "redislock:session":
		options = append(options, redislock.WithSession())
	default:
		return nil, fmt.Errorf("there is no %s", kind)
	}
	locks := redislock.New(rdb, options...)
	return func(lock uint64) (held, error) {
		hold, err := locks.Mutex(fmt.Sprint("lock-", lock)).Lock(ctx)
		if err != nil {
			return held{}, err
		}
		return held{int64(hold.Fence()), func() error { return hold.Unlock(ctx) }}, nil
	}, nil
}

// serving is a link over which a lock was acquired and released.
func serving(kind string, link uint64) acquire {
	started := time.Now()
	for attempts := uint64(0); ; attempts++ {
		take, err := connect(kind)
		if err == nil {
			var trial held
			trial, err = take(trialLock + (uint64(os.Getpid())+attempts*number("links")+link)%trialLocks)
			if err == nil {
				err = trial.release()
			}
		}
		if err == nil {
			return take
		}
		if time.Since(started) > timeout {
			panic(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

type turn struct {
	lock, asked, granted, released uint64
}

func cycle(take acquire, owner uint64, turns *[]turn) {
	rng := rand.New(rand.NewPCG(owner, 1))
	for !isOver.Load() {
		one := turn{lock: number("first") + rng.Uint64N(number("locks")), asked: now()}
		taken, err := take(one.lock)
		if err == nil {
			one.granted = now()
			err = taken.release()
			one.released = now()
		}
		if err != nil {
			failed(err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		output.Lock()
		*turns = append(*turns, one)
		output.Unlock()
	}
}

func sweep(take acquire, owner uint64) {
	for lock := number("first"); lock < number("first")+number("locks"); lock++ {
		taken, err := take(lock)
		if err == nil {
			time.Sleep(time.Millisecond)
			err = taken.release()
		}
		if err != nil {
			failed(err)
		}
	}
	say("took %d", owner)
}

// hold prints each grant at once, because the process may be killed.
func hold(take acquire, owner uint64) {
	for lock := number("first") + owner; lock < number("first")+number("locks"); lock += number("owners") {
		asked := now()
		taken, err := take(lock)
		if err != nil {
			say("failed %d %d %d %d %s", lock, owner, asked, now(), oneLine(err))
			continue
		}
		say("held %d %d %d %d %d", lock, owner, asked, now(), taken.fence)
		time.Sleep(time.Duration(number("pace")) * time.Millisecond)
	}
	say("took %d", owner)
}

func main() {
	kind := os.Args[1]
	for _, pair := range os.Args[2:] {
		name, value, _ := strings.Cut(pair, "=")
		task[name] = value
	}
	input := bufio.NewScanner(os.Stdin)
	expect := func(word string) {
		if !input.Scan() || input.Text() != word {
			os.Exit(1)
		}
	}
	links := make([]acquire, number("links"))
	var connecting sync.WaitGroup
	for link := range links {
		connecting.Add(1)
		go func() {
			defer connecting.Done()
			links[link] = serving(kind, uint64(link))
		}()
	}
	connecting.Wait()
	say("ready")
	expect("go")
	turns := make([][]turn, number("owners"))
	for owner := range number("owners") {
		take := links[owner%number("links")]
		switch word("work") {
		case "cycle":
			go cycle(take, owner, &turns[owner])
		case "sweep":
			go sweep(take, owner)
		case "hold":
			go hold(take, owner)
		default:
			panic("unknown work " + word("work"))
		}
	}
	expect("stop")
	isOver.Store(true)
	output.Lock()
	lines := bufio.NewWriter(os.Stdout)
	for owner, all := range turns {
		for _, one := range all {
			_, _ = fmt.Fprintf(lines, "cycle %d %d %d %d %d 0\n", one.lock, owner, one.asked, one.granted, one.released)
		}
	}
	errs.Lock()
	if errs.count > 0 {
		_, _ = fmt.Fprintf(lines, "errors %d %s\n", errs.count, errs.last)
	}
	_, _ = fmt.Fprintln(lines, "end")
	_ = lines.Flush()
	os.Exit(0)
}
