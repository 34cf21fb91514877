package tests

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

// setting is an option, and a check whether the held lock of the key k has it, by what the server and the observer see.
type setting struct {
	name   string
	option redislock.Option
	isSet  func(t testing.TB, server *servertest.Server, hold *redislock.Hold) bool
}

var (
	session = setting{"WithSession", redislock.WithSession(),
		func(_ testing.TB, server *servertest.Server, _ *redislock.Hold) bool {
			holders := server.Holders("k") // None once the lease is over.
			return len(holders) > 0 && holders[0]["session"] != int64(0)
		}}
	renewed = setting{"WithAutoRenew", redislock.WithAutoRenew(),
		func(t testing.TB, server *servertest.Server, hold *redislock.Hold) bool {
			if _, ends := hold.Remaining(); !ends {
				return false
			}
			calls := server.Calls("lock.renew")
			ok(t, hold.Renew(context.Background(), 1500*time.Millisecond))
			isRenewed := func() bool { return server.Calls("lock.renew") > calls+1 }
			servertest.Eventually(t, "a renewal, or the end", func() bool {
				return isRenewed() || hold.IsLost() || session.isSet(t, server, hold)
			})
			return isRenewed()
		}}
	unending = setting{"WithoutLease", redislock.WithoutLease(),
		func(_ testing.TB, server *servertest.Server, _ *redislock.Hold) bool {
			return server.Ask("PTTL", "k") == int64(-1)
		}}
	atLeast = setting{"WithAtLeast", redislock.WithAtLeast(time.Hour),
		func(t testing.TB, server *servertest.Server, hold *redislock.Hold) bool {
			unlock(t, hold)
			return !server.IsFree("k")
		}}
	mine = setting{"WithToken", redislock.WithToken("mine"),
		func(_ testing.TB, _ *servertest.Server, hold *redislock.Hold) bool { return hold.Token() == "mine" }}
)

func TestALaterOptionReplacesWhatItExcludes(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	for _, pair := range [][2]setting{{session, renewed}, {session, unending}, {session, atLeast}, {renewed, unending},
		{unending, atLeast}, {atLeast, mine}} {
		for _, each := range [][2]setting{pair, {pair[1], pair[0]}} {
			earlier, later := each[0], each[1]
			for where, lock := range map[string]*redislock.Lock{
				"of the client": over(t, server.Addr(), earlier.option).Mutex("k", later.option),
				"of the lock":   over(t, server.Addr()).Mutex("k", earlier.option, later.option),
				"of the sides":  over(t, server.Addr()).RW("k", earlier.option).Write(later.option),
			} {
				name := fmt.Sprintf("%s after %s %s", later.name, earlier.name, where)
				if where == "of the sides" && (earlier.name == renewed.name || later.name == renewed.name) {
					continue // Its renewals use another command.
				}
				hold, err := lock.Lock(context.Background())
				isTrue(t, err == nil, "%s: %v", name, err)
				// Whether it keeps its lease is checked last, by its release.
				if later.name == atLeast.name {
					isTrue(t, !earlier.isSet(t, server, hold) && later.isSet(t, server, hold), "%s", name)
				} else {
					isTrue(t, later.isSet(t, server, hold) && !earlier.isSet(t, server, hold), "%s", name)
				}
				server.Ask("DEL", "k")
				_ = hold.Unlock(context.Background()) // Its renewals end.
			}
		}
	}
}

func TestADefaultOfTheClientCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	ctx := context.Background()
	for _, each := range []setting{session, renewed} {
		lock := over(t, server.Addr(), each.option).Mutex("k", redislock.WithoutRenewal())
		hold := locked(t, lock)
		isTrue(t, !each.isSet(t, server, hold), "%s", each.name)
		server.Ask("DEL", "k")
		_ = hold.Unlock(ctx)
	}
	hold := locked(t, over(t, server.Addr()).Mutex("k", redislock.WithLease(long)))
	client := over(t, server.Addr(), redislock.WithWait(time.Millisecond))
	_, err := client.Mutex("k").Lock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired), "%v", err)
	waiter := wait(t, server, client.Mutex("k", redislock.WithoutWaitLimit()), "k")
	unlock(t, hold)
	unlock(t, waiter.granted())
	// A value that is refused may be replaced too.
	client = over(t, server.Addr(), redislock.WithLease(0), redislock.WithWait(0), redislock.WithToken(""))
	unlock(t, locked(t, client.Mutex("k", redislock.WithLease(long), redislock.WithWait(long), mine.option)))
	// In mixed mode a string is a holder.
	server.Ask("SET", "old", "of another client")
	_, err = over(t, server.Addr(), session.option).Mutex("old", redislock.WithMixed(time.Second)).TryLock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrNotAcquired), "%v", err)
	_, err = over(t, server.Addr(), redislock.WithMixed(time.Second)).Mutex("old", session.option).TryLock(ctx)
	isTrue(t, errors.Is(err, redislock.ErrWrongType), "%v", err)
}

func TestPermitsAndSlotsAreDefaultsOfSemaphoresOnly(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	for _, each := range []struct {
		defaults, own []redislock.Option
		slot          int
		permits       int64
	}{
		{[]redislock.Option{redislock.WithSlot()}, nil, 0, 1},
		{[]redislock.Option{redislock.WithPermits(2)}, nil, -1, 2},
		{[]redislock.Option{redislock.WithPermits(2)}, []redislock.Option{redislock.WithSlot()}, 0, 1},
		{[]redislock.Option{redislock.WithSlot()}, []redislock.Option{redislock.WithPermits(2)}, -1, 2},
	} {
		client := over(t, server.Addr(), each.defaults...)
		hold := locked(t, client.Semaphore("s", 3, each.own...))
		isTrue(t, hold.Slot() == each.slot && server.Holds("s") == each.permits, "%d", hold.Slot())
		unlock(t, hold)
		unlock(t, locked(t, client.Mutex("k")))
	}
}
