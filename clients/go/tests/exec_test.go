package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

// executable are locks of all types, the last one with a session.
func executable(client *redislock.Client) []*redislock.Lock {
	return []*redislock.Lock{client.Mutex("k"), client.Reentrant("r"), client.RW("rw").Read(), client.RW("rw").Write(),
		client.Semaphore("s", 3, redislock.WithPermits(2)), client.Multi([]string{"a", "b"}),
		client.Mutex("k", redislock.WithSession())}
}

func counted(server *servertest.Server) string {
	count, _ := server.Ask("GET", "n").(string)
	return count
}

func onlyTheCounterIsLeft(t testing.TB, server *servertest.Server) {
	t.Helper()
	servertest.Eventually(t, "the end of the hold", func() bool { return fmt.Sprint(server.Ask("KEYS", "*")) == "[n]" })
}

// executing runs Exec in a goroutine.
func executing(ctx context.Context, lock *redislock.Lock) chan *redis.Cmd {
	done := make(chan *redis.Cmd, 1)
	go func() { done <- lock.Exec(ctx, "INCR", "n") }()
	return done
}

func TestExecOfALockIsOnePacket(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client, ctx, number := over(t, proxy.Addr()), context.Background(), int64(0)
	unlock(t, locked(t, client.Mutex("connected")))
	proxy.Packets()
	for index, lock := range executable(client) {
		for _, exec := range []func(context.Context, ...any) *redis.Cmd{lock.Exec, lock.TryExec} {
			number++
			ran := must(exec(ctx, "INCR", "n").Int64())(t)
			isTrue(t, ran == number && fmt.Sprint(server.Ask("KEYS", "*")) == "[n]", "%d", ran)
			packets := proxy.Packets()
			packet := packets[len(packets)-1] // After those of a connection of its own.
			isTrue(t, len(packets) == 1 || index == 6, "%q", packets)
			for _, word := range []string{".ACQUIRE", "LOCK.EXEC", "INCR", ".RELEASE"} {
				isTrue(t, strings.Contains(packet, word), "%q", packet)
			}
			isTrue(t, !strings.Contains(packet, "BLOCK") && strings.Contains(packet, "SESSION") == (index == 6), "%q", packet)
		}
	}
	lock := client.Mutex("k")
	ok(t, lock.Exec(ctx, "HSET", "h", "f", 1).Err())
	isTrue(t, must(lock.Exec(ctx, "HGETALL", "h").Result())(t).(map[any]any)["f"] == "1", "not a map")
	isTrue(t, lock.Exec(ctx, "GET", "none").Err() == redis.Nil, "not nil")
	// The command's own error, including its own WRONGTYPE.
	for words, command := range map[string][]any{"WRONGTYPE": {"INCR", "h"}, "ERR unknown command": {"NOSUCH"}} {
		err := lock.Exec(ctx, command...).Err()
		isTrue(t, err != nil && strings.HasPrefix(err.Error(), words) && server.IsFree("k"), "%v", err)
		isTrue(t, !errors.Is(err, redislock.ErrNotRun), "%v", err)
	}
}

func TestExecWaitsItsTurnOrReportsNotGranted(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client, ctx := over(t, proxy.Addr(), redislock.WithTellHolder()), context.Background()
	for _, kind := range []redislock.Option{redislock.WithLease(long), redislock.WithSession()} {
		server.Ask("DEL", "n")
		hold := locked(t, over(t, server.Addr()).Mutex("k", redislock.WithLease(long)))
		lock := client.Mutex("k", kind)
		for _, command := range []*redis.Cmd{lock.TryExec(ctx, "INCR", "n"),
			client.Mutex("k", kind, redislock.WithWait(300*time.Millisecond)).Exec(ctx, "INCR", "n")} {
			refusal := (*redislock.NotAcquiredError)(nil)
			isTrue(t, errors.As(command.Err(), &refusal) && refusal.Holder == hold.Token(), "%v", command.Err())
			isTrue(t, errors.Is(command.Err(), redislock.ErrNotRun), "%v", command.Err())
			isTrue(t, strings.Contains(command.Err().Error(), hold.Token()), "%v", command.Err())
		}
		isTrue(t, len(server.Waiters("k")) == 0, "%v", server.Waiters("k"))
		running := executing(ctx, lock)
		servertest.Eventually(t, "a waiter", func() bool { return len(server.Waiters("k")) == 1 })
		isTrue(t, counted(server) == "", "it ran")
		proxy.Packets()
		unlock(t, hold)
		isTrue(t, must((<-running).Int64())(t) == 1 && server.IsFree("k"), "held")
		// After the grant, the command and the release in one packet.
		packets := proxy.Packets()
		isTrue(t, len(packets) == 1 && strings.Contains(packets[0], "LOCK.EXEC") &&
			strings.Contains(packets[0], "LOCK.RELEASE"), "%q", packets)
	}
}

func TestExecReportsThatTheLockWasLost(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client := over(t, proxy.Addr())
	for _, lose := range [][]any{{"LOCK.BREAK", "k"}, {"SET", "k", "something else"}} {
		// The packet arrives in two parts, and the lock is lost between them.
		proxy.SplitRequest("LOCK.EXEC")
		running := executing(context.Background(), client.Mutex("k"))
		servertest.Eventually(t, "the grant", func() bool { return len(server.Holders("k")) == 1 })
		server.Ask(lose...)
		proxy.Speak()
		err := (<-running).Err()
		isTrue(t, errors.Is(err, redislock.ErrLost) && errors.Is(err, redislock.ErrNotRun) && counted(server) == "", "%v",
			err)
	}
}

func TestExecSendsNoCommandTwice(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	number := 0
	// Before any reply, within that of the acquire, within that of the command: ":1\r\n" of the release follows it.
	for _, after := range []int{0, 3, -6} {
		for index := range executable(over(t, proxy.Addr())) {
			lock := executable(over(t, proxy.Addr()))[index]
			number++
			proxy.CutReply("LOCK.EXEC", after)
			began := time.Now()
			err := lock.Exec(context.Background(), "INCR", "n").Err()
			isTrue(t, err != nil && !errors.Is(err, redislock.ErrLost) && time.Since(began) < time.Second+busy, "%v", err)
			isTrue(t, !errors.Is(err, redislock.ErrNotRun), "it ran: %v", err)
			isTrue(t, proxy.Done() == number && counted(server) == fmt.Sprint(number), "%s", counted(server))
			onlyTheCounterIsLeft(t, server)
		}
	}
}

func TestExecReturnsItsReplyIfOnlyTheReleaseHasNone(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	for index := range executable(over(t, proxy.Addr())) {
		lock := executable(over(t, proxy.Addr()))[index]
		proxy.CutReply("LOCK.EXEC", -4)
		isTrue(t, must(lock.Exec(context.Background(), "INCR", "n").Int64())(t) == int64(index+1), "another reply")
		isTrue(t, proxy.Done() == index+1, "%d", proxy.Done())
		onlyTheCounterIsLeft(t, server)
	}
	// The release does not arrive.
	proxy = servertest.NewProxy(t, server)
	events := make(chan redislock.EventKind, 2)
	client := over(t, proxy.Addr(), redislock.WithLease(10*time.Minute), redislock.WithObserver(
		func(e redislock.Event) { events <- e.Kind }))
	proxy.SplitRequest("LOCK.RELEASE")
	running := executing(context.Background(), client.Mutex("k"))
	servertest.Eventually(t, "the command", func() bool { return counted(server) == "8" })
	isTrue(t, len(server.Holders("k")) == 1, "not held")
	servertest.Eventually(t, "its reply", func() bool { return strings.HasSuffix(proxy.Passed(), ":8\r\n") })
	proxy.Disconnect()
	proxy.Speak()
	isTrue(t, must((<-running).Int64())(t) == 8, "another reply")
	isTrue(t, <-events == redislock.EventGranted && <-events == redislock.EventLost, "reported as released")
	onlyTheCounterIsLeft(t, server)
}

func TestExecInPartLeavesNothing(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	for _, kind := range []redislock.Option{redislock.WithLease(10 * time.Minute), redislock.WithSession()} {
		proxy := servertest.NewProxy(t, server)
		lock := over(t, proxy.Addr()).Mutex("k", redislock.WithLease(10*time.Minute), kind)
		proxy.SplitRequest("LOCK.EXEC")
		running := executing(context.Background(), lock)
		servertest.Eventually(t, "the grant", func() bool { return len(server.Holders("k")) == 1 })
		if server.Holders("k")[0]["session"] != int64(0) {
			// Only the server can release it; no client can.
			server.Ask("ACL", "SETUSER", "default", "-lock.release")
		}
		proxy.Disconnect()
		proxy.Speak()
		isTrue(t, (<-running).Err() != nil, "no error")
		servertest.Eventually(t, "the end of the hold", func() bool { return server.IsFree("k") })
		isTrue(t, counted(server) == "", "it ran")
	}
}

func TestACancelledExecLeavesNothing(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	hold := locked(t, over(t, server.Addr()).Mutex("k", redislock.WithLease(long)))
	for _, kind := range []redislock.Option{redislock.WithLease(long), redislock.WithSession()} {
		ctx, end := context.WithCancel(context.Background())
		running := executing(ctx, over(t, proxy.Addr()).Mutex("k", kind))
		servertest.Eventually(t, "a waiter", func() bool { return len(server.Waiters("k")) == 1 })
		end()
		err := (<-running).Err()
		isTrue(t, errors.Is(err, context.Canceled) && errors.Is(err, redislock.ErrNotRun), "%v", err)
		isTrue(t, len(server.Waiters("k")) == 0, "still queued")
	}
	unlock(t, hold)
	isTrue(t, server.IsFree("k") && counted(server) == "", "something is left")
	// While its replies are on their way: they arrive when the caller no longer waits for the command.
	client := over(t, proxy.Addr())
	unlock(t, locked(t, client.Mutex("k")))
	for _, exec := range []func(context.Context, ...any) *redis.Cmd{client.Mutex("k").Exec,
		locked(t, client.Mutex("j")).Exec} {
		ctx, end := context.WithCancel(context.Background())
		commands := make(chan *redis.Cmd)
		before := counted(server)
		proxy.Packets()
		proxy.SplitRequest("*")
		go func() { commands <- exec(ctx, "INCR", "n") }()
		servertest.Eventually(t, "the command on its way", func() bool {
			return strings.Contains(strings.Join(proxy.Packets(), ""), "LOCK.EXEC")
		})
		end()
		command := <-commands
		proxy.Speak()
		servertest.Eventually(t, "the command", func() bool { return counted(server) != before })
		isTrue(t, command.Err() == context.Canceled, "%v", command.Err())
		ok(t, client.Settled(context.Background()))
		isTrue(t, server.IsFree("k"), "held")
	}
}

func TestExecKeepsWaitingAfterABrokenConnection(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	hold := locked(t, over(t, server.Addr()).Mutex("k", redislock.WithLease(long)))
	for _, kind := range []redislock.Option{redislock.WithLease(long), redislock.WithSession()} {
		running := executing(context.Background(), over(t, proxy.Addr()).Mutex("k", kind))
		servertest.Eventually(t, "a waiter", func() bool { return len(server.Waiters("k")) == 1 })
		asked := server.Calls("lock.acquire")
		proxy.Disconnect() // The command was not sent yet.
		servertest.Eventually(t, "the request again", func() bool { return server.Calls("lock.acquire") > asked })
		before := counted(server)
		unlock(t, hold)
		ok(t, (<-running).Err())
		isTrue(t, counted(server) != before && server.IsFree("k"), "not run")
		hold = locked(t, over(t, server.Addr()).Mutex("k", redislock.WithLease(long)))
	}
	unlock(t, hold)
}

func TestExecIsRepeatedIfNothingRan(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	proxy.SplitRequest("LOCK.EXEC")
	running := executing(context.Background(), over(t, proxy.Addr()).Mutex("k", redislock.WithLease(long)))
	servertest.Eventually(t, "the grant", func() bool { return len(server.Holders("k")) == 1 })
	server.Ask("CONFIG", "SET", "min-replicas-to-write", 1)
	proxy.Speak()
	servertest.Eventually(t, "refusals", func() bool {
		return strings.Contains(server.Ask("INFO", "errorstats").(string), "errorstat_NOREPLICAS:count=") &&
			!strings.Contains(server.Ask("INFO", "errorstats").(string), "errorstat_NOREPLICAS:count=2\r")
	})
	server.Ask("CONFIG", "SET", "min-replicas-to-write", 0)
	isTrue(t, must((<-running).Int64())(t) == 1 && server.IsFree("k"), "held")
	// In the grace it waits in the queue.
	grace := servertest.Start(t, "--lock.grace", "600000")
	running = executing(context.Background(), over(t, grace.Addr()).Mutex("k"))
	servertest.Eventually(t, "a waiter", func() bool { return len(grace.Waiters("k")) == 1 })
	grace.Ask("CONFIG", "SET", "lock.grace", 0)
	isTrue(t, must((<-running).Int64())(t) == 1 && grace.Calls("lock.acquire") == 2, "%d", grace.Calls("lock.acquire"))
}

func TestExecRefusesOptionsThatDoNotApply(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	hold := locked(t, client.Reentrant("r"))
	for _, lock := range []*redislock.Lock{client.Mutex("k", redislock.WithToken("mine")),
		client.Mutex("k", redislock.WithAtLeast(time.Second)), client.Mutex("k", redislock.WithReplicas(1, time.Second)),
		client.Semaphore("k", 3, redislock.WithSlot()), client.Reentrant("r", redislock.AsOwnerOf(hold))} {
		err := lock.Exec(ctx, "INCR", "n").Err()
		isTrue(t, errors.Is(err, redislock.ErrUsage) && errors.Is(err, redislock.ErrNotRun), "%v", err)
	}
	isTrue(t, errors.Is(client.Mutex("k").Exec(ctx).Err(), redislock.ErrUsage), "no command")
	isTrue(t, server.Ask("EXISTS", "k", "n") == int64(0), "something was sent")
	// Without a deadline a process that dies would leave the lock held indefinitely.
	left := must(client.Mutex("k", redislock.WithoutLease()).Exec(ctx, "PTTL", "k").Int64())(t)
	isTrue(t, left > 29_000, "%d", left)
}

func TestExecNextToOldClients(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr(), redislock.WithMixed(20*time.Millisecond)), context.Background()
	server.Ask("SET", "k", "an old client's")
	err := client.Mutex("k", redislock.WithWait(100*time.Millisecond)).Exec(ctx, "INCR", "n").Err()
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired), "%v", err)
	asked := server.Calls("lock.acquire")
	running := executing(ctx, client.Mutex("k"))
	servertest.Eventually(t, "some polls", func() bool { return server.Calls("lock.acquire") > asked+2 })
	server.Ask("DEL", "k")
	isTrue(t, must((<-running).Int64())(t) == 1, "not run")
}

func TestExecIsObserved(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	events := make(chan redislock.Event, 10)
	client := over(t, server.Addr(), redislock.WithObserver(func(e redislock.Event) { events <- e }))
	reported := func() (kinds []redislock.EventKind) {
		for len(events) > 0 {
			kinds = append(kinds, (<-events).Kind)
		}
		return kinds
	}
	ctx := context.Background()
	ok(t, client.Mutex("k").Exec(ctx, "INCR", "n").Err())
	kinds := reported()
	isTrue(t, slices.Equal(kinds, []redislock.EventKind{redislock.EventGranted, redislock.EventReleased}), "%v", kinds)
	hold := locked(t, over(t, server.Addr()).Mutex("k"))
	_ = client.Mutex("k", redislock.WithWait(100*time.Millisecond)).Exec(ctx, "INCR", "n")
	kinds = reported()
	isTrue(t, slices.Equal(kinds, []redislock.EventKind{redislock.EventQueued, redislock.EventNotGranted}), "%v", kinds)
	unlock(t, hold)
}

func TestExecFollowsASlotThatMoves(t *testing.T) {
	t.Parallel()
	nodes := servertest.Cluster(t)
	client := of(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr(), nodes[1].Addr()}}))
	ctx, lock := context.Background(), client.Mutex("k", redislock.WithLease(long))
	isTrue(t, must(lock.Exec(ctx, "INCR", "{k}n").Int64())(t) == 1, "not run")
	hold := locked(t, lock)
	running := make(chan *redis.Cmd, 1)
	go func() { running <- lock.Exec(ctx, "INCR", "{k}n") }()
	servertest.Eventually(t, "a waiter", func() bool { return len(nodes[0].Waiters("k")) == 1 })
	const slot = 7629
	ids := [2]any{nodes[0].Ask("CLUSTER", "MYID"), nodes[1].Ask("CLUSTER", "MYID")}
	nodes[1].Ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
	nodes[0].Ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
	nodes[0].Ask("MIGRATE", "127.0.0.1", nodes[1].Port, "", 0, 5000, "KEYS", "k", "{k}n")
	// ASKING before each command of the packet.
	isTrue(t, must(client.Mutex("{k}other").Exec(ctx, "INCR", "{k}n").Int64())(t) == 2, "not run")
	for _, node := range []*servertest.Server{nodes[1], nodes[0]} {
		node.Ask("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
	}
	servertest.Eventually(t, "a waiter at the new node", func() bool { return len(nodes[1].Waiters("k")) == 1 })
	unlock(t, hold)
	isTrue(t, must((<-running).Int64())(t) == 3, "not run")
	isTrue(t, must(lock.Exec(ctx, "INCR", "{k}n").Int64())(t) == 4, "not run")
	isTrue(t, nodes[0].Calls("incr") == 1 && nodes[1].Calls("incr") == 3, "run twice")
}

func TestExecAfterAWaitRunsWhereItWasGranted(t *testing.T) {
	t.Parallel()
	nodes := servertest.Cluster(t)
	client := of(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr(), nodes[1].Addr()}}))
	const slot = 7629
	nodes[0].Ask("SET", "{k}n", 0)
	ids := [2]any{nodes[0].Ask("CLUSTER", "MYID"), nodes[1].Ask("CLUSTER", "MYID")}
	nodes[1].Ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
	nodes[0].Ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
	nodes[0].Ask("MIGRATE", "127.0.0.1", nodes[1].Port, "{k}n", 0, 5000)
	hold := locked(t, client.Mutex("k", redislock.WithLease(long)))
	asked := nodes[1].Calls("lock.acquire")
	running := make(chan *redis.Cmd, 1)
	go func() { running <- client.Mutex("k").Exec(context.Background(), "INCR", "{k}n") }()
	servertest.Eventually(t, "a request", func() bool { return nodes[1].Calls("lock.acquire") > asked+1 })
	unlock(t, hold)
	select {
	case ran := <-running:
		isTrue(t, must(ran.Int64())(t) == 1, "not run")
	case <-time.After(30 * time.Second):
		t.Fatal("not run")
	}
	isTrue(t, nodes[0].Calls("incr") == 0, "run at the old node")
}

// moving returns a cluster whose slot of the key k moves to the second node, and a function that ends the move.
func moving(t testing.TB) (nodes [2]*servertest.Server, client *redislock.Client, arrive func()) {
	const slot = 7629
	nodes = servertest.Cluster(t)
	client = of(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr(), nodes[1].Addr()}}))
	ids := [2]any{nodes[0].Ask("CLUSTER", "MYID"), nodes[1].Ask("CLUSTER", "MYID")}
	nodes[1].Ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
	nodes[0].Ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
	return nodes, client, func() {
		nodes[0].Ask("MIGRATE", "127.0.0.1", nodes[1].Port, "", 0, 5000, "KEYS", "k", "{k}held")
		for _, node := range []*servertest.Server{nodes[1], nodes[0]} {
			node.Ask("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
		}
	}
}

// While a slot moves, neither node runs a command on two keys if one of them is missing.
func TestExecOnAMovingSlotReportsThatTheCommandDidNotRun(t *testing.T) {
	t.Parallel()
	nodes, client, arrive := moving(t)
	ctx := context.Background()
	// One lock is held at the node that loses the slot, and one is free.
	held := locked(t, client.Mutex("{k}held", redislock.WithLease(long)))
	within := func(exec func(context.Context, ...any) *redis.Cmd) func() error {
		return func() error {
			ctx, end := context.WithTimeout(ctx, 1500*time.Millisecond)
			defer end()
			return exec(ctx, "INCR", "{k}n").Err()
		}
	}
	for name, each := range map[string]struct {
		exec  func() error
		cause error
	}{
		"Exec":              {within(client.Mutex("k").Exec), context.DeadlineExceeded},
		"Exec of a session": {within(client.Mutex("k", redislock.WithSession()).Exec), context.DeadlineExceeded},
		"Hold.Exec":         {within(held.Exec), context.DeadlineExceeded},
		"Hold.Exec, lost": {func() error {
			brief := locked(t, client.Mutex("{k}brief", redislock.WithLease(time.Second)))
			return brief.Exec(ctx, "INCR", "{k}n").Err()
		}, redislock.ErrLost},
		"TryExec": {func() error { return client.Mutex("k").TryExec(ctx, "INCR", "{k}n").Err() }, nil},
		"Exec, WithWait": {func() error {
			return client.Mutex("k", redislock.WithWait(time.Second)).Exec(ctx, "INCR", "{k}n").Err()
		}, nil},
	} {
		before, err := redirections(nodes), each.exec()
		// The deadline may fall while a request is in flight, whose outcome is then unknown.
		for range 5 {
			if each.cause == context.DeadlineExceeded && !errors.Is(err, redislock.ErrNotRun) {
				before, err = redirections(nodes), each.exec()
			}
		}
		isTrue(t, errors.Is(err, redislock.ErrNotRun) && (each.cause == nil || errors.Is(err, each.cause)), "%s: %v", name,
			err)
		isTrue(t, each.cause == redislock.ErrLost || strings.Contains(err.Error(), "slot"), "%s: %v", name, err)
		var reply redis.Error
		isTrue(t, !errors.As(err, &reply), "%s: %v as the command's own error", name, err)
		// After pauses that grow to 250 ms: of a request, and of the cleanup.
		asked := redirections(nodes) - before
		isTrue(t, asked > 1 && asked < 60, "%s: %d redirections", name, asked)
	}
	ok(t, client.Settled(ctx))
	// It runs when the slot has arrived.
	running := map[string]chan *redis.Cmd{"Exec": make(chan *redis.Cmd, 1), "Hold.Exec": make(chan *redis.Cmd, 1)}
	before := redirections(nodes)
	go func() { running["Exec"] <- client.Mutex("k").Exec(ctx, "INCR", "{k}n") }()
	go func() { running["Hold.Exec"] <- held.Exec(ctx, "INCR", "{k}n") }()
	servertest.Eventually(t, "some redirections", func() bool { return redirections(nodes) > before+20 })
	arrive()
	for name, each := range running {
		isTrue(t, (<-each).Err() == nil, "%s: not run", name)
	}
	isTrue(t, nodes[1].Ask("GET", "{k}n") == "2", "%v", nodes[1].Ask("GET", "{k}n"))
	unlock(t, held)
	isTrue(t, nodes[1].IsFree("k") && nodes[1].IsFree("{k}held"), "held")
}

// redirections returns how often the nodes have redirected a request.
func redirections(nodes [2]*servertest.Server) (count int) {
	for _, node := range nodes {
		for _, code := range []string{"ASK", "TRYAGAIN"} {
			number := 0
			_, behind, _ := strings.Cut(node.Ask("INFO", "errorstats").(string), "errorstat_"+code+":count=")
			_, _ = fmt.Sscan(behind, &number)
			count += number
		}
	}
	return count
}
