package tests

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

// asked runs a request in a goroutine.
func asked(request func() error) chan error {
	done := make(chan error, 1)
	go func() { done <- request() }()
	return done
}

func TestNothingSucceedsUnderAHoldThatIsKnownToBeLost(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	for _, options := range [][]redislock.Option{nil, {redislock.WithAutoRenew()}} {
		hold := locked(t, client.Mutex("k", append(options, redislock.WithLease(time.Second))...))
		if options != nil {
			server.Ask("ACL", "SETUSER", "default", "-lock.renew")
		}
		server.Ask("PEXPIRE", "k", 60_000) // The server keeps the lock longer than the client knows.
		lost(t, hold)
		server.Ask("ACL", "SETUSER", "default", "+@all")
		isTrue(t, errors.Is(hold.Renew(ctx, time.Hour), redislock.ErrLost), "renewed")
		isTrue(t, errors.Is(hold.Extend(ctx, time.Hour), redislock.ErrLost), "extended")
		err := hold.Exec(ctx, "SET", "written", "yes").Err()
		isTrue(t, errors.Is(err, redislock.ErrLost) && errors.Is(err, redislock.ErrNotRun), "%v", err)
		left := server.Ask("PTTL", "k").(int64)
		isTrue(t, hold.IsLost() && left <= 60_000 && server.Ask("EXISTS", "written") == int64(0), "%d", left)
		server.Break("k")
	}
}

func TestAnAutomaticRenewalBehindThatOfTheCallerKeepsItsLease(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	hold := locked(t, over(t, proxy.Addr()).Mutex("k", redislock.WithLease(3*time.Second), redislock.WithAutoRenew()))
	// The first renewal is due after a second, while the one of the caller has no reply.
	proxy.Silence()
	done := asked(func() error { return hold.Renew(context.Background(), time.Minute) })
	time.Sleep(1300 * time.Millisecond)
	proxy.Speak()
	ok(t, <-done)
	servertest.Eventually(t, "both renewals", func() bool { return server.Calls("lock.renew") == 2 })
	left := server.Ask("PTTL", "k").(int64)
	isTrue(t, left > 50_000, "%d", left)
	unlock(t, hold)
}

func TestARenewalWhoseReplyIsLostMayHaveShortenedTheLease(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client := over(t, proxy.Addr())
	renew := func(hold *redislock.Hold, lease time.Duration) {
		proxy.HoldReply("LOCK.RENEW")
		ctx, end := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer end()
		isTrue(t, errors.Is(hold.Renew(ctx, lease), context.DeadlineExceeded), "it has a reply")
	}
	hold := locked(t, client.Mutex("k"))
	renew(hold, time.Second)
	lost(t, hold)
	// Automatic renewal restores the lease, over a new connection when this one is dead after 5 s.
	renewed := locked(t, client.Mutex("r", redislock.WithAutoRenew()))
	renew(renewed, 9*time.Second)
	servertest.Eventually(t, "the lease", func() bool { return server.Ask("PTTL", "r").(int64) > 10_000 })
	isTrue(t, !renewed.IsLost(), "lost")
	unlock(t, renewed)
}

func TestAReleaseInTheBackgroundGoesOnUntilTheLeaseHasExpired(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client, ctx := over(t, proxy.Addr()), context.Background()
	ended, end := context.WithCancel(ctx)
	end()
	extended := locked(t, client.Mutex("extended", redislock.WithLease(time.Second)))
	ok(t, extended.Renew(ctx, time.Hour))
	endless := locked(t, over(t, server.Addr()).Mutex("endless", redislock.WithoutLease()))
	taken := must(client.Mutex("endless", redislock.WithLease(time.Second)).FromToken(ctx, endless.Detach()))(t)
	server.Ask("CLIENT", "PAUSE", 600_000, "WRITE")
	proxy.Silence()
	for _, hold := range []*redislock.Hold{extended, taken} {
		isTrue(t, errors.Is(hold.Unlock(ended), context.Canceled), "unlocked")
	}
	// An attempt fails after five seconds, and the lease is one.
	time.Sleep(8 * time.Second)
	server.Ask("CLIENT", "UNPAUSE")
	proxy.Disconnect()
	proxy.Speak()
	for _, key := range []string{"extended", "endless"} {
		servertest.Eventually(t, key, func() bool { return server.IsFree(key) })
	}
}

func TestAFailedFromTokenRenewsNothing(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client := over(t, server.Addr())
	lock := client.Mutex("k", redislock.WithLease(600*time.Millisecond), redislock.WithAutoRenew())
	token := locked(t, client.Mutex("k")).Detach()
	server.Ask("ACL", "SETUSER", "default", "-lock.renew")
	_, err := lock.FromToken(context.Background(), token)
	isTrue(t, err != nil, "it was renewed")
	server.Ask("ACL", "SETUSER", "default", "+@all")
	time.Sleep(time.Second)
	isTrue(t, server.Calls("lock.renew") == 0, "%d renewals", server.Calls("lock.renew"))
}

func TestAnOwnersEarlierRequestDelaysNoLimitedWait(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client, ctx := over(t, proxy.Addr()), context.Background()
	ended, end := context.WithCancel(ctx)
	end()
	inner := func(outer *redislock.Hold, options ...redislock.Option) *redislock.Lock {
		return client.Reentrant("r", append(options, redislock.AsOwnerOf(outer))...)
	}
	outer := locked(t, client.Reentrant("r"))
	hold := locked(t, inner(outer))
	proxy.Silence()
	isTrue(t, errors.Is(hold.Unlock(ended), context.Canceled), "unlocked") // It goes on in the background.
	for _, lock := range []func() (*redislock.Hold, error){
		func() (*redislock.Hold, error) {
			return inner(outer, redislock.WithWait(200*time.Millisecond)).Lock(ctx)
		},
		func() (*redislock.Hold, error) { return inner(outer).TryLock(ctx) },
	} {
		began := time.Now()
		_, err := lock()
		took := time.Since(began)
		isTrue(t, errors.Is(err, redislock.ErrNotAcquired) && took < time.Second+busy, "%v after %v", err, took)
	}
	proxy.Speak()
	servertest.Eventually(t, "the release", func() bool { return server.Holds("r") == 1 })
	unlock(t, outer)
	// The cleanup of a request with the same token.
	other := locked(t, over(t, server.Addr()).Mutex("k"))
	waiter := wait(t, server, client.Mutex("k", redislock.WithToken("mine")), "k")
	proxy.Silence()
	waiter.end()
	_, _ = waiter.result()
	began := time.Now()
	_, err := client.Mutex("k", redislock.WithToken("mine")).TryLock(ctx)
	took := time.Since(began)
	isTrue(t, err != nil && took < time.Second+busy, "%v after %v", err, took)
	proxy.Speak()
	unlock(t, other)
}

func TestADedicatedConnectionMayTakeLongerThanAReply(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	ctx, end := context.WithTimeout(context.Background(), 20*time.Second)
	defer end()
	client := overWith(t, &redis.Options{Addr: server.Addr(), ReadTimeout: 200 * time.Millisecond,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(500 * time.Millisecond)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}})
	unlock(t, must(client.Mutex("k", redislock.WithSession()).Lock(ctx))(t))
	unlock(t, must(client.Mutex("k", redislock.WithSession()).TryLock(ctx))(t))
}

func TestAPausedClientKeepsItsPosition(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	direct := over(t, server.Addr())
	hold := locked(t, direct.Mutex("k"))
	first := wait(t, server, over(t, proxy.Addr()).Mutex("k"), "k")
	second := wait(t, server, direct.Mutex("k"), "k")
	before := server.Waiters("k")
	// As for a client that is paused around the end of a slice, for longer than lock.keep-place.
	time.Sleep(3500 * time.Millisecond)
	proxy.Silence()
	time.Sleep(3500 * time.Millisecond)
	proxy.Speak()
	time.Sleep(1500 * time.Millisecond)
	after := server.Waiters("k")
	isTrue(t, len(after) == 2 && after[0] == before[0], "%v, then %v", before, after)
	unlock(t, hold)
	unlock(t, first.granted())
	unlock(t, second.granted())
}

func TestAFailedRenewLeavesTheAutomaticRenewal(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	server.Ask("CONFIG", "SET", "lock.max-lease", 60_000)
	hold := locked(t, over(t, proxy.Addr()).Mutex("k", redislock.WithLease(3*time.Second), redislock.WithAutoRenew()))
	// The automatic renewal is under way, and gets its reply first.
	servertest.Eventually(t, "a renewal", func() bool { return server.Calls("lock.renew") >= 1 })
	proxy.Silence()
	time.Sleep(1300 * time.Millisecond)
	done := asked(func() error { return hold.Renew(context.Background(), time.Hour) })
	time.Sleep(100 * time.Millisecond)
	proxy.Speak()
	isTrue(t, errors.Is(<-done, redislock.ErrUsage), "it was renewed")
	calls := server.Calls("lock.renew")
	servertest.Eventually(t, "more renewals", func() bool {
		return server.Calls("lock.renew") >= calls+3 || hold.IsLost()
	})
	isTrue(t, !hold.IsLost(), "lost")
	unlock(t, hold)
}

func TestALateGrantEndsNoSubscription(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, direct := over(t, server.Addr()), over(t, server.Addr())
	for range 3 {
		hold := locked(t, direct.Mutex("k"))
		waiter := wait(t, server, client.Mutex("k", redislock.WithLease(2*time.Second)), "k")
		time.Sleep(300 * time.Millisecond) // A tenth of the lease, so the client asks again after the message.
		unlock(t, hold)
		unlock(t, waiter.granted())
	}
	// One of each client.
	isTrue(t, server.Calls("subscribe") == 2, "%d subscriptions", server.Calls("subscribe"))
}
