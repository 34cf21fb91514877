package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

func TestAcquire(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	ctx := context.Background()
	for _, protocol := range []int{2, 3} {
		client := overWith(t, &redis.Options{Addr: server.Addr(), Protocol: protocol})
		lock := client.Mutex("k", redislock.WithLease(10*time.Second))
		hold := locked(t, lock)
		left, ends := hold.Remaining()
		isTrue(t, ends && left > 9*time.Second && left <= 10*time.Second, "%v", left)
		holder := server.Holders("k")[0]
		isTrue(t, holder["owner"] == hold.Token() && holder["fence"] == int64(hold.Fence()), "%v", holder)
		shape := regexp.MustCompile(fmt.Sprintf(`^.+:%d:[0-9a-f]{16}$`, os.Getpid()))
		isTrue(t, shape.MatchString(hold.Token()) && len(hold.Token()) <= 38, "%s", hold.Token())
		isTrue(t, must(hold.IsHeld(ctx))(t) && !hold.IsLost() && hold.Context().Err() == nil, "not held")
		_, err := lock.TryLock(ctx)
		isTrue(t, errors.Is(err, redislock.ErrNotAcquired), "%v", err)
		fence := hold.Fence()
		unlock(t, hold)
		isTrue(t, server.IsFree("k"), "not free")
		next := must(lock.TryLock(ctx))(t)
		isTrue(t, next.Fence() > fence, "%d", next.Fence())
		unlock(t, next)
		isTrue(t, errors.Is(next.Unlock(ctx), redislock.ErrUnlocked), "unlocked twice")
		unending := locked(t, client.Mutex("k", redislock.WithoutLease()))
		_, ends = unending.Remaining()
		isTrue(t, !ends && server.Ask("PTTL", "k") == int64(-1), "it has an end")
		unlock(t, unending)
	}
}

func TestTheOtherFamilies(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	// Reentrant only where that is said.
	first := locked(t, client.Reentrant("r"))
	_, err := client.Reentrant("r").TryLock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired), "%v", err)
	second := locked(t, client.Reentrant("r", redislock.AsOwnerOf(first)))
	isTrue(t, server.Holds("r") == 2 && second.Fence() == first.Fence() && second.Token() == first.Token(), "not again")
	unlock(t, second)
	isTrue(t, server.Holds("r") == 1 && first.Context().Err() == nil, "not one hold less")
	unlock(t, first)
	isTrue(t, server.IsFree("r"), "not free")
	_, err = client.Reentrant("r", redislock.AsOwnerOf(first)).Lock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrLost), "%v", err)

	// Readers beside each other, an upgrade, a downgrade.
	rw := client.RW("w")
	reader := locked(t, rw.Read())
	other := locked(t, rw.Read())
	_, err = rw.Write(redislock.AsOwnerOf(reader)).TryLock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired), "%v", err)
	upgrade := wait(t, server, rw.Write(redislock.AsOwnerOf(reader)), "w")
	unlock(t, other)
	writer := upgrade.granted()
	isTrue(t, writer.Fence() > reader.Fence(), "an upgrade has a fence of its own")
	unlock(t, writer)
	isTrue(t, server.Holders("w")[0]["mode"] == "read", "%v", server.Holders("w"))
	unlock(t, reader)

	semaphore := client.Semaphore("s", 3, redislock.WithPermits(2))
	two := locked(t, semaphore)
	_, err = semaphore.TryLock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired), "%v", err)
	one := locked(t, client.Semaphore("s", 3))
	unlock(t, two)
	unlock(t, one)

	both := locked(t, client.Multi([]string{"m1", "m2"}))
	_, err = client.Mutex("m2").TryLock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired), "%v", err)
	ok(t, both.Renew(ctx, time.Minute))
	unlock(t, both)
	isTrue(t, server.Ask("DBSIZE") == int64(0), "something is left")
}

func TestWrongUseSendsNothing(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	hold := locked(t, client.Reentrant("r"))
	for _, lock := range []*redislock.Lock{
		client.Mutex(""), client.Multi(nil), client.Semaphore("s", 0), client.Semaphore("s", 1, redislock.WithPermits(2)),
		client.Mutex("k", redislock.WithSlot()), client.Mutex("k", redislock.WithLease(0)),
		client.Mutex("k", redislock.WithSession(), redislock.WithAutoRenew()),
		client.Mutex("k", redislock.WithSession(), redislock.WithoutLease()),
		client.Mutex("k", redislock.WithAtLeast(time.Second), redislock.WithSession()),
		client.Mutex("k", redislock.WithAtLeast(time.Second), redislock.WithoutLease()),
		client.Mutex("k", redislock.WithAtLeast(time.Second), redislock.WithToken("me")),
		client.Mutex("k", redislock.WithMixed(time.Second), redislock.WithSession()),
		client.Mutex("k", redislock.WithToken("")), client.Mutex("r", redislock.AsOwnerOf(hold)),
		client.RW("r").Read(redislock.AsOwnerOf(hold)),
	} {
		_, err := lock.Lock(ctx)
		isTrue(t, errors.Is(err, redislock.ErrUsage), "%v", err)
	}
	unlock(t, hold)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr()}})
	_, err := of(t, ring).Mutex("k").Lock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrUsage), "%v", err)
	isTrue(t, server.Calls("lock.acquire") == 0, "something was sent")
}

func TestWait(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client := over(t, server.Addr())
	lock := client.Mutex("k")
	hold := locked(t, lock)
	began := time.Now()
	_, err := client.Mutex("k", redislock.WithWait(300*time.Millisecond)).Lock(context.Background())
	took := time.Since(began)
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired) && took >= 300*time.Millisecond && took < time.Second, "%v %v", err, took)
	ctx, end := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer end()
	began = time.Now()
	_, err = lock.Lock(ctx)
	took = time.Since(began)
	isTrue(t, err == context.DeadlineExceeded && took >= 300*time.Millisecond && took < time.Second, "%v %v", err, took)
	waiter := wait(t, server, lock, "k")
	unlock(t, hold)
	unlock(t, waiter.granted())
}

func TestAWaitGoesOnAfterASlice(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	lock := over(t, server.Addr()).Mutex("k")
	hold := locked(t, lock)
	waiter := wait(t, server, lock, "k")
	asked := server.Calls("lock.acquire")
	servertest.Eventually(t, "a further slice", func() bool { return server.Calls("lock.acquire") > asked })
	unlock(t, hold)
	unlock(t, waiter.granted())
}

func TestOrder(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client := over(t, server.Addr())
	hold := locked(t, client.Mutex("k"))
	turns := make(chan int, 5)
	for number := range 5 {
		w := wait(t, server, client.Mutex("k", redislock.WithToken(fmt.Sprint("waiter-", number))), "k")
		go func() {
			<-w.done
			turns <- number
			_ = w.hold.Unlock(context.Background())
		}()
	}
	unlock(t, hold)
	for number := range 5 {
		isTrue(t, <-turns == number, "not in turn")
	}
	servertest.Eventually(t, "all are through", func() bool { return server.IsFree("k") })
}
