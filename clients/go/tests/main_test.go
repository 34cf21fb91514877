// Package tests has the cases of clients/conformance.md and Go's own, on real servers. It is a separate module, so
// that the client depends on go-redis and nothing else.
package tests

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

// long never runs out in a test.
const long = 120 * time.Second

// busy is the allowance for a busy machine, on top of the times that the README guarantees.
const busy = 1500 * time.Millisecond

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// over creates a client of a server or a proxy.
func over(t testing.TB, addr string, options ...redislock.Option) *redislock.Client {
	t.Helper()
	return overWith(t, &redis.Options{Addr: addr}, options...)
}

func overWith(t testing.TB, to *redis.Options, options ...redislock.Option) *redislock.Client {
	t.Helper()
	return of(t, redis.NewClient(to), options...)
}

func of(t testing.TB, rdb redis.UniversalClient, options ...redislock.Option) *redislock.Client {
	t.Helper()
	client := redislock.New(rdb, options...)
	t.Cleanup(func() {
		client.Close()
		_ = rdb.Close()
	})
	return client
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isTrue(t testing.TB, what bool, format string, values ...any) {
	t.Helper()
	if !what {
		t.Fatalf(format, values...)
	}
}

func locked(t testing.TB, lock *redislock.Lock) *redislock.Hold {
	t.Helper()
	return must(lock.Lock(context.Background()))(t)
}

func unlock(t testing.TB, hold *redislock.Hold) {
	t.Helper()
	ok(t, hold.Unlock(context.Background()))
}

// waiting locks in a goroutine and returns when its request is queued.
type waiting struct {
	t    testing.TB
	end  context.CancelFunc
	done chan struct{}
	hold *redislock.Hold
	err  error
}

func wait(t testing.TB, server *servertest.Server, lock *redislock.Lock, key string) *waiting {
	t.Helper()
	before := len(server.Waiters(key))
	w := begin(t, lock)
	servertest.Eventually(t, "one more waiter", func() bool { return len(server.Waiters(key)) > before || w.isOver() })
	return w
}

func begin(t testing.TB, lock *redislock.Lock) *waiting {
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	w := &waiting{t: t, end: end, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.hold, w.err = lock.Lock(ctx)
	}()
	return w
}

func (w *waiting) isOver() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// result waits for the end.
func (w *waiting) result() (*redislock.Hold, error) {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(60 * time.Second):
		w.t.Fatal("the wait never ended")
	}
	return w.hold, w.err
}

func (w *waiting) granted() *redislock.Hold {
	w.t.Helper()
	return must(w.result())(w.t)
}

// inTime requires that a wait never ends early, and at least once in five times ends with this error and no later than
// on an idle machine.
func inTime(t testing.TB, expected time.Duration, failed error, wait func() error) {
	t.Helper()
	least := long
	for range 5 {
		began := time.Now()
		err := wait()
		took := time.Since(began)
		isTrue(t, err != nil && took >= expected, "%v after %v", err, took)
		if least = min(least, took); least < expected+500*time.Millisecond {
			isTrue(t, errors.Is(err, failed), "%v", err)
			return
		}
	}
	t.Fatalf("%v", least)
}

// lost waits until the hold knows that it was lost.
func lost(t testing.TB, hold *redislock.Hold) {
	t.Helper()
	select {
	case <-hold.Context().Done():
	case <-time.After(60 * time.Second):
		t.Fatal("the loss was never reported")
	}
	if cause := context.Cause(hold.Context()); cause != redislock.ErrLost || !hold.IsLost() {
		t.Fatalf("%v", cause)
	}
}
