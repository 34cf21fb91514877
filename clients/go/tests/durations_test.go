package tests

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

const greatest = time.Duration(math.MaxInt64)

func TestADurationOfZeroOrLessIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	hold := locked(t, client.Mutex("held"))
	asked := server.Calls("lock.acquire")
	for _, duration := range []time.Duration{0, -1, -time.Second, math.MinInt64} {
		for name, option := range map[string]redislock.Option{
			"WithLease":    redislock.WithLease(duration),
			"WithWait":     redislock.WithWait(duration),
			"WithAtLeast":  redislock.WithAtLeast(duration),
			"WithMixed":    redislock.WithMixed(duration),
			"WithReplicas": redislock.WithReplicas(1, duration),
		} {
			_, err := client.Mutex("k", option).Lock(ctx)
			isTrue(t, errors.Is(err, redislock.ErrUsage), "%s(%v): %v", name, duration, err)
			_, err = over(t, server.Addr(), option).Mutex("k").TryLock(ctx)
			isTrue(t, errors.Is(err, redislock.ErrUsage), "a default of %s(%v): %v", name, duration, err)
		}
		isTrue(t, errors.Is(hold.Renew(ctx, duration), redislock.ErrUsage), "Renew(%v)", duration)
		isTrue(t, errors.Is(hold.Extend(ctx, duration), redislock.ErrUsage), "Extend(%v)", duration)
	}
	for _, replicas := range []int{0, -1, math.MinInt} {
		_, err := client.Mutex("k", redislock.WithReplicas(replicas, time.Second)).Lock(ctx)
		isTrue(t, errors.Is(err, redislock.ErrUsage), "%d replicas: %v", replicas, err)
	}
	isTrue(t, server.Calls("lock.acquire") == asked && server.Calls("lock.renew") == 0, "something was sent")
	unlock(t, hold)
}

func TestFractionsOfAMillisecondRoundUp(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	proxy := servertest.NewProxy(t, server)
	client, ctx := over(t, proxy.Addr()), context.Background()
	const fraction = 20*time.Second + time.Nanosecond
	// sent requires 20,001 ms after these words in one of the packets.
	sent := func(words string) {
		t.Helper()
		packets := strings.Join(proxy.Packets(), "")
		_, behind, found := strings.Cut(packets, words)
		isTrue(t, found && strings.Contains(behind, "\r\n20001\r\n"), "%s: %q", words, packets)
	}
	hold := locked(t, client.Mutex("k", redislock.WithLease(fraction)))
	sent("LOCK.ACQUIRE")
	ok(t, hold.Renew(ctx, fraction))
	sent("LOCK.RENEW")
	unlock(t, hold)
	// A lease and a wait of less than a millisecond have one.
	for _, option := range []redislock.Option{redislock.WithLease(time.Nanosecond), redislock.WithWait(time.Nanosecond)} {
		_, err := client.Mutex("k", option).Lock(ctx)
		isTrue(t, err == nil, "%v", err)
		server.Ask("DEL", "k")
	}
	isTrue(t, strings.Contains(strings.Join(proxy.Packets(), ""), "PX\r\n$1\r\n1\r\n"), "not 1 ms")
}

// The largest duration is refused by the server, above lock.max-lease, or lasts longer than any test. It never wraps to
// a short or negative one.
func TestTheLargestDurationNeverWraps(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	server.Replica()
	client, ctx := over(t, server.Addr()), context.Background()
	for _, lease := range []time.Duration{greatest, greatest - time.Millisecond, greatest - time.Nanosecond} {
		_, err := client.Mutex("k", redislock.WithLease(lease)).Lock(ctx)
		isTrue(t, err != nil && server.IsFree("k"), "%v: %v", lease, err)
		hold := locked(t, client.Mutex("k", redislock.WithLease(long)))
		for name, err := range map[string]error{"Renew": hold.Renew(ctx, lease), "Extend": hold.Extend(ctx, lease)} {
			isTrue(t, err != nil && !errors.Is(err, redislock.ErrLost) && strings.Contains(err.Error(), "lock.max-lease"),
				"%s: %v", name, err)
		}
		left, _ := hold.Remaining()
		isTrue(t, !hold.IsLost() && left > time.Minute && server.Ask("PTTL", "k").(int64) > 60_000, "%v", left)
		unlock(t, hold)
	}
	// Waits.
	hold := locked(t, client.Mutex("k", redislock.WithLease(long)))
	far, end := context.WithTimeout(ctx, greatest)
	defer end()
	var waiters []*waiting
	for _, kind := range []redislock.Option{redislock.WithLease(long), redislock.WithSession()} {
		waiters = append(waiters, wait(t, server, client.Mutex("k", redislock.WithWait(greatest), kind), "k"))
	}
	granted := make(chan error, 1)
	go func() { granted <- client.Mutex("k").Do(far, func(context.Context) error { return nil }) }()
	servertest.Eventually(t, "three waiters", func() bool { return len(server.Waiters("k")) == 3 })
	unlock(t, hold)
	for _, each := range waiters {
		unlock(t, each.granted())
	}
	ok(t, <-granted)
	unlock(t, locked(t, client.Mutex("k", redislock.WithReplicas(1, greatest))))
	// If the product wrapped, half of the polls would follow each other immediately.
	server.Ask("SET", "old", "of another client")
	for range 20 {
		polls := begin(t, client.Mutex("old", redislock.WithMixed(greatest)))
		defer polls.end()
	}
	servertest.Eventually(t, "the first polls", func() bool { return server.Calls("set") > 0 && polled(server) >= 20 })
	unlock(t, locked(t, client.Mutex("k")))
	isTrue(t, polled(server) == 20, "%d polls", polled(server))
}

// polled returns how often LOCK.ACQUIRE found a string.
func polled(server *servertest.Server) int {
	count := 0
	_, behind, _ := strings.Cut(server.Ask("INFO", "errorstats").(string), "errorstat_WRONGTYPE:count=")
	_, _ = fmt.Sscan(behind, &count)
	return count
}

// A key may have a longer TTL than a time.Duration can hold.
func TestATimeToLiveOfTheServerNeverWraps(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	client, ctx := over(t, server.Addr()), context.Background()
	first := locked(t, client.Mutex("k", redislock.WithLease(time.Hour)))
	for _, deadline := range []int64{math.MaxInt64, math.MaxInt64/2 + 1, int64(greatest/time.Millisecond) * 2} {
		server.Ask("LOCK.RENEW", "k", first.Token(), "PERSIST")
		server.Ask("PEXPIREAT", "k", deadline)
		hold := must(client.Mutex("k").FromToken(ctx, first.Token()))(t)
		left, ends := hold.Remaining()
		isTrue(t, ends && left > 1000*time.Hour && !hold.IsLost(), "%v", left)
		info := must(client.Mutex("k").Info(ctx))(t)
		isTrue(t, *info.TTL > 1000*time.Hour && *info.Holders[0].TTL > 1000*time.Hour, "%v", info)
		err := hold.Extend(ctx, time.Second)
		isTrue(t, err != nil && strings.Contains(err.Error(), "lock.max-lease"), "%v", err)
	}
	unlock(t, first)
}
