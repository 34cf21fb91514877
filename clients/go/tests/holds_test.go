package tests

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

func TestAtLeast(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client, ctx := over(t, proxy.Addr()), context.Background()
	for _, lease := range []time.Duration{time.Second, time.Hour} {
		for _, cut := range []bool{false, true} {
			hold := locked(t, client.Mutex("k", redislock.WithLease(lease), redislock.WithAtLeast(40*time.Second)))
			renewals := server.Calls("lock.renew")
			if cut {
				proxy.CutReply("LOCK.RENEW", 0)
			}
			unlock(t, hold)
			left := server.Ask("PTTL", "k").(int64)
			isTrue(t, left > 30_000 && left <= 40_000, "%d", left)
			more := 1
			if cut {
				more = 2
			}
			isTrue(t, server.Calls("lock.renew") == renewals+more, "%d", server.Calls("lock.renew"))
			server.Break("k")
		}
	}
	// A later release, and one that reports failed work, free it.
	hold := locked(t, client.Mutex("k", redislock.WithAtLeast(time.Millisecond)))
	time.Sleep(2 * time.Millisecond)
	unlock(t, hold)
	isTrue(t, server.IsFree("k"), "held")
	hold = locked(t, client.Mutex("k", redislock.WithAtLeast(time.Hour)))
	ok(t, hold.UnlockFailed(ctx))
	isTrue(t, server.IsFree("k"), "held")
	hold = locked(t, client.Mutex("k", redislock.WithAtLeast(time.Hour)))
	server.Break("k")
	isTrue(t, errors.Is(hold.Unlock(ctx), redislock.ErrLost), "no loss")
	// One of several keys was lost: the others are free.
	both := locked(t, client.Multi([]string{"a", "b"}, redislock.WithAtLeast(time.Hour)))
	server.Break("a")
	isTrue(t, errors.Is(both.Unlock(ctx), redislock.ErrLost) && server.IsFree("b"), "b is held")
	// Only the last release.
	first := locked(t, client.Reentrant("r", redislock.WithAtLeast(time.Hour)))
	second := locked(t, client.Reentrant("r", redislock.WithAtLeast(time.Hour), redislock.AsOwnerOf(first)))
	unlock(t, second)
	isTrue(t, server.Holds("r") == 1, "%d", server.Holds("r"))
	unlock(t, first)
	isTrue(t, server.Holds("r") == 1 && server.Ask("PTTL", "r").(int64) > 3_500_000, "not kept")
}

func TestAtLeastAboveTheLongestLeaseIsRefusedBeforeTheWork(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client, ctx := over(t, proxy.Addr()), context.Background()
	server.Ask("CONFIG", "SET", "lock.max-lease", 60_000)
	// The lock is held: it is refused immediately, not after a wait.
	hold := locked(t, over(t, server.Addr()).Mutex("k"))
	for _, atLeast := range []time.Duration{greatest, time.Minute + time.Millisecond} {
		option := redislock.WithAtLeast(atLeast)
		for _, lock := range []*redislock.Lock{client.Mutex("k", option), client.Reentrant("r", option),
			client.RW("w").Read(option), client.RW("w").Write(option), client.Semaphore("s", 2, option),
			client.Multi([]string{"a", "b"}, option), client.Mutex("m", option, redislock.WithAutoRenew()),
			client.Mutex("m", option, redislock.WithReplicas(1, time.Second)),
			client.Mutex("m", option, redislock.WithMixed(time.Second))} {
			err := lock.Do(ctx, func(context.Context) error { t.Error("the work has run"); return nil })
			isTrue(t, errors.Is(err, redislock.ErrUsage) && strings.Contains(err.Error(), "lock.max-lease"), "%v", err)
			_, err = lock.TryLock(ctx)
			isTrue(t, errors.Is(err, redislock.ErrUsage), "%v", err)
		}
	}
	isTrue(t, server.Ask("DBSIZE") == int64(1) && server.Calls("lock.cancel") == 0, "a lock was asked for")
	unlock(t, hold)
	// The longest allowed time is accepted, and a request with a lost reply is repeated.
	proxy.CutReply("LOCK.RENEW", 0)
	hold = locked(t, client.Mutex("k", redislock.WithAtLeast(time.Minute)))
	isTrue(t, proxy.Done() == 1, "no reply was cut")
	unlock(t, hold)
	isTrue(t, server.Ask("PTTL", "k").(int64) > 50_000, "not kept")
	// The acquire reports a key of another type.
	server.Ask("SET", "string", "of another client")
	_, err := client.Mutex("string", redislock.WithAtLeast(time.Minute)).Lock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrWrongType), "%v", err)
	// A lease.
	for name, err := range map[string]error{"Lock": client.Mutex("m", redislock.WithLease(2*time.Minute)).Do(ctx,
		func(context.Context) error { t.Error("the work has run"); return nil }), "Renew": func() error {
		hold := locked(t, client.Mutex("m"))
		defer unlock(t, hold)
		return hold.Renew(ctx, 2*time.Minute)
	}()} {
		isTrue(t, errors.Is(err, redislock.ErrUsage) && strings.Contains(err.Error(), "lock.max-lease"), "%s: %v", name, err)
	}
	isTrue(t, server.IsFree("m"), "held")
}

func TestFromToken(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	here, there, ctx := over(t, server.Addr()), over(t, server.Addr()), context.Background()
	hold := locked(t, here.Mutex("k"))
	taken := must(there.Mutex("k").FromToken(ctx, hold.Token()))(t)
	left, ends := taken.Remaining()
	isTrue(t, taken.Fence() == hold.Fence() && ends && left > 0 && !taken.IsLost(), "%v", left)
	ok(t, taken.Extend(ctx, time.Minute))
	left, _ = taken.Remaining()
	isTrue(t, left > time.Minute, "%v", left)
	ok(t, taken.Exec(ctx, "SET", "v", "used").Err())
	unlock(t, taken)
	isTrue(t, errors.Is(hold.Unlock(ctx), redislock.ErrLost), "the first one is notified")
	_, err := there.Mutex("k").FromToken(ctx, "somebody")
	isTrue(t, errors.Is(err, redislock.ErrLost), "%v", err)
	_, err = there.Mutex("k", redislock.WithSession()).FromToken(ctx, "somebody")
	isTrue(t, errors.Is(err, redislock.ErrUsage), "%v", err)
	// Transferred, and renewed there.
	token := locked(t, here.Mutex("k", redislock.WithAutoRenew())).Detach()
	lock := there.Mutex("k", redislock.WithLease(3*time.Second), redislock.WithAutoRenew())
	taken = must(lock.FromToken(ctx, token))(t)
	before := server.Calls("lock.renew")
	servertest.Eventually(t, "renewals", func() bool { return server.Calls("lock.renew") >= before+4 })
	isTrue(t, !taken.IsLost(), "lost")
	unlock(t, taken)
	// Not with a session, which ends with its connection.
	locked(t, here.Mutex("session", redislock.WithSession())).Detach()
	servertest.Eventually(t, "a free lock", func() bool { return server.IsFree("session") })
	// Everything that the token holds, and its slot.
	first := locked(t, here.Reentrant("r"))
	locked(t, here.Reentrant("r", redislock.AsOwnerOf(first)))
	unlock(t, must(there.Reentrant("r").FromToken(ctx, first.Token()))(t))
	locked(t, here.Semaphore("s", 3, redislock.WithSlot()))
	slot := locked(t, here.Semaphore("s", 3, redislock.WithSlot()))
	again := must(there.Semaphore("s", 3, redislock.WithSlot()).FromToken(ctx, slot.Token()))(t)
	isTrue(t, again.Slot() == 1 && server.IsFree("r"), "%d", again.Slot())
	unlock(t, again)
}

func TestAFurtherHoldNeverShortensTheLease(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client := over(t, server.Addr())
	first := locked(t, client.Reentrant("r", redislock.WithLease(long)))
	short := redislock.WithLease(time.Second)
	second := locked(t, client.Reentrant("r", short, redislock.AsOwnerOf(first)))
	left, _ := second.Remaining()
	isTrue(t, left > time.Minute, "%v", left)
	time.Sleep(1100 * time.Millisecond) // Longer than the shorter lease.
	isTrue(t, !first.IsLost() && server.Holds("r") == 2, "lost")
	unlock(t, second)
	unlock(t, first)
	// A longer one, or one without a lease, does extend it.
	first = locked(t, client.Reentrant("r", short))
	second = locked(t, client.Reentrant("r", redislock.WithLease(long), redislock.AsOwnerOf(first)))
	left, _ = first.Remaining()
	isTrue(t, left > time.Minute, "%v", left)
	third := locked(t, client.Reentrant("r", redislock.WithoutLease(), redislock.AsOwnerOf(first)))
	_, ends := first.Remaining()
	isTrue(t, !ends && server.Ask("PTTL", "r") == int64(-1), "it has an end")
	for _, hold := range []*redislock.Hold{third, second, first} {
		unlock(t, hold)
	}
}

func TestARenewalWithoutADeadlineWaitsForItsReply(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	renewed := make(chan redislock.Event, 1)
	client := over(t, server.Addr(), redislock.WithObserver(func(e redislock.Event) {
		if e.Kind == redislock.EventRenewed {
			renewed <- e
		}
	}))
	first := locked(t, client.Reentrant("r", redislock.WithLease(3*time.Second), redislock.WithAutoRenew()))
	second := locked(t, client.Reentrant("r", redislock.WithoutLease(), redislock.AsOwnerOf(first)))
	server.Ask("CLIENT", "PAUSE", 60_000, "WRITE")
	servertest.Eventually(t, "a renewal that waits", func() bool {
		return strings.Contains(server.Ask("CLIENT", "LIST").(string), "flags=b")
	})
	time.Sleep(300 * time.Millisecond)
	server.Ask("CLIENT", "UNPAUSE")
	<-renewed
	isTrue(t, server.Calls("rlock.renew") == 1, "%d", server.Calls("rlock.renew"))
	unlock(t, second)
	unlock(t, first)
}

func TestAReleaseThatFailsInTheBackgroundLosesNoOtherHold(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client := over(t, proxy.Addr(), redislock.WithLease(long))
	first := locked(t, client.Reentrant("r"))
	second := locked(t, client.Reentrant("r", redislock.AsOwnerOf(first)))
	ended, end := context.WithCancel(context.Background())
	end()
	proxy.Silence()
	isTrue(t, second.Unlock(ended) == context.Canceled, "it waits for the server")
	ok(t, client.Settled(context.Background())) // After 10 s.
	isTrue(t, !first.IsLost(), "lost")
	proxy.Speak()
	unlock(t, first)
	isTrue(t, server.IsFree("r"), "held")
}

func TestAnUpgradeIsReleasedIfItsReadHoldIsLost(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	rw := over(t, server.Addr()).RW("w")
	reader := locked(t, rw.Read(redislock.WithLease(time.Second)))
	other := locked(t, rw.Read())
	upgrade := wait(t, server, rw.Write(redislock.AsOwnerOf(reader)), "w")
	server.Ask("RWLOCK.RENEW", "w", reader.Token(), "PX", 60_000) // As if the local clock were ahead.
	lost(t, reader)
	unlock(t, other)
	_, err := upgrade.result()
	isTrue(t, errors.Is(err, redislock.ErrLost), "%v", err)
	isTrue(t, errors.Is(reader.Unlock(context.Background()), redislock.ErrLost) && server.IsFree("w"), "held")
}

func TestAForgottenHoldIsLostAtItsDeadline(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client := over(t, server.Addr(), redislock.WithLease(600*time.Millisecond))
	for _, kind := range []redislock.Option{redislock.WithLease(600 * time.Millisecond), redislock.WithAutoRenew(),
		redislock.WithSession()} {
		ended := func() context.Context { return locked(t, client.Mutex("k", kind)).Context() }()
		servertest.Eventually(t, "the end of its context", func() bool {
			runtime.GC()
			return ended.Err() != nil
		})
		isTrue(t, context.Cause(ended) == redislock.ErrLost, "%v", context.Cause(ended))
		servertest.Eventually(t, "a free lock", func() bool { return server.IsFree("k") })
	}
}

// A message does not say which request of a token it belongs to, so each request waits over a separate connection.
func TestAWaitWithTheCallersToken(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	events := make(chan redislock.EventKind, 10)
	client := over(t, server.Addr(), redislock.WithToken("me"), redislock.WithObserver(func(e redislock.Event) {
		events <- e.Kind
	}))
	hold := must(over(t, server.Addr()).Mutex("k", redislock.WithLease(long)).TryLock(context.Background()))(t)
	_, err := client.Mutex("k").TryLock(context.Background())
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired) && <-events == redislock.EventNotGranted, "%v", err)
	for range 2 {
		waiter := wait(t, server, client.Mutex("k"), "k")
		isTrue(t, <-events == redislock.EventQueued, "not queued")
		waiter.end()
		_, err = waiter.result()
		isTrue(t, err == context.Canceled && len(server.Waiters("k")) == 0, "%v", err)
		isTrue(t, <-events == redislock.EventNotGranted, "granted")
	}
	waiter := wait(t, server, client.Mutex("k"), "k")
	unlock(t, hold)
	unlock(t, waiter.granted())
	subscribed := strings.Count(server.Ask("CLIENT", "LIST").(string), "sub=1")
	isTrue(t, subscribed == 0 && server.IsFree("k"), "%d subscriptions", subscribed)
}

// The withdrawal of a cancelled request must not end the next grant of its token.
func TestTheNextRequestOfATokenWaitsForTheCleanup(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client, ctx := over(t, proxy.Addr()), context.Background()
	unlock(t, locked(t, client.Mutex("other")))
	hold := locked(t, over(t, server.Addr()).Mutex("k", redislock.WithLease(long)))
	lock := client.Mutex("k", redislock.WithLease(long), redislock.WithToken("me"))
	first := wait(t, server, lock, "k")
	proxy.Silence()
	first.end()
	_, err := first.result()
	isTrue(t, err == context.Canceled, "%v", err)
	second := begin(t, lock)
	unlock(t, hold)
	proxy.Speak()
	granted := second.granted()
	ok(t, client.Settled(ctx))
	isTrue(t, must(granted.IsHeld(ctx))(t) && server.Holds("k") == 1, "the cleanup has released it")
	unlock(t, granted)
	// But not beyond its caller's time limit.
	proxy.Silence()
	ended, end := context.WithCancel(ctx)
	first = begin(t, lock)
	time.Sleep(50 * time.Millisecond)
	first.end()
	_, _ = first.result()
	time.AfterFunc(100*time.Millisecond, end)
	_, err = lock.Lock(ended)
	isTrue(t, err == context.Canceled, "%v", err)
	proxy.Speak()
	ok(t, client.Settled(ctx))
}

func TestSlot(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client := over(t, proxy.Addr())
	lock := client.Semaphore("s", 3, redislock.WithSlot())
	var holds []*redislock.Hold
	for number := range 3 {
		holds = append(holds, locked(t, lock))
		isTrue(t, holds[number].Slot() == number, "%d", holds[number].Slot())
	}
	waiter := wait(t, server, lock, "s")
	unlock(t, holds[1])
	next := waiter.granted()
	isTrue(t, next.Slot() == 1, "%d", next.Slot())
	unlock(t, next)
	proxy.CutReply("SEM.ACQUIRE", 3)
	next = locked(t, lock)
	for _, holder := range server.Holders("s") {
		if holder["owner"] == next.Token() {
			isTrue(t, holder["slot"] == int64(next.Slot()) && next.Slot() == 1, "%v", holder)
		}
	}
	isTrue(t, locked(t, client.Mutex("k")).Slot() == -1, "a mutex has no slot")
}

func TestExtend(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	hold := locked(t, client.Mutex("k", redislock.WithLease(20*time.Second)))
	ok(t, hold.Extend(ctx, 40*time.Second))
	left := server.Ask("PTTL", "k").(int64)
	isTrue(t, left > 50_000 && left <= 60_000, "%d", left)
	ok(t, hold.Renew(ctx, 5*time.Second))
	isTrue(t, server.Ask("PTTL", "k").(int64) <= 5000, "not shorter")
	server.Break("k")
	isTrue(t, errors.Is(hold.Renew(ctx, time.Second), redislock.ErrLost) && hold.IsLost(), "no loss")
	hold = locked(t, client.Mutex("k", redislock.WithoutLease()))
	isTrue(t, errors.Is(hold.Extend(ctx, time.Second), redislock.ErrUsage), "no lease to extend")
	unlock(t, hold)
	isTrue(t, errors.Is(hold.Renew(ctx, time.Second), redislock.ErrUnlocked), "renewed after Unlock")
	// Renewals restart, with a third of the new lease.
	hold = locked(t, client.Mutex("k", redislock.WithLease(long), redislock.WithAutoRenew()))
	ok(t, hold.Renew(ctx, 3*time.Second))
	before := server.Calls("lock.renew")
	servertest.Eventually(t, "renewals", func() bool { return server.Calls("lock.renew") >= before+4 })
	unlock(t, hold)
}

func TestMixed(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	lock := client.Mutex("k", redislock.WithMixed(20*time.Millisecond))
	server.Ask("SET", "k", "old", "NX", "PX", 2000)
	_, err := lock.TryLock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired), "%v", err)
	hold := locked(t, lock)
	isTrue(t, server.Ask("SET", "k", "old", "NX") == nil, "both hold it")
	mixed := []redislock.Option{redislock.WithMixed(20 * time.Millisecond), redislock.WithWait(100 * time.Millisecond)}
	_, err = client.Mutex("k", mixed...).Lock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired) && len(server.Waiters("k")) == 0, "%v", err)
	unlock(t, hold)
}

func TestInfo(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	ctx := context.Background()
	for _, protocol := range []int{2, 3} {
		client := overWith(t, &redis.Options{Addr: server.Addr(), Protocol: protocol})
		isTrue(t, must(client.Mutex("k").Info(ctx))(t) == nil, "not free")
		holds := []*redislock.Hold{
			locked(t, client.Mutex("k", redislock.WithToken("a\xff"), redislock.WithoutLease())),
			locked(t, client.Reentrant("r", redislock.WithSession())),
			locked(t, client.RW("w").Read()),
			locked(t, client.Semaphore("s", 3, redislock.WithSlot())),
			locked(t, client.Multi([]string{"m1", "m2"})),
		}
		waiter := wait(t, server, client.Mutex("k"), "k")
		info := must(client.Mutex("k").Info(ctx))(t)
		holder := info.Holders[0]
		isTrue(t, info.Kind == "mutex" && info.Limit == 1 && info.Waiters == 1 && info.Holding == 1 && info.TTL == nil,
			"%+v", info)
		isTrue(t, holder.Owner == "a\xff" && holder.Mode == "exclusive" && holder.Holds == 1 && holder.TTL == nil &&
			holder.Lease == nil && holder.Fence == holds[0].Fence() && holder.Session == 0 && holder.Slot == nil, "%+v", holder)
		holder = must(client.Reentrant("r").Info(ctx))(t).Holders[0]

		isTrue(t, holder.Session > 0 && *holder.Lease == 30*time.Second && *holder.TTL <= 30*time.Second &&
			holder.Age < long, "%+v", holder)
		isTrue(t, must(client.RW("w").Write().Info(ctx))(t).Holders[0].Mode == "read", "no reader")
		info = must(client.Semaphore("s", 3).Info(ctx))(t)
		isTrue(t, info.Limit == 3 && *info.Holders[0].Slot == 0 && info.Holders[0].Mode == "permits", "%+v", info)
		isTrue(t, must(client.Multi([]string{"free", "m2"}).Info(ctx))(t).Holding == 1, "m2 is held")
		waiter.end()
		for _, hold := range holds {
			unlock(t, hold)
		}
		_, _ = waiter.result()
		servertest.Eventually(t, "the withdrawal", func() bool { return server.IsFree("k") })
	}
}

func TestHolderOfNotAcquired(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	hold := locked(t, client.Mutex("k", redislock.WithToken("worker-1"), redislock.WithTellHolder()))
	_, err := client.Mutex("k").TryLock(ctx)
	isTrue(t, server.Calls("lock.info") == 0 && !strings.Contains(err.Error(), "worker-1"), "asked: %v", err)
	_, err = client.Mutex("k", redislock.WithTellHolder()).TryLock(ctx)
	refusal := (*redislock.NotAcquiredError)(nil)
	isTrue(t, errors.As(err, &refusal) && refusal.Holder == "worker-1" && strings.Contains(err.Error(), "worker-1"),
		"%v", err)
	isTrue(t, server.Calls("lock.info") == 1, "%d", server.Calls("lock.info"))
	unlock(t, hold)
}

func TestObserver(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	ctx := context.Background()
	events := make(chan redislock.Event, 100)
	client := over(t, server.Addr(), redislock.WithObserver(func(e redislock.Event) {
		events <- e
		panic("an observer that fails")
	}))
	next := func(kind redislock.EventKind, hold *redislock.Hold) {
		t.Helper()
		select {
		case e := <-events:
			isTrue(t, e.Kind == kind && len(e.Keys) > 0 && e.Owner != "" && e.Context != nil, "%v", e)
			isTrue(t, hold == nil || (e.Fence == hold.Fence() && e.Owner == hold.Token()), "%v", e)
		case <-time.After(60 * time.Second):
			t.Fatalf("not reported: %s", kind)
		}
	}
	for _, lock := range []*redislock.Lock{client.Mutex("k"), client.Reentrant("r"), client.RW("w").Read(),
		client.RW("w").Write(), client.Semaphore("s", 1), client.Multi([]string{"m", "n"})} {
		hold := locked(t, lock)
		next(redislock.EventGranted, hold)
		ok(t, hold.Renew(ctx, time.Minute))
		next(redislock.EventRenewed, hold)
		unlock(t, hold)
		next(redislock.EventReleased, hold)
	}
	hold := locked(t, client.Mutex("k"))
	next(redislock.EventGranted, hold)
	_, _ = client.Mutex("k").TryLock(ctx)
	next(redislock.EventNotGranted, nil)
	waiter := wait(t, server, client.Mutex("k"), "k")
	next(redislock.EventQueued, nil)
	unlock(t, hold)
	hold = waiter.granted()
	// From two goroutines, in any order.
	both := []redislock.EventKind{(<-events).Kind, (<-events).Kind}
	slices.Sort(both)
	isTrue(t, slices.Equal(both, []redislock.EventKind{redislock.EventGranted, redislock.EventReleased}), "%v", both)
	server.Break("k")
	isTrue(t, errors.Is(hold.Unlock(ctx), redislock.ErrLost), "no loss")
	next(redislock.EventLost, hold)
	isTrue(t, len(events) == 0, "reported twice")
}

func TestErrorOfTheWork(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	ctx, broken := context.Background(), errors.New("broken")
	for _, kind := range []redislock.Option{redislock.WithLease(long), redislock.WithSession(),
		redislock.WithAutoRenew()} {
		proxy := servertest.NewProxy(t, server)
		client := over(t, proxy.Addr())
		err := client.Mutex("k", kind).Do(ctx, func(context.Context) error { return broken })
		isTrue(t, err == broken && server.IsFree("k"), "%v", err)
		for number, work := range []func(func()) error{
			func(silence func()) error {
				return client.Mutex("k", kind).Do(ctx, func(context.Context) error { silence(); return broken })
			},
			func(silence func()) error {
				_, err := redislock.Once(ctx, client.Mutex("k", kind),
					func(context.Context) (int, bool, error) { return 0, false, nil },
					func(context.Context) (int, error) { silence(); return 0, broken })
				return err
			},
		} {
			var began time.Time
			err := work(func() { proxy.Silence(); began = time.Now() })
			isTrue(t, err == broken && time.Since(began) < time.Second+busy, "%d: %v after %v", number, err, time.Since(began))
			proxy.Speak()
			servertest.Eventually(t, "a free lock", func() bool { return server.IsFree("k") })
		}
	}
}

func TestConnectionState(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	server.Replica()
	server.Ask("ACL", "SETUSER", "app", "on", ">secret", "~*", "&redislock:*", "+@all")
	client := overWith(t, &redis.Options{Addr: server.Addr(), DB: 5, Username: "app", Password: "secret"})
	session := locked(t, client.Mutex("a", redislock.WithSession()))
	unlock(t, locked(t, client.Mutex("b", redislock.WithReplicas(1, long))))
	hold := locked(t, client.Mutex("k"))
	server.Ask("SELECT", 0)
	waiter := begin(t, client.Mutex("k"))
	servertest.Eventually(t, "a waiter", func() bool {
		return strings.Contains(server.Ask("INFO", "lock").(string), "lock_waiters:1")
	})
	mine := 0
	for _, line := range strings.Split(server.Ask("CLIENT", "LIST").(string), "\n") {
		if strings.Contains(line, "user=app") {
			mine++
			isTrue(t, strings.Contains(line, " db=5 "), "%s", line)
		}
	}
	isTrue(t, mine == 3, "%d connections: of requests, of messages, of the session", mine)
	unlock(t, hold)
	unlock(t, waiter.granted())
	unlock(t, session)
	wrong := overWith(t, &redis.Options{Addr: server.Addr(), Username: "app", Password: "wrong"})
	_, err := wrong.Mutex("k").Lock(context.Background())
	isTrue(t, err != nil && strings.Contains(err.Error(), "WRONGPASS"), "%v", err)
}

func TestAWrongCertificateEndsTheWait(t *testing.T) {
	t.Parallel()
	// Its certificate is of an unknown authority.
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	client := overWith(t, &redis.Options{Addr: server.Listener.Addr().String(), TLSConfig: &tls.Config{}})
	_, err := client.Mutex("k").Lock(context.Background())
	isTrue(t, err != nil && strings.Contains(err.Error(), "certificate"), "%v", err)
}
