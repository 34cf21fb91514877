package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
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

func TestTheOtherLockTypes(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	// Reentrant only if requested.
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

	// Concurrent readers, an upgrade, a downgrade.
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
		client.Mutex("k", redislock.WithPermits(1)), client.Mutex("k", redislock.WithToken("")),
		client.Mutex("k", redislock.WithToken(strings.Repeat("t", 1025))), client.Mutex("r", redislock.AsOwnerOf(hold)),
		client.RW("r").Read(redislock.AsOwnerOf(hold)), client.Reentrant("other", redislock.AsOwnerOf(hold)),
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
	inTime(t, 300*time.Millisecond, redislock.ErrNotAcquired, func() error {
		_, err := client.Mutex("k", redislock.WithWait(300*time.Millisecond)).Lock(context.Background())
		return err
	})
	inTime(t, 300*time.Millisecond, context.DeadlineExceeded, func() error {
		ctx, end := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer end()
		_, err := lock.Lock(ctx)
		return err
	})
	waiter := wait(t, server, lock, "k")
	unlock(t, hold)
	unlock(t, waiter.granted())
}

func TestAWaitContinuesWithItsNextRequest(t *testing.T) {
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

func TestPositionKeptOverShortSockets(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client := over(t, server.Addr())
	short := overWith(t, &redis.Options{Addr: server.Addr(), ReadTimeout: 600 * time.Millisecond})
	// No wait blocks a socket: its result is a message (NOTIFY), also with a session, and each of its requests lasts 5 s.
	for _, kind := range []redislock.Option{redislock.WithSession(), redislock.WithLease(long)} {
		hold := locked(t, client.Mutex("k", redislock.WithLease(long)))
		early := wait(t, server, short.Mutex("k", redislock.WithLease(long), kind, redislock.WithToken("early")), "k")
		late := wait(t, server, client.Mutex("k", redislock.WithLease(long), redislock.WithToken("late")), "k")
		asked, began := server.Calls("lock.acquire"), time.Now()
		servertest.Eventually(t, "more slices", func() bool { return server.Calls("lock.acquire") >= asked+4 })
		isTrue(t, time.Since(began) > 8*time.Second, "slices are cut by the time-out of a socket: %v", time.Since(began))
		servertest.Eventually(t, "both, in order", func() bool {
			return slices.Equal(server.Waiters("k"), []string{"early", "late"})
		})
		unlock(t, hold)
		first := early.granted()
		isTrue(t, !late.isOver(), "overtaken")
		unlock(t, first)
		unlock(t, late.granted())
	}
}

func TestLostReplyOfAcquire(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client := over(t, proxy.Addr())
	for _, after := range []int{0, 3} {
		var holds []*redislock.Hold
		cut := func(lock *redislock.Lock, key string, count int64) {
			t.Helper()
			done := proxy.Done()
			proxy.CutReply(".ACQUIRE", after)
			holds = append(holds, locked(t, lock))
			isTrue(t, proxy.Done() == done+1, "no reply was cut")
			isTrue(t, len(server.Holders(key)) == 1 && server.Holds(key) == count, "%v", server.Holders(key))
		}
		cut(client.Mutex("k"), "k", 1)
		cut(client.Reentrant("r"), "r", 1)
		cut(client.Reentrant("r", redislock.AsOwnerOf(holds[1])), "r", 2)
		cut(client.Semaphore("s", 5, redislock.WithPermits(2)), "s", 2)
		cut(client.RW("rw").Read(), "rw", 1)
		cut(client.Multi([]string{"a", "b"}), "a", 1)
		cut(client.Mutex("session", redislock.WithSession()), "session", 1)
		for _, hold := range holds {
			unlock(t, hold)
		}
		proxy.CutReply(".ACQUIRE", after)
		unlock(t, must(client.Mutex("k").TryLock(context.Background()))(t))
		isTrue(t, server.Ask("DBSIZE") == int64(0), "something is left")
	}
}

func TestLostMessageOfAGrant(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	lock := over(t, proxy.Addr()).Mutex("k", redislock.WithLease(long))
	hold := locked(t, over(t, server.Addr()).Mutex("k", redislock.WithLease(long)))
	waiter := wait(t, server, lock, "k")
	proxy.Silence()
	unlock(t, hold)
	servertest.Eventually(t, "the grant", func() bool { return server.Holds("k") == 1 && len(server.Waiters("k")) == 0 })
	proxy.Disconnect() // The message is lost with its connection.
	proxy.Speak()
	unlock(t, waiter.granted())
	isTrue(t, server.IsFree("k"), "not free")
}

func TestLostReplyOfRelease(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client := over(t, proxy.Addr())
	hold := locked(t, client.Mutex("k"))
	proxy.CutReply("LOCK.RELEASE", 0)
	unlock(t, hold)
	isTrue(t, proxy.Done() == 1 && server.IsFree("k"), "not free")
	holds := []*redislock.Hold{locked(t, client.Reentrant("r"))}
	for range 2 {
		holds = append(holds, locked(t, client.Reentrant("r", redislock.AsOwnerOf(holds[0]))))
	}
	for _, left := range []int64{2, 1, 0} {
		proxy.CutReply("RLOCK.RELEASE", 0)
		unlock(t, holds[left])
		isTrue(t, server.Holds("r") == left, "%d", server.Holds("r"))
	}
	isTrue(t, proxy.Done() == 4, "%d", proxy.Done())
	// Releasing a lock that was lost before never succeeds, even if more replies are lost.
	hold = locked(t, client.Mutex("k"))
	server.Break("k")
	isTrue(t, errors.Is(hold.Unlock(context.Background()), redislock.ErrLost), "no loss")
	hold = locked(t, client.Mutex("k", redislock.WithLease(50*time.Millisecond)))
	lost(t, hold)
	servertest.Eventually(t, "the lease's end", func() bool { return server.IsFree("k") })
	proxy.CutReply("LOCK.RELEASE", 0)
	isTrue(t, errors.Is(hold.Unlock(context.Background()), redislock.ErrLost), "no loss")
}

func role(server *servertest.Server) string {
	reply, err := server.Admin.Do(context.Background(), "ROLE").Slice()
	if err != nil {
		return ""
	}
	return reply[0].(string)
}

func TestFailoverWhileWaiting(t *testing.T) {
	t.Parallel()
	primary := servertest.Start(t)
	replica := primary.Replica()
	sentinel := servertest.Sentinel(t, primary)
	client := of(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main",
		SentinelAddrs: []string{"127.0.0.1:1", sentinel.Addr()}}))
	lock := client.Mutex("k", redislock.WithLease(long))
	hold := locked(t, lock)
	waiter := wait(t, primary, lock, "k")
	session := wait(t, primary, client.Mutex("k", redislock.WithLease(long), redislock.WithSession()), "k")
	servertest.Eventually(t, "the lock at the replica", func() bool { return !replica.IsFree("k") })
	// Sentinel refuses until it has seen the replica's INFO.
	servertest.Eventually(t, "a failover that sentinel agrees to", func() bool {
		err := sentinel.Admin.Do(context.Background(), "SENTINEL", "FAILOVER", "main").Err()
		isTrue(t, err == nil || strings.Contains(err.Error(), "NOGOODSLAVE") || strings.Contains(err.Error(), "INPROG"),
			"%v", err)
		return err == nil
	})
	servertest.Eventually(t, "a new primary", func() bool { return role(replica) == "master" })
	servertest.Eventually(t, "the old one is a replica", func() bool { return role(primary) == "slave" })
	servertest.Eventually(t, "the same waiters at the new primary", func() bool { return len(replica.Waiters("k")) == 2 })
	fence := hold.Fence()
	unlock(t, hold)
	for range 2 {
		select {
		case <-waiter.done:
			next := waiter.granted()
			isTrue(t, next.Fence() > fence, "%d", next.Fence())
			unlock(t, next)
			waiter.done = nil
		case <-session.done:
			unlock(t, session.granted())
			session.done = nil
		case <-time.After(long):
			t.Fatal("not granted")
		}
	}
	unknown := of(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "other",
		SentinelAddrs: []string{sentinel.Addr()}}))
	_, err := unknown.Mutex("k").Lock(context.Background())
	isTrue(t, err != nil && strings.Contains(err.Error(), "sentinel"), "%v", err)
}

func TestClusterRedirectWhileWaiting(t *testing.T) {
	t.Parallel()
	nodes := servertest.Cluster(t)
	client := of(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr(), nodes[1].Addr()}}))
	const slot = 7629
	lock := client.Mutex("k", redislock.WithLease(long))
	hold := locked(t, lock)
	waiter := wait(t, nodes[0], lock, "k")
	session := wait(t, nodes[0], client.Mutex("k", redislock.WithLease(long), redislock.WithSession()), "k")
	ids := [2]any{nodes[0].Ask("CLUSTER", "MYID"), nodes[1].Ask("CLUSTER", "MYID")}
	nodes[1].Ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
	nodes[0].Ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
	nodes[0].Ask("MIGRATE", "127.0.0.1", nodes[1].Port, "k", 0, 5000)
	waitersThere := func() int {
		pipe := nodes[1].Admin.Pipeline()
		pipe.Do(context.Background(), "ASKING")
		found := pipe.Do(context.Background(), "LOCK.WAITERS", "k")
		_, _ = pipe.Exec(context.Background())
		waiters, _ := found.Slice()
		return len(waiters)
	}
	servertest.Eventually(t, "the waiters at the importing node", func() bool { return waitersThere() == 2 })
	for _, node := range []*servertest.Server{nodes[1], nodes[0]} {
		node.Ask("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
	}
	servertest.Eventually(t, "the waiters at the new node", func() bool { return len(nodes[1].Waiters("k")) == 2 })
	unlock(t, hold)
	for range 2 {
		select {
		case <-waiter.done:
			unlock(t, waiter.granted())
			waiter.done = nil
		case <-session.done:
			unlock(t, session.granted())
			session.done = nil
		case <-time.After(long):
			t.Fatal("not granted")
		}
	}
	// The slot comes back to the node, which has ended its subscription. Its epoch must be above that of the other node,
	// or a late packet of that node would take the slot again.
	servertest.Eventually(t, "the epoch of the other node", func() bool {
		return epochOf(t, nodes[0], ids[1]) == epochOf(t, nodes[1], ids[1])
	})
	nodes[0].Ask("CLUSTER", "BUMPEPOCH")
	for _, node := range []*servertest.Server{nodes[0], nodes[1]} {
		node.Ask("CLUSTER", "SETSLOT", slot, "NODE", ids[0])
	}
	hold = locked(t, lock)
	again := wait(t, nodes[0], lock, "k")
	asked := nodes[0].Calls("lock.acquire")
	unlock(t, hold)
	unlock(t, again.granted())
	isTrue(t, nodes[0].Calls("lock.acquire") == asked, "the grant was not reported")
	both := locked(t, client.Multi([]string{"{k}1", "{k}2"}))
	ok(t, both.Exec(context.Background(), "SET", "{k}3", "v").Err())
	unlock(t, both)
	_, err := client.Multi([]string{"k", "x"}).Lock(context.Background())
	isTrue(t, err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT"), "%v", err)
	// Keys of both nodes, and a wait on each.
	for _, key := range []string{"x", "foo", "with } in it", "{tag}1"} {
		owner := nodes[0]
		if _, err := owner.Admin.Do(context.Background(), "EXISTS", key).Result(); err != nil {
			owner = nodes[1]
		}
		hold := locked(t, client.Mutex(key))
		next := wait(t, owner, client.Mutex(key), key)
		unlock(t, hold)
		unlock(t, next.granted())
	}
}

// epochOf returns the configuration epoch of a node, as another node knows it.
func epochOf(t *testing.T, node *servertest.Server, id any) string {
	for _, line := range strings.Split(node.Ask("CLUSTER", "NODES").(string), "\n") {
		if words := strings.Fields(line); len(words) > 6 && words[0] == id {
			return words[6]
		}
	}
	t.Fatalf("%v is unknown", id)
	return ""
}

func TestCancellationLeavesNothing(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	for _, kind := range []redislock.Option{redislock.WithLease(long), redislock.WithSession()} {
		client := over(t, proxy.Addr())
		lock := client.Mutex("k", redislock.WithLease(long), kind)
		hold := locked(t, over(t, server.Addr()).Mutex("k", redislock.WithLease(long)))
		cancels := server.Calls("lock.cancel")
		queued := wait(t, server, lock, "k")
		queued.end()
		_, err := queued.result()
		isTrue(t, err == context.Canceled && len(server.Waiters("k")) == 0, "%v %v", err, server.Waiters("k"))
		isTrue(t, server.Calls("lock.cancel") == cancels+1, "%d", server.Calls("lock.cancel"))
		// The grant is on its way.
		onItsWay := wait(t, server, lock, "k")
		proxy.Silence()
		unlock(t, hold)
		servertest.Eventually(t, "the grant", func() bool { return server.Holds("k") == 1 && len(server.Waiters("k")) == 0 })
		onItsWay.end()
		began := time.Now()
		_, err = onItsWay.result()
		isTrue(t, err == context.Canceled && time.Since(began) < time.Second+busy, "%v %v", err, time.Since(began))
		proxy.Speak()
		servertest.Eventually(t, "a free lock", func() bool { return server.IsFree("k") })
		ok(t, client.Settled(context.Background()))
		// Before anything was sent.
		ended, end := context.WithCancel(context.Background())
		end()
		asked := server.Calls("lock.acquire")
		_, err = lock.Lock(ended)
		isTrue(t, err == context.Canceled && server.Calls("lock.acquire") == asked, "%v", err)
	}
	// An earlier hold is kept.
	client := over(t, server.Addr())
	reader := locked(t, client.RW("w").Read())
	other := locked(t, client.RW("w").Read())
	upgrade := wait(t, server, client.RW("w").Write(redislock.AsOwnerOf(reader)), "w")
	upgrade.end()
	_, err := upgrade.result()
	isTrue(t, err == context.Canceled && len(server.Holders("w")) == 2 && len(server.Waiters("w")) == 0, "%v", err)
	unlock(t, reader)
	unlock(t, other)
}

func TestRenewalStopsWithTheLock(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client := over(t, server.Addr())
	lock := client.Mutex("k", redislock.WithLease(3*time.Second), redislock.WithAutoRenew())
	hold := locked(t, lock)
	servertest.Eventually(t, "renewals for longer than the lease", func() bool { return server.Calls("lock.renew") >= 4 })
	left, _ := hold.Remaining()
	isTrue(t, !hold.IsLost() && left > 0 && left <= 3*time.Second, "%v", left)
	unlock(t, hold)
	isTrue(t, server.IsFree("k") && hold.Context().Err() == context.Canceled, "not free")
	renewals := server.Calls("lock.renew")
	// A hold that the program forgets.
	func() { locked(t, lock) }()
	servertest.Eventually(t, "a free lock", func() bool {
		runtime.GC()
		return server.IsFree("k")
	})
	isTrue(t, server.Calls("lock.renew") >= renewals, "fewer")
	renewals = server.Calls("lock.renew")
	time.Sleep(2 * time.Second)
	isTrue(t, server.Calls("lock.renew") == renewals, "still renewed")
}

func TestLossIsReported(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	var events []redislock.Event
	var reported = make(chan redislock.Event, 100)
	client := over(t, server.Addr(), redislock.WithObserver(func(e redislock.Event) {
		if e.Kind == redislock.EventLost {
			reported <- e
		}
	}))
	ctx := context.Background()
	hold := locked(t, client.Mutex("k", redislock.WithLease(6*time.Second), redislock.WithAutoRenew()))
	server.Break("k")
	lost(t, hold)
	left, _ := hold.Remaining()
	isTrue(t, left > 0, "a renewal reports it, before the deadline")
	isTrue(t, errors.Is(hold.Unlock(ctx), redislock.ErrLost), "no loss")
	// By the local clock, without a message from the server.
	began := time.Now()
	hold = locked(t, client.Mutex("k", redislock.WithLease(300*time.Millisecond)))
	server.Ask("PEXPIRE", "k", 60_000) // As if the server's clock stood still: it replies 1 to the release.
	lost(t, hold)
	isTrue(t, time.Since(began) >= 300*time.Millisecond && time.Since(began) < 300*time.Millisecond+busy,
		"%v", time.Since(began))
	isTrue(t, errors.Is(hold.Unlock(ctx), redislock.ErrLost) && server.IsFree("k"), "no loss")
	// READ is lost while WRITE waits.
	reader := locked(t, client.RW("w").Read(redislock.WithLease(long)))
	other := locked(t, over(t, server.Addr()).RW("w").Read())
	upgrade := wait(t, server, client.RW("w").Write(redislock.AsOwnerOf(reader)), "w")
	server.Ask("LOCK.BREAK", "w", "OWNER", reader.Token())
	unlock(t, other)
	_, err := upgrade.result()
	isTrue(t, errors.Is(err, redislock.ErrLost), "%v", err)
	servertest.Eventually(t, "WRITE is given back", func() bool { return server.IsFree("w") })
	isTrue(t, errors.Is(reader.Unlock(ctx), redislock.ErrLost), "no loss")
	// The server is gone.
	gone := servertest.Start(t)
	away := over(t, gone.Addr(), redislock.WithObserver(func(e redislock.Event) {
		if e.Kind == redislock.EventLost {
			reported <- e
		}
	}))
	hold = locked(t, away.Mutex("k", redislock.WithLease(time.Second), redislock.WithAutoRenew()))
	gone.Kill()
	began = time.Now()
	lost(t, hold)
	isTrue(t, time.Since(began) < time.Second+busy, "%v", time.Since(began))
	for range 4 {
		select {
		case event := <-reported:
			events = append(events, event)
		case <-time.After(long):
			t.Fatalf("%v", events)
		}
	}
	isTrue(t, len(reported) == 0, "reported twice")
}

func TestSession(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	hold := locked(t, client.Mutex("k", redislock.WithLease(1500*time.Millisecond), redislock.WithSession()))
	id := server.Holders("k")[0]["session"]
	isTrue(t, id != int64(0), "no session")
	time.Sleep(4 * time.Second) // Longer than its lease.
	isTrue(t, !hold.IsLost() && !server.IsFree("k") && server.Calls("lock.renew") == 0, "lost, or renewed by the client")
	unlock(t, hold)
	servertest.Eventually(t, "its connection is closed", func() bool {
		return !strings.Contains(server.Ask("CLIENT", "LIST").(string), fmt.Sprintf("id=%v ", id))
	})
	hold = locked(t, client.Mutex("k", redislock.WithLease(600*time.Second), redislock.WithSession()))
	began := time.Now()
	server.Ask("CLIENT", "KILL", "ID", server.Holders("k")[0]["session"])
	lost(t, hold)
	isTrue(t, time.Since(began) < 100*time.Millisecond+busy, "%v", time.Since(began))
	servertest.Eventually(t, "a free lock", func() bool { return server.IsFree("k") })
	isTrue(t, errors.Is(hold.Unlock(ctx), redislock.ErrLost), "no loss")
	// A silent connection: a third of the lease, and 5 s.
	proxy := servertest.NewProxy(t, server)
	hold = locked(t, over(t, proxy.Addr()).Mutex("k", redislock.WithLease(900*time.Millisecond), redislock.WithSession()))
	proxy.Silence()
	began = time.Now()
	lost(t, hold)
	isTrue(t, time.Since(began) < 300*time.Millisecond+5*time.Second+busy, "%v", time.Since(began))
	proxy.Speak()
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	server.Replica()
	client, ctx := over(t, server.Addr()), context.Background()
	unlock(t, locked(t, client.Mutex("k", redislock.WithReplicas(1, long))))
	isTrue(t, server.Calls("wait") == 1, "%d", server.Calls("wait"))
	_, err := client.Mutex("k", redislock.WithReplicas(2, 50*time.Millisecond)).Lock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrNotReplicated) && server.IsFree("k"), "%v", err)
	unlock(t, locked(t, client.Mutex("k", redislock.WithReplicas(1, long), redislock.WithSession())))
}

func TestExec(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	ctx := context.Background()
	for _, protocol := range []int{2, 3} {
		client := overWith(t, &redis.Options{Addr: server.Addr(), Protocol: protocol})
		hold := locked(t, client.Mutex("k"))
		isTrue(t, must(hold.Exec(ctx, "SET", "v", "held").Text())(t) == "OK", "not OK")
		isTrue(t, must(hold.Exec(ctx, "GET", "v").Text())(t) == "held", "not held")
		isTrue(t, hold.Exec(ctx, "GET", "nothing").Err() == redis.Nil, "not nil")
		err := hold.Exec(ctx, "INCR", "v").Err()
		isTrue(t, err != nil && strings.Contains(err.Error(), "not an integer"), "%v", err)
		err = hold.Exec(ctx, "HGET", "v", "f").Err()
		isTrue(t, err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE") && !hold.IsLost(), "%v", err)
		server.Ask("HSET", "h", "a", "b")
		reply := must(hold.Exec(ctx, "HGETALL", "h").Result())(t)
		_, isMap := reply.(map[any]any)
		isTrue(t, isMap == (protocol == 3), "%T", reply)
		server.Break("k")
		err = hold.Exec(ctx, "SET", "v", "lost").Err()
		isTrue(t, errors.Is(err, redislock.ErrLost) && hold.IsLost() && server.Ask("GET", "v") == "held", "%v", err)
	}
}

func TestServerWithoutTheModule(t *testing.T) {
	t.Parallel()
	client := over(t, servertest.Bare(t).Addr())
	for _, lock := range []*redislock.Lock{client.Mutex("k"), client.Reentrant("k"), client.RW("k").Read(),
		client.RW("k").Write(), client.Semaphore("k", 1), client.Multi([]string{"k"})} {
		_, err := lock.Lock(context.Background())
		isTrue(t, errors.Is(err, redislock.ErrNoModule) && strings.Contains(err.Error(), "loadmodule"), "%v", err)
		_, err = lock.TryLock(context.Background())
		isTrue(t, errors.Is(err, redislock.ErrNoModule), "%v", err)
	}
}

func TestKeyBecameSomethingElse(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	hold := locked(t, client.Mutex("k"))
	server.Ask("SET", "k", "else")
	isTrue(t, errors.Is(hold.Extend(ctx, time.Second), redislock.ErrLost) && hold.IsLost(), "no loss")
	isTrue(t, errors.Is(hold.Renew(ctx, time.Second), redislock.ErrLost), "no loss")
	isTrue(t, errors.Is(hold.Unlock(ctx), redislock.ErrLost) && server.Ask("GET", "k") == "else", "no loss")
	for _, lock := range []func(context.Context) (*redislock.Hold, error){
		client.Mutex("k").Lock, client.Mutex("k").TryLock,
	} {
		_, err := lock(ctx)
		isTrue(t, errors.Is(err, redislock.ErrWrongType) && strings.Contains(err.Error(), "is a string"), "%v", err)
	}
	server.Ask("DEL", "k")
	hold = locked(t, client.Mutex("k"))
	_, err := client.Reentrant("k").Lock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrWrongKind), "%v", err)
	// While it waits.
	waiter := wait(t, server, client.Mutex("k"), "k")
	server.Ask("SET", "k", "else")
	_, err = waiter.result()
	isTrue(t, errors.Is(err, redislock.ErrWrongType), "%v", err)
	isTrue(t, errors.Is(hold.Unlock(ctx), redislock.ErrLost), "no loss")
	// One of several: the others are released.
	both := locked(t, client.Multi([]string{"a", "b"}))
	server.Ask("SET", "a", "else")
	isTrue(t, errors.Is(both.Unlock(ctx), redislock.ErrLost) && server.IsFree("b"), "b is held")
}

func TestNoPolling(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client := over(t, server.Addr())
	lock := client.Mutex("k")
	hold := locked(t, lock)
	asked := server.Calls("lock.acquire")
	var all []*waiting
	began := time.Now()
	for range 100 {
		w := begin(t, lock)
		all = append(all, w)
	}
	servertest.Eventually(t, "a hundred waiters", func() bool { return len(server.Waiters("k")) == 100 })
	time.Sleep(time.Second)
	most := 100 * (1 + int(time.Since(began)/(5*time.Second)))
	isTrue(t, server.Calls("lock.acquire")-asked <= most, "%d", server.Calls("lock.acquire")-asked)
	for _, command := range []string{"lock.renew", "exists", "lock.held"} {
		isTrue(t, server.Calls(command) == 0, "%s", command)
	}
	server.Break("k")
	_ = hold.Unlock(context.Background())
	for _, w := range all {
		go func() {
			<-w.done
			_ = w.hold.Unlock(context.Background())
		}()
	}
	for _, w := range all {
		w.granted()
	}
	servertest.Eventually(t, "all are through", func() bool { return server.IsFree("k") })
	// The connection for requests, the one for messages, and the test's own.
	connected := strings.Count(server.Ask("CLIENT", "LIST").(string), "\n")
	isTrue(t, connected == 3, "%d connections", connected)
}

// The server knows owners, not goroutines: each Lock without WithToken is a different owner.
func TestADeadlockIsFoundByASharedToken(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client := over(t, server.Addr(), redislock.WithLease(long))
	for _, tokens := range [][]redislock.Option{{redislock.WithToken("one"), redislock.WithToken("two")},
		{redislock.WithLease(long), redislock.WithLease(long)}} {
		one, two := locked(t, client.Mutex("a", tokens[0])), locked(t, client.Mutex("b", tokens[1]))
		waiter := wait(t, server, client.Mutex("b", tokens[0]), "b")
		ctx, end := context.WithTimeout(context.Background(), 300*time.Millisecond)
		_, err := client.Mutex("a", tokens[1]).Lock(ctx)
		end()
		isDeadlock := two.Token() == "two"
		isTrue(t, errors.Is(err, redislock.ErrDeadlock) == isDeadlock, "%v", err)
		isTrue(t, errors.Is(err, context.DeadlineExceeded) != isDeadlock, "%v", err)
		unlock(t, two)
		unlock(t, waiter.granted())
		unlock(t, one)
	}
}

func TestEndsOfAWait(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	me := locked(t, client.Mutex("k", redislock.WithToken("me")))
	for _, kind := range []redislock.Option{redislock.WithLease(long), redislock.WithSession()} {
		waiter := wait(t, server, client.Mutex("k", redislock.WithToken("you"), kind), "k")
		server.Ask("LOCK.CANCEL", "k", "you")
		_, err := waiter.result()
		isTrue(t, errors.Is(err, redislock.ErrCancelled), "%v", err)
	}
	you := locked(t, client.Mutex("j", redislock.WithToken("you")))
	waiter := wait(t, server, client.Mutex("k", redislock.WithToken("you")), "k")
	_, err := client.Mutex("j", redislock.WithToken("me")).Lock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrDeadlock) && strings.Contains(err.Error(), "'you' waits for 'me' on 'k'"),
		"%v", err)
	server.Ask("CONFIG", "SET", "lock.max-waiters", 1)
	_, err = client.Mutex("k").Lock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrTooManyWaiters), "%v", err)
	unlock(t, me)
	unlock(t, waiter.granted())
	unlock(t, you)

	grace := servertest.Start(t, "--lock.grace", "600000")
	client = over(t, grace.Addr())
	_, err = client.Mutex("k").TryLock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired), "%v", err)
	waiter = wait(t, grace, client.Mutex("k"), "k")
	grace.Ask("CONFIG", "SET", "lock.grace", 0)
	hold := waiter.granted()
	grace.Ask("CONFIG", "SET", "min-replicas-to-write", 1)
	done := make(chan error, 1)
	go func() { done <- hold.Unlock(ctx) }()
	servertest.Eventually(t, "a refusal", func() bool {
		return strings.Contains(grace.Ask("INFO", "errorstats").(string), "errorstat_NOREPLICAS")
	})
	grace.Ask("CONFIG", "SET", "min-replicas-to-write", 0)
	ok(t, <-done)
}
