package gocron_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	upstream "github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/gocron"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

func client(t *testing.T, server *servertest.Server) *redislock.Client {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locks := redislock.New(rdb)
	t.Cleanup(func() {
		locks.Close()
		_ = rdb.Close()
	})
	return locks
}

func scheduler(t *testing.T, option upstream.SchedulerOption) upstream.Scheduler {
	s, err := upstream.NewScheduler(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	return s
}

func TestAJobRunsOnceHoweverManySchedulersThereAre(t *testing.T) {
	server := servertest.Start(t)
	var runs atomic.Int32
	for range 5 {
		locker := gocron.NewLocker(client(t, server), redislock.WithAtLeast(time.Hour))
		s := scheduler(t, upstream.WithDistributedLocker(locker))
		_, err := s.NewJob(upstream.OneTimeJob(upstream.OneTimeJobStartImmediately()),
			upstream.NewTask(func() { runs.Add(1) }), upstream.WithName("nightly"))
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
	}
	servertest.Eventually(t, "all have asked", func() bool { return server.Calls("lock.acquire") == 5 && runs.Load() > 0 })
	servertest.Eventually(t, "kept for the hour", func() bool { return server.Ask("PTTL", "nightly").(int64) > 3_500_000 })
	if runs.Load() != 1 {
		t.Fatalf("it ran %d times", runs.Load())
	}
}

func TestOneSchedulerLeadsAndThenTheNext(t *testing.T) {
	server := servertest.Start(t)
	ctx := context.Background()
	// A session learns of a LOCK.BREAK within a third of its lease.
	first := gocron.NewElector(client(t, server), "scheduler", redislock.WithSession(), redislock.WithLease(time.Second))
	servertest.Eventually(t, "a leader", func() bool { return first.IsLeader(ctx) == nil })
	second := gocron.NewElector(client(t, server), "scheduler")
	defer second.Close()
	servertest.Eventually(t, "a second one", func() bool { return len(server.Waiters("scheduler")) == 1 })
	if err := second.IsLeader(ctx); !errors.Is(err, gocron.ErrNotLeader) {
		t.Fatal(err)
	}
	var runs atomic.Int32
	s := scheduler(t, upstream.WithDistributedElector(second))
	_, err := s.NewJob(upstream.DurationJob(10*time.Millisecond), upstream.NewTask(func() { runs.Add(1) }))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	// A loss is followed by another election.
	server.Break("scheduler")
	servertest.Eventually(t, "the second one leads", func() bool { return second.IsLeader(ctx) == nil && runs.Load() > 0 })
	servertest.Eventually(t, "the first one is queued", func() bool { return len(server.Waiters("scheduler")) == 1 })
	if err := first.IsLeader(ctx); !errors.Is(err, gocron.ErrNotLeader) {
		t.Fatal(err)
	}
	first.Close()
	if waiters := server.Waiters("scheduler"); len(waiters) != 0 {
		t.Fatal(waiters)
	}
}
