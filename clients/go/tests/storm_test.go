package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

// A thousand callers cancel within the first 1.5 ms, when a request is on its way, is queued or has just been granted.
// With a lease of ten minutes, anything that one of them leaves behind is still there at the end.
func TestAStormOfCancelledContextsLeavesNothing(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	server.Replica()
	lease := redislock.WithLease(10 * time.Minute)
	client := over(t, server.Addr(), lease)
	released := func(hold *redislock.Hold, err error) error {
		if err == nil {
			return hold.Unlock(context.Background())
		}
		return err
	}
	lock := func(options ...redislock.Option) func(ctx context.Context, key string) error {
		return func(ctx context.Context, key string) error {
			return released(client.Mutex(key, options...).Lock(ctx))
		}
	}
	// Each of them belongs to one goroutine at a time, and is reused after the withdrawal of a request.
	tokens := make(chan string, 8)
	for number := range cap(tokens) {
		tokens <- fmt.Sprint("token-", number)
	}
	for name, acquire := range map[string]func(ctx context.Context, key string) error{
		// Over the shared connection, and over separate ones.
		"shared":   lock(),
		"session":  lock(redislock.WithSession()),
		"replicas": lock(redislock.WithReplicas(1, long)),
		"renewed":  lock(redislock.WithAutoRenew()),
		"token": func(ctx context.Context, key string) error {
			token := <-tokens
			defer func() { tokens <- token }()
			return released(client.Mutex(key, redislock.WithToken(token)).Lock(ctx))
		},
		"mixed":     lock(redislock.WithMixed(time.Millisecond)),
		"semaphore": func(ctx context.Context, key string) error { return released(client.Semaphore(key, 2).Lock(ctx)) },
		"multi": func(ctx context.Context, key string) error {
			return released(client.Multi([]string{key, "also " + key}).Lock(ctx))
		},
		"TryLock": func(ctx context.Context, key string) error { return released(client.Mutex(key).TryLock(ctx)) },
		"unlocked with the same context": func(ctx context.Context, key string) error {
			hold, err := client.Mutex(key).Lock(ctx)
			if err != nil {
				return err
			}
			return hold.Unlock(ctx)
		},
		"Do": func(ctx context.Context, key string) error {
			return client.Mutex(key).Do(ctx, func(ctx context.Context) error { return ctx.Err() })
		},
		"Do in a session": func(ctx context.Context, key string) error {
			return client.Mutex(key, redislock.WithSession()).Do(ctx, func(ctx context.Context) error { return ctx.Err() })
		},
		"Once": func(ctx context.Context, key string) error {
			_, err := redislock.Once(ctx, client.Mutex(key), func(context.Context) (int, bool, error) { return 0, false, nil },
				func(context.Context) (int, error) { return 0, nil })
			return err
		},
		"Exec":    func(ctx context.Context, key string) error { return client.Mutex(key).Exec(ctx, "PING").Err() },
		"upgrade": upgrades(t, client),
	} {
		t.Run(name, func(t *testing.T) {
			var granted, cancelled atomic.Int32
			// On a busy machine a new connection takes longer than that.
			for within := 1500 * time.Microsecond; granted.Load() < 50 && within < 50*time.Millisecond; within *= 2 {
				storm(within, func(ctx context.Context, number int) {
					switch err := acquire(ctx, []string{name + " one", name + " two"}[number%2]); {
					case err == nil:
						granted.Add(1)
					case errors.Is(err, context.Canceled):
						cancelled.Add(1)
					case !errors.Is(err, redislock.ErrNotAcquired):
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			ok(t, client.Settled(context.Background()))
			t.Logf("%s: %d granted, %d cancelled", name, granted.Load(), cancelled.Load())
			isTrue(t, granted.Load() > 0 && cancelled.Load() > 0, "%s: no storm", name)
			servertest.Eventually(t, "nothing is left of "+name, func() bool {
				return server.Ask("DBSIZE") == int64(0) && strings.Contains(server.Ask("INFO", "lock").(string), "lock_waiters:0\r")
			})
		})
	}
}

// storm makes calls with a thousand contexts, each of which is cancelled within this time, from eight goroutines.
func storm(within time.Duration, each func(ctx context.Context, number int)) {
	var all sync.WaitGroup
	var number atomic.Int32
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for next := int(number.Add(1)); next <= 1000; next = int(number.Add(1)) {
				ctx, end := brief(within)
				each(ctx, next)
				end()
			}
		}()
	}
	all.Wait()
}

func brief(within time.Duration) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(rand.N(within), cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// upgrades has one of two readers request the write lock.
func upgrades(t testing.TB, client *redislock.Client) func(ctx context.Context, key string) error {
	return func(_ context.Context, key string) error {
		rw := client.RW(fmt.Sprint(key, rand.N(16)))
		reader := locked(t, rw.Read(redislock.WithWait(long)))
		ctx, end := brief(1500 * time.Microsecond)
		defer end()
		writer, err := rw.Write(redislock.AsOwnerOf(reader)).Lock(ctx)
		if err == nil {
			unlock(t, writer)
		}
		unlock(t, reader) // It is held, whatever happened to the request.
		if errors.Is(err, redislock.ErrDeadlock) {
			return nil // Another reader requests it.
		}
		return err
	}
}
