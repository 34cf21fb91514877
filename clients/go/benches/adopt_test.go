package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

// theirs is a lock of another library. take returns false if another owner holds it.
type theirs interface {
	take(wait time.Duration) bool
	token() string
	extend() bool
	release() bool
	// by is the holder of a lock that was acquired elsewhere, by its token; false if this library cannot do that.
	by(token string) bool
}

type ofRedsync struct {
	*testing.T
	pool  *redsync.Redsync
	mutex *redsync.Mutex
}

func (r *ofRedsync) take(wait time.Duration) bool {
	r.mutex = r.pool.NewMutex("shared:k", redsync.WithExpiry(20*time.Second),
		redsync.WithTries(1+int(wait/(50*time.Millisecond))), redsync.WithRetryDelay(50*time.Millisecond))
	err := r.mutex.Lock()
	taken := (*redsync.ErrTaken)(nil)
	if err != nil && !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
		r.Fatal(err)
	}
	return err == nil
}

func (r *ofRedsync) token() string { return r.mutex.Value() }
func (r *ofRedsync) extend() bool  { done, _ := r.mutex.Extend(); return done }
func (r *ofRedsync) release() bool { done, _ := r.mutex.Unlock(); return done }

func (r *ofRedsync) by(token string) bool {
	r.mutex = r.pool.NewMutex("shared:k", redsync.WithValue(token))
	return true
}

type ofBsm struct {
	*testing.T
	client *bsm.Client
	lock   *bsm.Lock
}

func (b *ofBsm) take(wait time.Duration) bool {
	tries := bsm.LimitRetry(bsm.LinearBackoff(50*time.Millisecond), int(wait/(50*time.Millisecond)))
	lock, err := b.client.Obtain(ctx, "shared:k", 20*time.Second, &bsm.Options{RetryStrategy: tries})
	if err != nil && !errors.Is(err, bsm.ErrNotObtained) {
		b.Fatal(err)
	}
	b.lock = lock
	return err == nil
}

func (b *ofBsm) token() string  { return b.lock.Token() }
func (b *ofBsm) extend() bool   { return b.lock.Refresh(ctx, 20*time.Second, nil) == nil }
func (b *ofBsm) release() bool  { return b.lock.Release(ctx) == nil }
func (b *ofBsm) by(string) bool { return false }

// adopting is a server that turns SET NX locks into native ones, with clients of all libraries.
func adopting(t *testing.T, wait string) (*servertest.Server, *redislock.Client, []func() theirs) {
	server := servertest.Start(t, "--lock.adopt", "shared:*", "--lock.adopt-wait", wait)
	// Each of their attempts waits on a connection: the holder needs one too.
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 50})
	locks := redislock.New(rdb, redislock.WithLease(20*time.Second), redislock.WithTellHolder())
	t.Cleanup(func() {
		locks.Close()
		_ = rdb.Close()
	})
	pool, client := redsync.New(goredis.NewPool(rdb)), bsm.New(rdb)
	return server, locks, []func() theirs{
		func() theirs { return &ofRedsync{T: t, pool: pool} },
		func() theirs { return &ofBsm{T: t, client: client} },
	}
}

func isTrue(t *testing.T, what bool, words ...any) {
	t.Helper()
	if !what {
		t.Fatal(words...)
	}
}

func TestBothDirections(t *testing.T) {
	server, locks, others := adopting(t, "0")
	lock := locks.Mutex("shared:k")
	for _, other := range others {
		one, two := other(), other()
		isTrue(t, one.take(0) && !two.take(0), "not exclusive")
		// The new client sees their holder, waits for it in the queue and is granted by their release.
		_, err := lock.TryLock(ctx)
		refusal := (*redislock.NotAcquiredError)(nil)
		isTrue(t, errors.As(err, &refusal) && refusal.Holder == one.token(), err)
		granted := make(chan *redislock.Hold)
		go func() {
			hold, err := lock.Lock(ctx)
			if err != nil {
				t.Error(err)
			}
			granted <- hold
		}()
		servertest.Eventually(t, "a waiter", func() bool { return len(server.Waiters("shared:k")) == 1 })
		fence := server.Holders("shared:k")[0]["fence"].(int64)
		isTrue(t, one.extend() && one.release(), "not released")
		hold := <-granted
		isTrue(t, hold.Fence() > uint64(fence) && !one.extend() && !one.release(), "still theirs")
		// The other direction: they are refused while it is held here, and granted it afterwards.
		isTrue(t, !two.take(0), "both hold it")
		took := make(chan bool)
		go func() { took <- two.take(20 * time.Second) }()
		asked := server.Calls("lock.adopted|set")
		servertest.Eventually(t, "a further try", func() bool { return server.Calls("lock.adopted|set") > asked })
		isTrue(t, hold.Unlock(ctx) == nil && <-took, "not granted")
		// A lock that they acquired is used and released here, and vice versa.
		hold, err = lock.FromToken(ctx, two.token())
		isTrue(t, err == nil && hold.Renew(ctx, time.Minute) == nil && hold.Unlock(ctx) == nil && !two.release(), err)
		hold, err = lock.Lock(ctx)
		isTrue(t, err == nil, err)
		if two.by(hold.Token()) {
			isTrue(t, two.extend() && two.release() && errors.Is(hold.Unlock(ctx), redislock.ErrLost), "not handed on")
		} else {
			isTrue(t, hold.Unlock(ctx) == nil, "not released")
		}
		isTrue(t, server.IsFree("shared:k"), "held")
	}
}

// All libraries in parallel; lock.adopt-wait gives polling clients a position in the queue.
func TestAllOnOneLock(t *testing.T) {
	server, locks, others := adopting(t, "500")
	turn := func(take func() bool, release func() bool) func(work func()) {
		return func(work func()) {
			if !take() {
				t.Error("not granted")
				return
			}
			work()
			if !release() {
				t.Error("lost")
			}
		}
	}
	var all sync.WaitGroup
	var inside, turns atomic.Int32
	for range 5 {
		one, two := others[0](), others[1]()
		var hold *redislock.Hold
		for _, each := range []func(func()){
			turn(func() bool { return one.take(time.Minute) }, one.release),
			turn(func() bool { return two.take(time.Minute) }, two.release),
			turn(func() (taken bool) {
				var err error
				hold, err = locks.Mutex("shared:k").Lock(ctx)
				return err == nil
			}, func() bool { return hold.Unlock(ctx) == nil }),
		} {
			all.Add(1)
			go func() {
				defer all.Done()
				for range 10 {
					each(func() {
						if inside.Add(1) > 1 {
							t.Error("two of them hold it")
						}
						turns.Add(1)
						inside.Add(-1)
					})
				}
			}()
		}
	}
	all.Wait()
	isTrue(t, turns.Load() == 150 && server.IsFree("shared:k"), turns.Load())
}
