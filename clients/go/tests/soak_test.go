package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

// pairs is how often the soak test acquires and releases a lock in each way: REDISLOCK_PAIRS, as the README says.
func pairs(t testing.TB) int {
	if count := os.Getenv("REDISLOCK_PAIRS"); count != "" {
		return must(strconv.Atoi(count))(t)
	}
	return 500
}

// heap returns the live heap, after the cleanups of dead objects.
func heap() int64 {
	var stats runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// No memory stays in use after a request's reply, nor for a name after its last hold. The channels of a cluster's slots
// are kept, so the names there belong to ten slots. Not parallel: the heap is shared by the process.
func TestSoakLeaksNoMemory(t *testing.T) {
	single, nodes := servertest.Start(t), servertest.Cluster(t)
	ctx, count := context.Background(), pairs(t)
	for setup, client := range map[string]*redislock.Client{"single": over(t, single.Addr()), "cluster": of(t,
		redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr(), nodes[1].Addr()}}))} {
		pair := func(ctx context.Context, lock *redislock.Lock) error {
			hold, err := lock.Lock(ctx)
			if err != nil {
				return err
			}
			return hold.Unlock(context.WithoutCancel(ctx))
		}
		// meets runs a second request for a name while the first one holds it.
		meets := func(key string, second func(ctx context.Context, queued chan struct{}) error) error {
			hold, err := client.Mutex(key).Lock(ctx)
			if err != nil {
				return err
			}
			waits, end := context.WithCancel(ctx)
			defer end()
			queued, ended := make(chan struct{}, 1), make(chan error, 1)
			go func() { ended <- second(waits, queued) }()
			select {
			case <-queued:
			case err := <-ended:
				ended <- err
			}
			if key == "gives up" {
				end()
			}
			return errors.Join(hold.Unlock(ctx), <-ended)
		}
		for _, way := range []struct {
			name  string
			every int // measures only every nth pair if a pair takes long
			take  func(key string) error
		}{
			{"one name", 1, func(string) error { return pair(ctx, client.Mutex("k")) }},
			{"many names", 1, func(key string) error { return pair(ctx, client.Mutex(key)) }},
			{"renewed", 1, func(key string) error { return pair(ctx, client.Mutex(key, redislock.WithAutoRenew())) }},
			{"session", 20, func(key string) error { return pair(ctx, client.Mutex(key, redislock.WithSession())) }},
			{"token", 20, func(key string) error { return pair(ctx, client.Mutex(key, redislock.WithToken(key))) }},
			{"Do", 1, func(key string) error {
				return client.Mutex(key).Do(ctx, func(context.Context) error { return nil })
			}},
			{"Exec", 1, func(key string) error { return client.Mutex(key).Exec(ctx, "EXISTS", key).Err() }},
			{"refused", 1, func(key string) error {
				return meets(key, func(ctx context.Context, _ chan struct{}) error {
					_, err := client.Mutex(key).TryLock(ctx)
					return ignored(err, redislock.ErrNotAcquired)
				})
			}},
			{"waits", 10, func(key string) error {
				return meets(key, func(ctx context.Context, queued chan struct{}) error {
					return pair(ctx, client.Mutex(key, reported(queued)))
				})
			}},
			{"gives up", 10, func(string) error {
				return meets("gives up", func(ctx context.Context, queued chan struct{}) error {
					return ignored(pair(ctx, client.Mutex("gives up", reported(queued))), context.Canceled)
				})
			}},
		} {
			t.Run(setup+", "+way.name, func(t *testing.T) {
				count := max(count/way.every, 100)
				began, half, before := time.Now(), count/2, int64(0)
				for number := range count {
					ok(t, way.take(fmt.Sprintf("{%d}:%d", number%10, number)))
					if number == half {
						before = heap()
					}
				}
				took, kept := time.Since(began).Round(time.Millisecond), int64(0)
				// The buffers of a session's connection live until that is closed, in the background.
				servertest.Eventually(t, fmt.Sprintf("the heap of %d pairs", half), func() bool {
					kept = heap() - before
					return kept < int64(half)*100+16*1024
				})
				t.Logf("%d pairs in %v: %d bytes more", count, took, kept)
			})
		}
	}
}

func ignored(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// reported is an observer of a queued request.
func reported(queued chan struct{}) redislock.Option {
	return redislock.WithObserver(func(e redislock.Event) {
		if e.Kind == redislock.EventQueued {
			queued <- struct{}{}
		}
	})
}
