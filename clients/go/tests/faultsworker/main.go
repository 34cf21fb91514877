// Faultsworker is the worker of clients/faults for the Go client: `faultsworker PORT SEED`. clients/faults/README.md
// says what it prints. Goroutines acquire, hold and release locks until a line arrives on stdin.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
)

const (
	lines = 6
	keys  = 4
)

var (
	stopping atomic.Bool
	printing sync.Mutex
)

type event map[string]any

func report(e event) {
	line, _ := json.Marshal(e)
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

func now() int64 { return time.Now().UnixMilli() }

func ms(number int) time.Duration { return time.Duration(number) * time.Millisecond }

func main() {
	// Log lines about errors of the work are not part of the protocol.
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	port, seed := os.Args[1], must(strconv.ParseUint(os.Args[2], 10, 64))
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, ReadTimeout: 2 * time.Second})
	locks := redislock.New(rdb)
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		stopping.Store(true)
	}()
	var all sync.WaitGroup
	for line := range lines {
		all.Add(1)
		go func() {
			defer all.Done()
			defer func() {
				if panicked := recover(); panicked != nil {
					report(event{"e": "unexpected", "what": fmt.Sprint(panicked)})
				}
			}()
			turns(locks, rand.New(rand.NewPCG(seed, uint64(line))), fmt.Sprintf("line-%d-of-%d", line, seed))
		}()
	}
	all.Wait()
	ctx, end := context.WithTimeout(context.Background(), 20*time.Second)
	defer end()
	left := 0
	if locks.Settled(ctx) != nil {
		left = 1
	}
	report(event{"e": "end", "left": left})
	locks.Close()
	_ = rdb.Close()
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func turns(locks *redislock.Client, rng *rand.Rand, token string) {
	for !stopping.Load() {
		key := fmt.Sprint("k", rng.IntN(keys))
		kind := rng.IntN(10)
		lease := ms(3000)
		options := []redislock.Option{}
		switch {
		case kind == 0:
			lease, options = ms(1500), append(options, redislock.WithSession())
		case kind < 3:
			lease, options = ms(1500), append(options, redislock.WithAutoRenew())
		case kind < 5:
			lease = time.Minute
		case kind == 5: // The same one again: it waits over a connection of its own.
			options = append(options, redislock.WithToken(token))
		}
		wait := 0
		if rng.IntN(10) > 0 {
			wait = 100 + rng.IntN(1900)
			options = append(options, redislock.WithWait(ms(wait)))
		}
		cancel := -1
		if rng.IntN(4) == 0 {
			cancel = rng.IntN(max(wait, 50))
		}
		length := rng.IntN(60)
		if isRenewed := kind == 1 || kind == 2; isRenewed && rng.IntN(5) == 0 {
			length = rng.IntN(2500)
		}
		hold := taken(locks.Mutex(key, append(options, redislock.WithLease(lease))...), key, wait, cancel)
		if hold != nil {
			used(hold, key, ms(length), kind == 0)
		}
	}
}

func taken(lock *redislock.Lock, key string, wait, cancel int) *redislock.Hold {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	var cancelled atomic.Int64
	if cancel >= 0 {
		timer := time.AfterFunc(ms(cancel), func() {
			cancelled.Store(now())
			end()
		})
		defer timer.Stop()
	}
	began := now()
	take := lock.Lock
	if wait == 0 {
		take = lock.TryLock
	}
	hold, err := take(ctx)
	outcome := "failed"
	switch {
	case err == nil:
		outcome = "granted"
	case errors.Is(err, redislock.ErrNotAcquired):
		outcome = "refused"
	case errors.Is(err, context.Canceled):
		outcome = "cancelled"
	}
	report(event{"e": "acquire", "key": key, "wait": wait, "began": began, "ended": now(), "outcome": outcome,
		"cancelled": cancelled.Load()})
	return hold
}

func used(hold *redislock.Hold, key string, length time.Duration, isSession bool) {
	since, until := now(), int64(0)
	for began := time.Now(); !hold.IsLost(); {
		until = now()
		if time.Since(began) >= length {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if until > 0 {
		report(event{"e": "held", "key": key, "fence": hold.Fence(), "since": since, "until": until, "session": isSession})
	}
	for {
		began := now()
		err := hold.Unlock(context.Background())
		outcome := "failed"
		switch {
		case err == nil:
			outcome = "released"
		case errors.Is(err, redislock.ErrLost):
			outcome = "lost"
		}
		report(event{"e": "release", "began": began, "ended": now(), "outcome": outcome})
		if outcome != "failed" || isSession {
			return
		}
	}
}
