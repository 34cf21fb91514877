package tests

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

// large does not fit into the buffers of two sockets.
var large = strings.Repeat("x", 8<<20)

// Not in parallel with other tests, because a reply may take 5 s at most.
func TestLargeCommandsBesideSmallOnes(t *testing.T) {
	server := servertest.Start(t)
	client := overWith(t, &redis.Options{Addr: server.Addr(), ReadTimeout: long})
	ctx, all := context.Background(), sync.WaitGroup{}
	for number := range 20 {
		all.Add(1)
		go func() {
			defer all.Done()
			text := fmt.Sprint(number)
			if number == 10 {
				text += large
			}
			got, err := client.Mutex(fmt.Sprint("k", number)).Exec(ctx, "ECHO", text).Text()
			if err != nil || got != text {
				t.Errorf("%d: %.60v, %v", number, got, err)
			}
		}()
	}
	all.Wait()
	isTrue(t, len(connections(server, "cmd=lock.")) == 1, "%q", connections(server, "cmd=lock."))
}

// Nobody reads what the client writes.
func TestALargeCommandDelaysNoEndOfAContext(t *testing.T) {
	proxy := servertest.NewProxy(t, servertest.Start(t))
	client := over(t, proxy.Addr())
	held := locked(t, client.Mutex("k", redislock.WithLease(long)))
	proxy.Silence()
	for _, exec := range []func(ctx context.Context) error{
		func(ctx context.Context) error { return held.Exec(ctx, "ECHO", large).Err() },
		func(ctx context.Context) error { return held.Exec(ctx, "ECHO", "behind the large one").Err() },
	} {
		ctx, end := context.WithTimeout(context.Background(), 300*time.Millisecond)
		began := time.Now()
		err := exec(ctx)
		end()
		isTrue(t, errors.Is(err, context.DeadlineExceeded) && time.Since(began) < busy, "%v after %v", err, time.Since(began))
	}
	proxy.Speak()
	unlock(t, held)
}

func TestALateReplyIsNotThatOfTheNextRequest(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	hold := locked(t, over(t, proxy.Addr()).Mutex("k", redislock.WithLease(long)))
	before := connections(server, "cmd=lock.")
	for number := range 10 {
		proxy.Packets()
		proxy.SplitRequest("*")
		ctx, end := context.WithCancel(context.Background())
		late := make(chan error)
		go func() { late <- hold.Exec(ctx, "ECHO", "late").Err() }()
		servertest.Eventually(t, "the command on its way", func() bool {
			return strings.Contains(strings.Join(proxy.Packets(), ""), "late")
		})
		end()
		isTrue(t, <-late == context.Canceled, "a reply")
		var all sync.WaitGroup
		for i := range 5 {
			all.Add(1)
			go func() {
				defer all.Done()
				text := fmt.Sprint(number, " ", i)
				if got, err := hold.Exec(context.Background(), "ECHO", text).Text(); got != text {
					t.Errorf("%q: %q, %v", text, got, err)
				}
			}()
		}
		time.Sleep(5 * time.Millisecond) // Some of them are pending.
		proxy.Speak()
		all.Wait()
	}
	isTrue(t, fmt.Sprint(connections(server, "cmd=lock.")) == fmt.Sprint(before), "another connection")
	unlock(t, hold)
}

// Its outcome would be unknown.
func TestNothingIsSentForAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	hold := locked(t, over(t, proxy.Addr()).Mutex("k", redislock.WithLease(long)))
	proxy.Packets()
	ctx, end := context.WithCancel(context.Background())
	end()
	for range 100 {
		err := hold.Exec(ctx, "INCR", "n").Err()
		isTrue(t, errors.Is(err, context.Canceled) && errors.Is(err, redislock.ErrNotRun), "%v", err)
	}
	isTrue(t, len(proxy.Packets()) == 0 && counted(server) == "", "sent")
	unlock(t, hold)
}

func TestAContextThatEndsDuringItsUnlock(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	events := make(chan redislock.EventKind, 10)
	client := over(t, proxy.Addr(), redislock.WithLease(long), redislock.WithObserver(
		func(e redislock.Event) { events <- e.Kind }))
	for name, option := range map[string]redislock.Option{"lease": redislock.WithoutRenewal(),
		"renewed": redislock.WithAutoRenew(), "session": redislock.WithSession()} {
		for _, isLost := range []bool{false, true} {
			hold := locked(t, client.Mutex("k", option))
			isTrue(t, <-events == redislock.EventGranted, "not granted")
			if isLost {
				server.Ask("DEL", "k")
			}
			unlock(t, locked(t, client.Mutex("connected")))
			_, _ = <-events, <-events
			calls := server.Calls("lock.release")
			// On its way when the context ends, and its reply comes within the second after that.
			proxy.SplitRequest("*")
			ctx, end := context.WithTimeout(context.Background(), 50*time.Millisecond)
			time.AfterFunc(150*time.Millisecond, proxy.Speak)
			err := hold.Unlock(ctx)
			end()
			isTrue(t, isLost == errors.Is(err, redislock.ErrLost) && (isLost || err == nil), "%s: %v", name, err)
			isTrue(t, isLost == (<-events == redislock.EventLost), "%s: another event", name)
			isTrue(t, server.Calls("lock.release") == calls+1, "%s: sent twice", name)
		}
		// It comes later.
		hold := locked(t, client.Mutex("k", option))
		unlock(t, locked(t, client.Mutex("connected")))
		calls := server.Calls("lock.release")
		proxy.SplitRequest("*")
		ctx, end := context.WithTimeout(context.Background(), 50*time.Millisecond)
		began := time.Now()
		err := hold.Unlock(ctx)
		end()
		isTrue(t, errors.Is(err, context.DeadlineExceeded) && time.Since(began) < time.Second+busy, "%s: %v after %v", name,
			err, time.Since(began))
		proxy.Speak()
		ok(t, client.Settled(context.Background()))
		isTrue(t, server.IsFree("k") && server.Calls("lock.release") == calls+1, "%s: held, or sent twice", name)
		for len(events) > 0 {
			<-events
		}
	}
}

// Each of them waits for the others of the owner, and not for one that waits for it.
func TestGoroutinesThatShareAnOwnerDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr(), redislock.WithLease(long)), context.Background()
	first := locked(t, client.Reentrant("r"))
	var all sync.WaitGroup
	for range 10 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 20 {
				hold, err := client.Reentrant("r", redislock.AsOwnerOf(first)).Lock(ctx)
				if err == nil {
					err = hold.Unlock(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		t.Fatal("blocked")
	}
	isTrue(t, server.Holds("r") == 1, "%d holds", server.Holds("r"))
	unlock(t, first)
}

func TestLocksOverTLSInBothProtocols(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	web := httptest.NewTLSServer(nil) // For its certificate.
	t.Cleanup(web.Close)
	listener := must(tls.Listen("tcp", "127.0.0.1:0", web.TLS))(t)
	var running sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	pass := func(from, to net.Conn) {
		defer running.Done()
		_, _ = io.Copy(to, from)
		_, _ = from.Close(), to.Close()
	}
	running.Add(1)
	go func() {
		defer running.Done()
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", server.Addr())
			if err != nil {
				_ = conn.Close()
				continue
			}
			running.Add(2)
			go pass(conn, there)
			go pass(there, conn)
		}
	}()
	for _, protocol := range []int{2, 3} {
		client := overWith(t, &redis.Options{Addr: listener.Addr().String(), Protocol: protocol,
			TLSConfig: web.Client().Transport.(*http.Transport).TLSClientConfig})
		hold := locked(t, client.Mutex("k", redislock.WithLease(long)))
		waiter := wait(t, server, client.Mutex("k", redislock.WithSession()), "k")
		got := must(hold.Exec(context.Background(), "ECHO", large[:1<<20]).Text())(t)
		isTrue(t, got == large[:1<<20], "another text")
		info := must(client.Mutex("k").Info(context.Background()))(t)
		isTrue(t, info.Waiters == 1 && info.Holders[0].Owner == hold.Token(), "%+v", info)
		unlock(t, hold)
		session := waiter.granted()
		for _, id := range connections(server, "cmd=lock.") {
			server.Ask("CLIENT", "KILL", "ID", id)
		}
		lost(t, session) // Its connection is idle.
	}
}
