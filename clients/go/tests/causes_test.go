package tests

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

// acquires are all ways to acquire a lock.
var acquires = map[string]func(ctx context.Context, client *redislock.Client, key string) error{
	"Lock": func(ctx context.Context, client *redislock.Client, key string) error {
		_, err := client.Mutex(key).Lock(ctx)
		return err
	},
	"TryLock": func(ctx context.Context, client *redislock.Client, key string) error {
		_, err := client.Mutex(key).TryLock(ctx)
		return err
	},
	"Do": func(ctx context.Context, client *redislock.Client, key string) error {
		return client.Mutex(key).Do(ctx, func(context.Context) error { return nil })
	},
	"session": func(ctx context.Context, client *redislock.Client, key string) error {
		_, err := client.Mutex(key, redislock.WithSession()).Lock(ctx)
		return err
	},
	"token": func(ctx context.Context, client *redislock.Client, key string) error {
		_, err := client.Mutex(key, redislock.WithToken("me")).Lock(ctx)
		return err
	},
	"replicas": func(ctx context.Context, client *redislock.Client, key string) error {
		_, err := client.Mutex(key, redislock.WithReplicas(1, time.Second)).Lock(ctx)
		return err
	},
	"WithWait": func(ctx context.Context, client *redislock.Client, key string) error {
		_, err := client.Mutex(key, redislock.WithWait(long)).Lock(ctx)
		return err
	},
	"LockCoalesced": func(ctx context.Context, client *redislock.Client, key string) error {
		_, err := client.Mutex(key).LockCoalesced(ctx)
		return err
	},
	"Once": func(ctx context.Context, client *redislock.Client, key string) error {
		_, err := redislock.Once(ctx, client.Mutex(key),
			func(context.Context) (int, bool, error) { return 0, false, nil },
			func(context.Context) (int, error) { return 0, nil })
		return err
	},
	"Exec": func(ctx context.Context, client *redislock.Client, key string) error {
		return client.Mutex(key).Exec(ctx, "PING").Err()
	},
	"TryExec": func(ctx context.Context, client *redislock.Client, key string) error {
		return client.Mutex(key).TryExec(ctx, "PING").Err()
	},
}

// asks are the ways to query or change a hold.
var asks = map[string]func(ctx context.Context, lock *redislock.Lock, hold *redislock.Hold) error{
	"Renew": func(ctx context.Context, _ *redislock.Lock, hold *redislock.Hold) error { return hold.Renew(ctx, long) },
	"Extend": func(ctx context.Context, _ *redislock.Lock, hold *redislock.Hold) error {
		return hold.Extend(ctx, time.Second)
	},
	"Exec": func(ctx context.Context, _ *redislock.Lock, hold *redislock.Hold) error {
		return hold.Exec(ctx, "PING").Err()
	},
	"IsHeld": func(ctx context.Context, _ *redislock.Lock, hold *redislock.Hold) error {
		_, err := hold.IsHeld(ctx)
		return err
	},
	"Info": func(ctx context.Context, lock *redislock.Lock, _ *redislock.Hold) error {
		_, err := lock.Info(ctx)
		return err
	},
	"FromToken": func(ctx context.Context, lock *redislock.Lock, hold *redislock.Hold) error {
		_, err := lock.FromToken(ctx, hold.Token())
		return err
	},
}

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

func isRead(words string) func(error) bool {
	return func(err error) bool { return strings.Contains(err.Error(), words) }
}

// A port on which nothing listens, a TLS port, a replica and a host that does not exist: with a context the error has
// both, that the time has run out and why.
func TestTheEndOfAContextNamesTheCause(t *testing.T) {
	t.Parallel()
	secured := httptest.NewTLSServer(nil)
	t.Cleanup(secured.Close)
	replica := servertest.Start(t).Replica()
	closed := fmt.Sprint("127.0.0.1:", servertest.FreePort())
	for name, each := range map[string]struct {
		addr    string
		isCause func(error) bool
	}{
		"closed":  {closed, isRefused},
		"TLS":     {secured.Listener.Addr().String(), isRead(secured.Listener.Addr().String())},
		"replica": {replica.Addr(), isRead("READONLY")},
		// A name with an empty label is refused without asking a name server, which might not answer.
		"unknown": {"no..such.host:6379", isRead("no such host")},
	} {
		for method, acquire := range acquires {
			t.Run(name+" "+method, func(t *testing.T) {
				t.Parallel()
				// TryLock tries for a second.
				ctx, end := context.WithTimeout(context.Background(), 800*time.Millisecond)
				defer end()
				key := name + "-" + method
				err := acquire(ctx, over(t, each.addr), key)
				isTrue(t, each.isCause(err) && errors.Is(err, context.DeadlineExceeded), "%v", err)
				isTrue(t, !strings.Contains(err.Error(), "\n"), "%v", err)
				warnings := logged(key)
				isTrue(t, len(warnings) == 1 && strings.HasPrefix(warnings[0], "WARN"), "%q", warnings)
			})
		}
	}
}

// The first refusal closes the connection that the other requests were sent over too.
func TestEveryRequestToAReplicaNamesTheRefusal(t *testing.T) {
	t.Parallel()
	client := over(t, servertest.Start(t).Replica().Addr())
	var asking sync.WaitGroup
	for i := range 300 {
		asking.Add(1)
		go func() {
			defer asking.Done()
			time.Sleep(time.Duration(i) * 50 * time.Microsecond) // Some are sent while the first is answered.
			ctx, end := context.WithTimeout(context.Background(), 800*time.Millisecond)
			defer end()
			key := fmt.Sprintf("refused %d.", i)
			_, err := client.Mutex(key).Lock(ctx)
			isTrue(t, err != nil, "granted by a replica")
			for _, warning := range logged(key) {
				isTrue(t, strings.Contains(warning, "READONLY"), "%q", warning)
			}
		}()
	}
	asking.Wait()
}

func TestAWaitWithoutALimitWarnsOnceThatTheServerCannotBeReached(t *testing.T) {
	t.Parallel()
	addr := fmt.Sprint("127.0.0.1:", servertest.FreePort())
	client := over(t, addr)
	ended := make(chan error, 1)
	go func() {
		_, err := client.Mutex("waits without an end").Lock(context.Background())
		ended <- err
	}()
	servertest.Eventually(t, "a warning", func() bool { return len(logged("waits without an end")) > 0 })
	time.Sleep(time.Second) // Time for further retries.
	warnings := logged("waits without an end")
	isTrue(t, len(warnings) == 1 && strings.Contains(warnings[0], addr), "%q", warnings)
	ok(t, client.Close())
	isTrue(t, errors.Is(<-ended, redislock.ErrClosed), "another error")
}

func TestTheEndOfAContextNamesTheMissingNode(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	proxy.Silence() // It accepts connections, and no reply ever comes.
	// A slow machine may not have begun to connect when a short context ends.
	names := func(words, method string, client *redislock.Client) {
		for timeout := 50 * time.Millisecond; ; timeout *= 2 {
			ctx, end := context.WithTimeout(context.Background(), timeout)
			err := acquires[method](ctx, client, "k")
			end()
			isTrue(t, errors.Is(err, context.DeadlineExceeded), "%s: %v", method, err)
			if strings.Contains(err.Error(), words) {
				return
			}
			isTrue(t, timeout < 3*time.Second, "%s: %v", method, err)
		}
	}
	// To a TLS client, a server without TLS is just as silent.
	for addr, secured := range map[string]*tls.Config{proxy.Addr(): nil, server.Addr(): {}} {
		for method := range acquires {
			names(addr, method, overWith(t, &redis.Options{Addr: addr, TLSConfig: secured}))
		}
	}
	cluster := of(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{proxy.Addr()}}))
	for method := range acquires {
		names("node of the cluster", method, cluster)
	}
}

func TestTheCauseIsNamedWhileTheLockIsHeld(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	lock := over(t, server.Addr()).Mutex("held-at-its-end", redislock.WithLease(long))
	hold := locked(t, lock)
	server.Kill()
	// The first request may be sent over the connection that has ended.
	_, _ = hold.IsHeld(context.Background())
	for name, ask := range asks {
		ctx, end := context.WithTimeout(context.Background(), 300*time.Millisecond)
		err := ask(ctx, lock, hold)
		end()
		isTrue(t, errors.Is(err, context.DeadlineExceeded) && isRefused(err), "%s: %v", name, err)
	}
	ctx, end := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer end()
	err := hold.Unlock(ctx)
	isTrue(t, errors.Is(err, context.DeadlineExceeded) && isRefused(err), "%v", err)
	// The other methods try for a second, and then return the error themselves.
	warnings := logged("held-at-its-end")
	isTrue(t, len(warnings) == 2 && strings.Contains(warnings[0], "command") && strings.Contains(warnings[1], "release"),
		"%q", warnings)
}

func TestARenewalThatFailsIsLoggedUnlessTheReleaseEndsIt(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	lock := func(key string) *redislock.Lock {
		return over(t, proxy.Addr()).Mutex(key, redislock.WithLease(3*time.Second), redislock.WithAutoRenew())
	}
	hold := locked(t, lock("renewed until its release"))
	proxy.Packets()
	proxy.SplitRequest("RENEW") // The renewal is on its way.
	servertest.Eventually(t, "a renewal", func() bool {
		return strings.Contains(strings.Join(proxy.Packets(), ""), "RENEW")
	})
	released := make(chan error, 1)
	go func() { released <- hold.Unlock(context.Background()) }()
	<-hold.Context().Done()
	proxy.Speak()
	ok(t, <-released)
	isTrue(t, len(logged("renewed until its release")) == 0, "%q", logged("renewed until its release"))
	hold = locked(t, lock("renewed again"))
	proxy.CutReply("RENEW", 0)
	servertest.Eventually(t, "a warning", func() bool { return len(logged("renewed again")) > 0 })
	isTrue(t, strings.Contains(logged("renewed again")[0], "the renewal failed"), "%q", logged("renewed again"))
	unlock(t, hold)
}

// The error of a wait that ends by its own limit has no context error, but still has the cause.
func TestTheEndOfAWaitNamesTheCause(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	proxy.Silence()
	for addr, isCause := range map[string]func(error) bool{
		fmt.Sprint("127.0.0.1:", servertest.FreePort()): isRefused, proxy.Addr(): isRead(proxy.Addr()),
	} {
		_, err := over(t, addr).Mutex("k", redislock.WithWait(300*time.Millisecond)).Lock(context.Background())
		isTrue(t, err != nil && isCause(err) && !errors.Is(err, redislock.ErrNotAcquired), "%s: %v", addr, err)
	}
}

// No retry helps against a missing permission.
func TestAMissingPermissionEndsAnAcquireImmediately(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	nodes := servertest.Cluster(t)
	for _, each := range []*servertest.Server{server, nodes[0], nodes[1]} {
		each.Ask("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "&*")
		each.Ask("ACL", "SETUSER", "reads", "on", ">secret", "~*", "+@all", "-lock.acquire", "&*")
		each.Ask("ACL", "SETUSER", "mute", "on", ">secret", "~*", "+@all", "resetchannels")
		// The test's own connections keep a user with all permissions.
		each.Ask("ACL", "SETUSER", "default", "resetpass", ">another")
	}
	single := func(user, password string) *redislock.Client {
		return overWith(t, &redis.Options{Addr: server.Addr(), Username: user, Password: password})
	}
	clustered := func(user, password string) *redislock.Client {
		return of(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr(), nodes[1].Addr()},
			Username: user, Password: password}))
	}
	for _, kind := range []func(user, password string) *redislock.Client{single, clustered} {
		for code, client := range map[string]*redislock.Client{"NOAUTH": kind("", ""), "WRONGPASS": kind("app", "wrong"),
			"NOPERM": kind("reads", "secret")} {
			for method, acquire := range acquires {
				began := time.Now()
				err := acquire(context.Background(), client, "k")
				isTrue(t, err != nil && strings.Contains(err.Error(), code) && time.Since(began) < time.Second+busy,
					"%s %s: %v after %v", code, method, err, time.Since(began))
			}
		}
	}
	// Only a wait needs the channel.
	hold := locked(t, single("app", "secret").Mutex("k"))
	_, err := single("mute", "secret").Mutex("k").Lock(context.Background())
	isTrue(t, err != nil && strings.Contains(err.Error(), "NOPERM"), "%v", err)
	unlock(t, hold)
}

func TestASentinelThatRefusesThePasswordEndsAnAcquireImmediately(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	server.Replica()
	sentinel := servertest.Sentinel(t, server)
	sentinel.Ask("ACL", "SETUSER", "watcher", "on", ">secret", "+@all", "&*")
	sentinel.Ask("ACL", "SETUSER", "default", "resetpass", ">another")
	for _, each := range []struct{ user, password, code string }{{"watcher", "wrong", "WRONGPASS"}, {"", "", "NOAUTH"}} {
		client := of(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main",
			SentinelAddrs: []string{sentinel.Addr()}, SentinelUsername: each.user, SentinelPassword: each.password}))
		_, err := client.Mutex("k").Lock(context.Background())
		isTrue(t, err != nil && strings.Contains(err.Error(), each.code), "%v", err)
	}
}

func TestASingleServerClientReportsACluster(t *testing.T) {
	t.Parallel()
	nodes := servertest.Cluster(t)
	const here, there = "k", "x" // Keys of the first and of the second node.
	client := over(t, nodes[0].Addr())
	hold := must(client.Mutex(here).TryLock(context.Background()))(t)
	for method, acquire := range acquires {
		err := acquire(context.Background(), client, there)
		isTrue(t, errors.Is(err, redislock.ErrUsage) && strings.Contains(err.Error(), "NewClusterClient"), "%s: %v",
			method, err)
	}
	// Its channel is in another slot than the key.
	_, err := client.Mutex(here).Lock(context.Background())
	isTrue(t, errors.Is(err, redislock.ErrUsage) && strings.Contains(err.Error(), "NewClusterClient"), "%v", err)
	unlock(t, hold)
}
