package tests

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

// cache reads and makes a value in Redis.
type cache struct {
	t    testing.TB
	rdb  *redis.Client
	made atomic.Int32
}

func newCache(t testing.TB, server *servertest.Server) *cache {
	return &cache{t: t, rdb: server.Admin}
}

func (c *cache) read(ctx context.Context) (string, bool, error) {
	value, err := c.rdb.Get(ctx, "v").Result()
	if err == redis.Nil {
		return "", false, nil
	}
	return value, err == nil, err
}

func (c *cache) make(ctx context.Context) (string, error) {
	c.made.Add(1)
	return "made", c.rdb.Set(context.WithoutCancel(ctx), "v", "made", 0).Err()
}

func (c *cache) once(ctx context.Context, lock *redislock.Lock) (string, error) {
	return redislock.Once(ctx, lock, c.read, c.make)
}

type result struct {
	value string
	err   error
}

func started(work func() (string, error)) chan result {
	done := make(chan result, 1)
	go func() {
		value, err := work()
		done <- result{value, err}
	}()
	return done
}

func awaited(t testing.TB, done chan result) result {
	t.Helper()
	select {
	case end := <-done:
		return end
	case <-time.After(60 * time.Second):
		t.Fatal("it never ended")
		return result{}
	}
}

func TestOnceWithAThousandGoroutines(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	c := newCache(t, server)
	ctx := context.Background()
	// A pool of one connection is enough for all of them.
	lock := overWith(t, &redis.Options{Addr: server.Addr(), PoolSize: 1}).Mutex("fill")
	var all sync.WaitGroup
	for range 1000 {
		all.Add(1)
		go func() {
			defer all.Done()
			value, err := redislock.Once(ctx, lock, c.read, func(ctx context.Context) (string, error) {
				time.Sleep(50 * time.Millisecond)
				return c.make(ctx)
			})
			if value != "made" || err != nil {
				t.Error(value, err)
			}
		}()
	}
	all.Wait()
	isTrue(t, c.made.Load() == 1 && server.IsFree("fill"), "made %d times", c.made.Load())
	// The others get "done" and acquire no lock.
	isTrue(t, server.Calls("lock.release") < 300, "%d", server.Calls("lock.release"))
}

func TestOnceInTime(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	c := newCache(t, server)
	client, ctx := over(t, server.Addr()), context.Background()
	hold := locked(t, client.Mutex("fill"))
	began := time.Now()
	_, err := c.once(ctx, client.Mutex("fill", redislock.WithWait(300*time.Millisecond)))
	isTrue(t, errors.Is(err, redislock.ErrNotMade) && errors.Is(err, redislock.ErrNotAcquired), "%v", err)
	isTrue(t, !strings.Contains(err.Error(), "\n"), "%q", err)
	isTrue(t, time.Since(began) >= 300*time.Millisecond && time.Since(began) < 2300*time.Millisecond,
		"%v", time.Since(began))
	// A holder that releases without having made the value.
	done := started(func() (string, error) { return c.once(ctx, client.Mutex("fill", redislock.WithWait(long))) })
	servertest.Eventually(t, "a waiter", func() bool { return len(server.Waiters("fill")) == 1 })
	unlock(t, hold)
	end := awaited(t, done)
	isTrue(t, end.err == nil && end.value == "made" && c.made.Load() == 1, "%v", end)
	_, err = c.once(ctx, client.Mutex("fill", redislock.WithoutLease()))
	isTrue(t, errors.Is(err, redislock.ErrUsage), "%v", err)
}

func TestOnceMakerIsSlow(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	c := newCache(t, server)
	ctx := context.Background()
	lock := over(t, server.Addr()).Mutex("fill", redislock.WithLease(3*time.Second), redislock.WithAutoRenew())
	first := started(func() (string, error) {
		return redislock.Once(ctx, lock, c.read, func(ctx context.Context) (string, error) {
			servertest.Eventually(t, "four renewals", func() bool { return server.Calls("lock.renew") >= 4 })
			isTrue(t, ctx.Err() == nil && redislock.FromContext(ctx).Fence() > 0, "lost")
			return c.make(ctx)
		})
	})
	servertest.Eventually(t, "a maker", func() bool { return !server.IsFree("fill") })
	second := started(func() (string, error) { return c.once(ctx, lock) })
	isTrue(t, awaited(t, first) == result{"made", nil} && awaited(t, second) == result{"made", nil}, "not made")
	isTrue(t, c.made.Load() == 1, "made %d times", c.made.Load())
}

func TestOnceMakerFails(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	c := newCache(t, server)
	ctx, lock := context.Background(), over(t, server.Addr()).Mutex("fill", redislock.WithLease(long))
	fails, broken := make(chan struct{}), errors.New("broken")
	first := started(func() (string, error) {
		return redislock.Once(ctx, lock, c.read, func(context.Context) (string, error) { <-fails; return "", broken })
	})
	servertest.Eventually(t, "a maker", func() bool { return !server.IsFree("fill") })
	second := started(func() (string, error) { return c.once(ctx, lock) })
	third := started(func() (string, error) { return c.once(ctx, lock) })
	servertest.Eventually(t, "two waiters", func() bool { return len(server.Waiters("fill")) == 2 })
	close(fails)
	isTrue(t, awaited(t, first).err == broken, "another error")
	isTrue(t, awaited(t, second) == result{"made", nil} && awaited(t, third) == result{"made", nil}, "not made")
	isTrue(t, c.made.Load() == 1, "made %d times", c.made.Load())
}

func TestOnceMakerIsCancelled(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	c := newCache(t, server)
	lock := over(t, server.Addr()).Mutex("fill", redislock.WithLease(long))
	ctx, end := context.WithCancel(context.Background())
	first := started(func() (string, error) {
		return redislock.Once(ctx, lock, c.read, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
	})
	servertest.Eventually(t, "a maker", func() bool { return !server.IsFree("fill") })
	second := started(func() (string, error) { return c.once(context.Background(), lock) })
	servertest.Eventually(t, "a waiter", func() bool { return len(server.Waiters("fill")) == 1 })
	// One more that is cancelled while it waits.
	waits, endWait := context.WithCancel(context.Background())
	third := started(func() (string, error) { return c.once(waits, lock) })
	servertest.Eventually(t, "two waiters", func() bool { return len(server.Waiters("fill")) == 2 })
	endWait()
	isTrue(t, awaited(t, third).err == context.Canceled, "not cancelled")
	end()
	isTrue(t, awaited(t, first).err == context.Canceled && awaited(t, second) == result{"made", nil}, "not made")
}

func TestOnceMakerPanics(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	c := newCache(t, server)
	ctx, lock := context.Background(), over(t, server.Addr()).Mutex("fill", redislock.WithLease(long))
	func() {
		defer func() { isTrue(t, recover() == "broken", "another panic") }()
		_, _ = redislock.Once(ctx, lock, c.read, func(context.Context) (string, error) { panic("broken") })
	}()
	isTrue(t, server.IsFree("fill"), "held")
	isTrue(t, must(c.once(ctx, lock))(t) == "made", "not made")
}

// TestMaker is the process of TestOnceMakerDies.
func TestMaker(t *testing.T) {
	addr := os.Getenv("REDISLOCK_MAKER")
	if addr == "" {
		t.Skip("for TestOnceMakerDies")
	}
	lock := over(t, addr).Mutex("fill", redislock.WithLease(time.Second), redislock.WithAutoRenew())
	_, _ = redislock.Once(context.Background(), lock,
		func(context.Context) (string, bool, error) { return "", false, nil },
		func(context.Context) (string, error) { select {} })
}

func TestOnceMakerDies(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	c := newCache(t, server)
	maker := exec.Command(os.Args[0], "-test.run=^TestMaker$")
	maker.Env = append(os.Environ(), "REDISLOCK_MAKER="+server.Addr())
	ok(t, maker.Start())
	servertest.Eventually(t, "a maker", func() bool { return !server.IsFree("fill") })
	done := started(func() (string, error) { return c.once(context.Background(), over(t, server.Addr()).Mutex("fill")) })
	servertest.Eventually(t, "a waiter", func() bool { return len(server.Waiters("fill")) == 1 })
	ok(t, maker.Process.Kill())
	_ = maker.Wait()
	isTrue(t, awaited(t, done) == result{"made", nil}, "not made")
}

func TestOnceMakerLosesItsLock(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	c := newCache(t, server)
	ctx, lock := context.Background(), over(t, server.Addr()).Mutex("fill")
	goesOn := make(chan struct{})
	var maker *redislock.Hold
	first := started(func() (string, error) {
		return redislock.Once(ctx, lock, c.read, func(ctx context.Context) (string, error) {
			maker = redislock.FromContext(ctx)
			<-goesOn
			return "first", c.rdb.SetNX(context.Background(), "v", "first", 0).Err()
		})
	})
	servertest.Eventually(t, "a maker", func() bool { return !server.IsFree("fill") })
	second := started(func() (string, error) { return c.once(ctx, lock) })
	servertest.Eventually(t, "a waiter", func() bool { return len(server.Waiters("fill")) == 1 })
	server.Break("fill")
	isTrue(t, awaited(t, second) == result{"made", nil}, "not made")
	close(goesOn)
	end := awaited(t, first)
	isTrue(t, end == result{"made", nil} && context.Cause(maker.Context()) == context.Canceled,
		"%v %v", end, context.Cause(maker.Context()))
}

func TestCoalesce(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	lock := client.Mutex("k", redislock.WithLease(long))
	first := must(lock.LockCoalesced(ctx))(t)
	isTrue(t, first.Hold != nil && first.DoneFence == 0, "not granted")
	ends := make(chan redislock.Coalesced, 3)
	waits := func(number int) {
		// One over the shared connection, and one over a separate one.
		for _, each := range []*redislock.Lock{lock, client.Mutex("k", redislock.WithToken("me"))}[:number] {
			go func() { ends <- must(each.LockCoalesced(ctx))(t) }()
		}
		servertest.Eventually(t, "waiters", func() bool { return len(server.Waiters("k")) == number })
	}
	waits(2)
	unlock(t, first.Hold)
	for range 2 {
		end := <-ends
		isTrue(t, end.Hold == nil && end.DoneFence == first.Hold.Fence(), "%v", end)
	}
	second := must(lock.LockCoalesced(ctx))(t)
	waits(2)
	ok(t, second.Hold.UnlockFailed(ctx))
	third := <-ends
	isTrue(t, third.Hold != nil && len(server.Waiters("k")) == 1, "%v", third)
	unlock(t, third.Hold)
	isTrue(t, (<-ends).DoneFence == third.Hold.Fence(), "not done")
	for _, wrong := range []*redislock.Lock{client.Reentrant("k"), client.Mutex("k", redislock.WithMixed(time.Second)),
		client.Mutex("k", redislock.WithAtLeast(time.Second))} {
		_, err := wrong.LockCoalesced(ctx)
		isTrue(t, errors.Is(err, redislock.ErrUsage), "%v", err)
	}
	hold := locked(t, lock)
	_, err := client.Mutex("k", redislock.WithWait(50*time.Millisecond)).LockCoalesced(ctx)
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired), "%v", err)
	unlock(t, hold)
	isTrue(t, !strings.Contains(server.Ask("CLIENT", "LIST").(string), "flags=b"), "somebody waits")
}

func TestAWithdrawnGrantDoesNotReportTheWorkAsDone(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	there := over(t, server.Addr())
	hold := locked(t, there.Mutex("k", redislock.WithLease(long)))
	ctx, end := context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() {
		_, err := over(t, proxy.Addr()).Mutex("k", redislock.WithLease(long)).LockCoalesced(ctx)
		first <- err
	}()
	servertest.Eventually(t, "a waiter", func() bool { return len(server.Waiters("k")) == 1 })
	proxy.Silence()
	ok(t, hold.UnlockFailed(context.Background()))
	servertest.Eventually(t, "the grant", func() bool { return server.Holds("k") == 1 && len(server.Waiters("k")) == 0 })
	second := make(chan redislock.Coalesced, 1)
	go func() { second <- must(there.Mutex("k").LockCoalesced(context.Background()))(t) }()
	servertest.Eventually(t, "another waiter", func() bool { return len(server.Waiters("k")) == 1 })
	end()
	isTrue(t, <-first == context.Canceled, "not cancelled")
	proxy.Speak()
	got := <-second
	isTrue(t, got.Hold != nil && got.DoneFence == 0, "done, and nothing was made")
	unlock(t, got.Hold)
}
