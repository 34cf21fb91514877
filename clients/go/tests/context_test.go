package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

func TestUnlockWithAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client := over(t, proxy.Addr())
	for _, kind := range []redislock.Option{redislock.WithLease(long), redislock.WithSession(),
		redislock.WithAutoRenew()} {
		ctx, end := context.WithCancel(context.Background())
		hold := must(client.Mutex("k", kind).Lock(ctx))(t)
		end()
		isTrue(t, hold.Context().Err() == nil, "the hold ends with the context of Lock")
		ok(t, hold.Unlock(ctx))
		isTrue(t, server.IsFree("k"), "not free")
		// On a silent network it continues in the background.
		hold = locked(t, client.Mutex("k", kind))
		proxy.Silence()
		began := time.Now()
		err := hold.Unlock(ctx)
		isTrue(t, err == context.Canceled && time.Since(began) < time.Second+busy, "%v after %v", err, time.Since(began))
		proxy.Speak()
		servertest.Eventually(t, "a free lock", func() bool { return server.IsFree("k") })
		ok(t, client.Settled(context.Background()))
	}
}

func TestTheContextOfDoEndsWithTheLoss(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	lock := client.Mutex("k", redislock.WithLease(900*time.Millisecond), redislock.WithAutoRenew())
	err := lock.Do(ctx, func(ctx context.Context) error {
		server.Break("k")
		<-ctx.Done()
		isTrue(t, context.Cause(ctx) == redislock.ErrLost, "%v", context.Cause(ctx))
		return ctx.Err()
	})
	isTrue(t, errors.Is(err, redislock.ErrLost) && errors.Is(err, context.Canceled), "%v", err)
	// Work that ignores its context gets the loss from the release.
	err = lock.Do(ctx, func(context.Context) error { server.Break("k"); return nil })
	isTrue(t, errors.Is(err, redislock.ErrLost), "%v", err)
	// The end of the caller's context is not a loss, and the lock is free afterwards.
	caller, end := context.WithCancel(ctx)
	err = lock.Do(caller, func(ctx context.Context) error { end(); <-ctx.Done(); return ctx.Err() })
	isTrue(t, err == context.Canceled && server.IsFree("k"), "%v", err)
	var under context.Context
	ok(t, lock.Do(ctx, func(ctx context.Context) error {
		under = ctx
		isTrue(t, redislock.FromContext(ctx).Fence() > 0 && !server.IsFree("k"), "no hold")
		return nil
	}))
	isTrue(t, under.Err() == context.Canceled && redislock.FromContext(ctx) == nil && server.IsFree("k"), "not over")
	// The work may unlock by itself.
	ok(t, lock.Do(ctx, func(ctx context.Context) error { return redislock.FromContext(ctx).Unlock(ctx) }))
}

// The error reports a loss to the caller. If the work's error hides it, it is logged.
func TestALossInDoIsLoggedIfTheErrorOfTheWorkHidesIt(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx, broken := over(t, server.Addr()), context.Background(), errors.New("broken")
	for key, each := range map[string]struct {
		work       func(ctx context.Context) error
		isReported bool
	}{
		"lost and reported":     {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, true},
		"lost and not reported": {func(context.Context) error { return broken }, false},
	} {
		lock := client.Mutex(key, redislock.WithLease(900*time.Millisecond), redislock.WithAutoRenew())
		err := lock.Do(ctx, func(ctx context.Context) error { server.Break(key); return each.work(ctx) })
		isTrue(t, errors.Is(err, redislock.ErrLost) == each.isReported && !strings.Contains(err.Error(), "\n"), "%q", err)
		lines := logged(key)
		isTrue(t, (len(lines) == 0) == each.isReported, "%q", lines)
		isTrue(t, each.isReported ||
			len(lines) == 1 && strings.HasPrefix(lines[0], "WARN redislock: the lock was lost"), "%q", lines)
	}
}

func TestANilHoldHoldsNothing(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	none := redislock.FromContext(ctx)
	isTrue(t, none == nil && none.Fence() == 0 && none.Token() == "" && none.Slot() == -1 && len(none.Keys()) == 0,
		"it holds something")
	left, ends := none.Remaining()
	isTrue(t, none.IsLost() && none.Context().Err() != nil && ends && left == 0 && none.Detach() == "", "it is not over")
	_, asked := none.IsHeld(ctx)
	_, again := client.Reentrant("r", redislock.AsOwnerOf(none)).Lock(ctx)
	for name, err := range map[string]error{"IsHeld": asked, "Renew": none.Renew(ctx, time.Second),
		"Extend": none.Extend(ctx, time.Second), "Exec": none.Exec(ctx, "PING").Err(), "Unlock": none.Unlock(ctx),
		"UnlockFailed": none.UnlockFailed(ctx), "AsOwnerOf": again} {
		isTrue(t, errors.Is(err, redislock.ErrUsage), "%s: %v", name, err)
	}
}

func TestAPanicInDoFreesTheLock(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	lock := over(t, server.Addr()).Mutex("k", redislock.WithLease(long))
	func() {
		defer func() { isTrue(t, recover() == "broken", "another panic") }()
		_ = lock.Do(context.Background(), func(context.Context) error { panic("broken") })
	}()
	isTrue(t, server.IsFree("k"), "held")
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		_ = lock.Do(context.Background(), func(context.Context) error { runtime.Goexit(); return nil })
	}()
	done.Wait()
	isTrue(t, server.IsFree("k"), "held")
}

// The context's deadline and go-redis's socket timeouts are independent, whatever ContextTimeoutEnabled is.
func TestDeadlinesAndSocketTimeouts(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	for _, enabled := range []bool{false, true} {
		for _, timeout := range []time.Duration{0, -1, -2, 200 * time.Millisecond} {
			client := overWith(t, &redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: enabled, ReadTimeout: timeout})
			for _, kind := range []redislock.Option{redislock.WithLease(long), redislock.WithSession()} {
				name := fmt.Sprint(enabled, timeout)
				hold := locked(t, client.Mutex("k", redislock.WithLease(long)))
				began := time.Now()
				ctx, end := context.WithTimeout(context.Background(), 500*time.Millisecond)
				_, err := client.Mutex("k", kind).Lock(ctx)
				took := time.Since(began)
				isTrue(t, errors.Is(err, context.DeadlineExceeded), "%s: %v", name, err)
				isTrue(t, took >= 500*time.Millisecond && took < time.Second+busy, "%s: %v", name, took)
				isTrue(t, len(server.Waiters("k")) == 0, "%s: still queued", name)
				end()
				unlock(t, hold)
				// The caller's deadline ends no hold and does not interrupt its release.
				ctx, end = context.WithTimeout(context.Background(), long)
				hold = must(client.Mutex("k", kind).Lock(ctx))(t)
				end()
				isTrue(t, !hold.IsLost(), "%s: lost", name)
				ok(t, hold.Unlock(ctx))
			}
		}
	}
}

func TestAPoolOfOneConnectionThatIsBusy(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1, PoolTimeout: 100 * time.Millisecond})
	client := of(t, rdb)
	busy := rdb.Conn() // The only connection of the pool.
	ok(t, busy.Ping(context.Background()).Err())
	lock := client.Mutex("k", redislock.WithLease(long))
	hold := locked(t, lock)
	var all []*waiting
	for range 20 {
		all = append(all, wait(t, server, lock, "k"))
	}
	unlock(t, hold)
	for _, w := range all {
		unlock(t, w.granted())
	}
	ok(t, busy.Close())
}

func TestARequestIsRepeatedIfItsReplyNeverComes(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client := overWith(t, &redis.Options{Addr: proxy.Addr(), ReadTimeout: 500 * time.Millisecond})
	lock := client.Mutex("k", redislock.WithLease(long))
	proxy.HoldReply("LOCK.ACQUIRE")
	began := time.Now()
	hold := locked(t, lock)
	isTrue(t, proxy.Done() == 1 && server.Holds("k") == 1, "not asked again")
	isTrue(t, time.Since(began) < 2*time.Second+busy, "not by the caller's ReadTimeout: %v", time.Since(began))
	proxy.HoldReply("LOCK.RELEASE")
	unlock(t, hold)
	isTrue(t, proxy.Done() == 2 && server.IsFree("k"), "not free")
	proxy.HoldReply("LOCK.ACQUIRE")
	unlock(t, must(lock.TryLock(context.Background()))(t))
	isTrue(t, proxy.Done() == 3, "%d", proxy.Done())
}

func TestAnUnreachableServerEndsTheWaitInTime(t *testing.T) {
	t.Parallel()
	// Nothing listens there.
	client := over(t, "127.0.0.1:1")
	began := time.Now()
	_, err := client.Mutex("k").TryLock(context.Background())
	isTrue(t, err != nil && !errors.Is(err, redislock.ErrNotAcquired) && time.Since(began) < 2*time.Second+busy, "%v", err)
	began = time.Now()
	_, err = client.Mutex("k", redislock.WithWait(200*time.Millisecond)).Lock(context.Background())
	isTrue(t, err != nil && !errors.Is(err, redislock.ErrNotAcquired) && time.Since(began) < 2200*time.Millisecond,
		"%v", err)
	ctx, end := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer end()
	began = time.Now()
	_, err = client.Mutex("k").Lock(ctx)
	isTrue(t, errors.Is(err, context.DeadlineExceeded) && time.Since(began) < 1200*time.Millisecond, "%v", err)
	// A silent one.
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	proxy.Silence()
	began = time.Now()
	_, err = over(t, proxy.Addr()).Mutex("k", redislock.WithWait(200*time.Millisecond)).Lock(context.Background())
	isTrue(t, err != nil && time.Since(began) < 2200*time.Millisecond+busy, "%v after %v", err, time.Since(began))
	began = time.Now()
	_, err = over(t, proxy.Addr()).Mutex("k").TryLock(context.Background())
	isTrue(t, err != nil && time.Since(began) < 12*time.Second, "%v after %v", err, time.Since(began))
}

func TestAServerThatComesBackGrantsTheWaiter(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client := over(t, server.Addr())
	for _, kind := range []redislock.Option{redislock.WithLease(long), redislock.WithSession()} {
		hold := locked(t, client.Mutex("k", redislock.WithLease(long)))
		waiter := wait(t, server, client.Mutex("k", kind), "k")
		server.Kill()
		server.Run()
		unlock(t, waiter.granted())
		isTrue(t, errors.Is(hold.Unlock(context.Background()), redislock.ErrLost), "no loss")
	}
}

func TestAConnectionThatBreaksKeepsThePosition(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	there := over(t, server.Addr())
	hold := locked(t, there.Mutex("k", redislock.WithLease(long)))
	first := wait(t, server, over(t, proxy.Addr()).Mutex("k", redislock.WithToken("first")), "k")
	second := wait(t, server, there.Mutex("k", redislock.WithToken("second")), "k")
	asked := server.Calls("lock.acquire")
	proxy.Disconnect()
	servertest.Eventually(t, "asked again", func() bool { return server.Calls("lock.acquire") > asked })
	servertest.Eventually(t, "both, in order", func() bool {
		waiters := server.Waiters("k")
		return len(waiters) == 2 && waiters[0] == "first"
	})
	unlock(t, hold)
	unlock(t, first.granted())
	unlock(t, second.granted())
}

// connections returns the ids of the connections with these words in CLIENT LIST.
func connections(server *servertest.Server, words string) (ids []string) {
	for _, line := range strings.Split(server.Ask("CLIENT", "LIST").(string), "\n") {
		if id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " "); strings.Contains(line, words) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Over the shared connections: for requests and for messages.
func TestAWaitContinuesImmediatelyWhenItsConnectionEnds(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	there := over(t, server.Addr())
	hold := locked(t, there.Mutex("k", redislock.WithLease(long)))
	first := wait(t, server, over(t, server.Addr()).Mutex("k"), "k")
	for _, words := range []string{"cmd=lock.acquire", "sub=1"} {
		// In the middle of a request of 5 s.
		asked := server.Calls("lock.acquire")
		servertest.Eventually(t, "a slice", func() bool { return server.Calls("lock.acquire") > asked })
		began, queued := time.Now(), server.Waiters("k")
		second := wait(t, server, there.Mutex("k", redislock.WithToken(words)), "k")
		asked = server.Calls("lock.acquire")
		for _, id := range connections(server, words) {
			if id != connections(server, "flags=b")[0] {
				server.Ask("CLIENT", "KILL", "ID", id)
			}
		}
		servertest.Eventually(t, "asked again", func() bool { return server.Calls("lock.acquire") > asked })
		isTrue(t, time.Since(began) < 4*time.Second, "%s: at the end of the slice", words)
		servertest.Eventually(t, "both, in order", func() bool {
			return fmt.Sprint(server.Waiters("k")) == fmt.Sprint(append(queued, words))
		})
		second.end()
		_, _ = second.result()
	}
	unlock(t, hold)
	unlock(t, first.granted())
}

func TestAnUnconfirmedSubscriptionIsRepeated(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	hold := locked(t, over(t, server.Addr()).Mutex("k", redislock.WithLease(long)))
	proxy.HoldReply("subscribe")
	waiter := wait(t, server, over(t, proxy.Addr()).Mutex("k"), "k")
	isTrue(t, proxy.Done() == 1, "no reply was held")
	unlock(t, hold)
	unlock(t, waiter.granted())
}

func TestCloseEndsWhatWaits(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client := over(t, server.Addr())
	session := locked(t, client.Mutex("s", redislock.WithSession()))
	hold := locked(t, client.Mutex("k", redislock.WithAutoRenew()))
	waiter := wait(t, server, client.Mutex("k"), "k")
	for range 2 {
		ok(t, io.Closer(client).Close())
	}
	_, err := waiter.result()
	isTrue(t, errors.Is(err, redislock.ErrClosed), "%v", err)
	lost(t, session)
	_, err = client.Mutex("k").Lock(context.Background())
	isTrue(t, errors.Is(err, redislock.ErrClosed), "%v", err)
	isTrue(t, hold.Unlock(context.Background()) != nil, "released over nothing")
	servertest.Eventually(t, "nobody is queued", func() bool {
		return len(server.Waiters("k")) == 0 && server.IsFree("s")
	})
}

// Waits over separate connections, and pauses.
func TestCloseEndsEachWait(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	there := over(t, server.Addr(), redislock.WithLease(long))
	hold := locked(t, there.Mutex("k"))
	server.Ask("SET", "old", "an old client's")
	for name, lock := range map[string]func(*redislock.Client) *redislock.Lock{
		"session":  func(c *redislock.Client) *redislock.Lock { return c.Mutex("k", redislock.WithSession()) },
		"replicas": func(c *redislock.Client) *redislock.Lock { return c.Mutex("k", redislock.WithReplicas(1, long)) },
		"token":    func(c *redislock.Client) *redislock.Lock { return c.Mutex("k", redislock.WithToken("me")) },
		"pause":    func(c *redislock.Client) *redislock.Lock { return c.Mutex("old", redislock.WithMixed(time.Minute)) },
		"count":    func(c *redislock.Client) *redislock.Lock { return c.Mutex("n", redislock.WithReplicas(1, long)) },
	} {
		client := over(t, server.Addr())
		before := server.Calls("lock.acquire")
		waiter := begin(t, lock(client))
		servertest.Eventually(t, name, func() bool {
			if name == "count" {
				return strings.Contains(server.Ask("CLIENT", "LIST").(string), "cmd=wait ")
			}
			return len(server.Waiters("k")) == 1 || name == "pause" && server.Calls("lock.acquire") > before
		})
		client.Close()
		began := time.Now()
		_, err := waiter.result()
		isTrue(t, errors.Is(err, redislock.ErrClosed) && time.Since(began) < time.Second, "%s: %v after %v", name, err,
			time.Since(began))
		servertest.Eventually(t, "nobody is queued", func() bool { return len(server.Waiters("k")) == 0 })
	}
	unlock(t, hold)
}

// A handler locks within the request's context; its client goes away while it waits.
func TestCancelledRequestsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client := over(t, server.Addr(), redislock.WithLease(long))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = client.Mutex("user:"+r.FormValue("user")).Do(r.Context(), func(ctx context.Context) error {
			return pause(ctx, 5*time.Millisecond)
		})
	}))
	t.Cleanup(web.Close)
	var all sync.WaitGroup
	browser := &http.Client{Transport: &http.Transport{}}
	for number := range 300 {
		all.Add(1)
		go func() {
			defer all.Done()
			ctx, end := context.WithTimeout(context.Background(), time.Duration(1+number%60)*time.Millisecond)
			defer end()
			request, _ := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint(web.URL, "?user=", number%3), nil)
			if reply, err := browser.Do(request); err == nil {
				_ = reply.Body.Close()
			}
		}()
	}
	all.Wait()
	browser.CloseIdleConnections()
	web.Close() // It waits for its handlers.
	ok(t, client.Settled(context.Background()))
	for user := range 3 {
		isTrue(t, server.IsFree(fmt.Sprint("user:", user)), "somebody holds it, or waits")
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestALostMessageAtTheEndOfTheWait(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	hold := locked(t, over(t, server.Addr()).Mutex("k"))
	client := over(t, proxy.Addr())
	unlock(t, locked(t, client.Mutex("other")))
	queued := make(chan struct{}, 1)
	waiter := begin(t, client.Mutex("k", redislock.WithWait(2*time.Second), redislock.WithObserver(
		func(e redislock.Event) {
			if e.Kind == redislock.EventQueued {
				queued <- struct{}{}
			}
		})))
	<-queued
	began := time.Now()
	proxy.Silence()
	_, err := waiter.result()
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired) && time.Since(began) < 4*time.Second+busy, "%v", err)
	proxy.Speak()
	ok(t, client.Settled(context.Background()))
	isTrue(t, len(server.Waiters("k")) == 0, "somebody waits")
	unlock(t, hold)
}
