package gocron_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	upstream "github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/gocron"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

func client(t *testing.T, server *servertest.Server, defaults ...redislock.Option) *redislock.Client {
	return clientOf(t, &redis.Options{Addr: server.Addr()}, defaults...)
}

func clientOf(t *testing.T, to *redis.Options, defaults ...redislock.Option) *redislock.Client {
	rdb := redis.NewClient(to)
	locks := redislock.New(rdb, defaults...)
	t.Cleanup(func() { _, _ = locks.Close(), rdb.Close() })
	return locks
}

// log is the output of slog's default logger.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func logged(t *testing.T) *log {
	l, before := &log{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return l
}

func (l *log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// has returns true if a line has all these words.
func (l *log) has(words ...string) bool {
	for _, line := range strings.Split(l.String(), "\n") {
		isMissing := func(word string) bool { return !strings.Contains(line, word) }
		if !slices.ContainsFunc(words, isMissing) {
			return true
		}
	}
	return false
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
	defer func() { _ = second.Close() }()
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
	if err := io.Closer(first).Close(); err != nil {
		t.Fatal(err)
	}
	if waiters := server.Waiters("scheduler"); len(waiters) != 0 {
		t.Fatal(waiters)
	}
}

func leads(t *testing.T, e *gocron.Elector) {
	t.Helper()
	servertest.Eventually(t, "a leader", func() bool { return e.IsLeader(context.Background()) == nil })
}

// The defaults of a client are meant for requests with a waiting caller.
func TestAnElectorHasItsOwnWaitAndRenewal(t *testing.T) {
	server, log := servertest.Start(t), logged(t)
	electors := map[string]*gocron.Elector{}
	for name, defaults := range map[string][]redislock.Option{
		"readme": {redislock.WithAutoRenew(), redislock.WithWait(time.Millisecond)}, "lease": {redislock.WithoutLease()},
		"least": {redislock.WithAtLeast(time.Hour)}, "mixed": {redislock.WithMixed(time.Hour)}, "none": nil,
	} {
		server.Ask("LOCK.ACQUIRE", name, "leader", "PX", 600_000)
		electors[name] = gocron.NewElector(client(t, server, defaults...), name, redislock.WithWait(time.Millisecond))
	}
	for name := range electors {
		servertest.Eventually(t, "a standby", func() bool { return len(server.Waiters(name)) == 1 })
	}
	asked := server.Calls("lock.acquire")
	servertest.Eventually(t, "a further slice of each wait", func() bool {
		return server.Calls("lock.acquire") >= asked+len(electors)
	})
	if log.has("WARN") {
		t.Fatal(log)
	}
	for name, elector := range electors {
		if err := elector.IsLeader(context.Background()); !errors.Is(err, gocron.ErrNotLeader) {
			t.Fatal(name, err)
		}
		server.Ask("LOCK.RELEASE", name, "leader")
		leads(t, elector)
		if server.Holders(name)[0]["session"] == int64(0) {
			t.Fatal(name, "is not of a session")
		}
		_ = elector.Close()
		servertest.Eventually(t, "the end of the hold", func() bool { return server.IsFree(name) })
	}
}

func TestAnElectorQueuesAgainAfterEachRefusal(t *testing.T) {
	server := servertest.Start(t)
	server.Ask("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all")
	for words, each := range map[string]struct{ refuse, allow []any }{
		"OOM":        {[]any{"CONFIG", "SET", "maxmemory", 1}, []any{"CONFIG", "SET", "maxmemory", 0}},
		"NOPERM":     {[]any{"ACL", "SETUSER", "app", "-lock.acquire"}, []any{"ACL", "SETUSER", "app", "+lock.acquire"}},
		"WRONGPASS":  {[]any{"ACL", "SETUSER", "app", "resetpass"}, []any{"ACL", "SETUSER", "app", ">secret"}},
		"not a lock": {[]any{"SET", "scheduler", "of another client"}, []any{"DEL", "scheduler"}},
	} {
		log := logged(t)
		server.Ask(each.refuse...)
		elector := gocron.NewElector(clientOf(t, &redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"}),
			"scheduler")
		queuesAgain(t, elector, log, words)
		server.Ask(each.allow...)
		leads(t, elector)
		_ = elector.Close()
		servertest.Eventually(t, "the end of the hold", func() bool { return server.IsFree("scheduler") })
	}
}

func queuesAgain(t *testing.T, elector *gocron.Elector, log *log, words string) {
	t.Helper()
	servertest.Eventually(t, "a line of the log", func() bool {
		return log.has("WARN", "queue again after a pause", "lock=scheduler", words)
	})
	if err := elector.IsLeader(context.Background()); !errors.Is(err, gocron.ErrNotLeader) {
		t.Fatal(err)
	}
}

// An operator drains the queue, as the runbook does.
func TestAStandbyQueuesAgainAfterTheQueueWasDrained(t *testing.T) {
	server, log := servertest.Start(t), logged(t)
	server.Ask("LOCK.ACQUIRE", "scheduler", "leader", "PX", 600_000)
	isQueued := func() bool { return len(server.Waiters("scheduler")) == 1 }
	elector := gocron.NewElector(client(t, server), "scheduler")
	servertest.Eventually(t, "a standby", isQueued)
	server.Ask("CONFIG", "SET", "lock.max-waiters", 0)
	server.Ask("LOCK.CANCEL", "scheduler", server.Waiters("scheduler")[0])
	queuesAgain(t, elector, log, "the wait was cancelled")
	queuesAgain(t, elector, log, "too many waiters")
	server.Ask("CONFIG", "SET", "lock.max-waiters", 10_000)
	servertest.Eventually(t, "a standby", isQueued)
	server.Ask("LOCK.RELEASE", "scheduler", "leader")
	leads(t, elector)
	// A loss.
	server.Ask("CLIENT", "KILL", "ID", server.Holders("scheduler")[0]["session"])
	queuesAgain(t, elector, log, "no longer owned")
	leads(t, elector)
	_ = elector.Close()
}

func TestAnElectorEndsWithItsClient(t *testing.T) {
	server, log := servertest.Start(t), logged(t)
	locks := client(t, server)
	elector := gocron.NewElector(locks, "scheduler")
	leads(t, elector)
	_ = locks.Close()
	servertest.Eventually(t, "a line of the log", func() bool { return log.has("ERROR", "will not lead again") })
	if err := elector.IsLeader(context.Background()); !errors.Is(err, redislock.ErrClosed) {
		t.Fatal(err)
	}
	_ = elector.Close()
}

// runs returns whether one scheduler ran a job, after its end.
func runs(t *testing.T, locker upstream.Locker, name string, work func()) (hasRun bool) {
	t.Helper()
	over := make(chan struct{})
	done := upstream.AfterJobRuns(func(uuid.UUID, string) { close(over) })
	refused := upstream.AfterLockError(func(uuid.UUID, string, error) { close(over) })
	s, err := upstream.NewScheduler(upstream.WithDistributedLocker(locker))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.NewJob(upstream.OneTimeJob(upstream.OneTimeJobStartImmediately()),
		upstream.NewTask(func() { hasRun = true; work() }), upstream.WithName(name),
		upstream.WithEventListeners(done, refused))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	<-over
	if err := s.Shutdown(); err != nil { // It waits for the release.
		t.Fatal(err)
	}
	return hasRun
}

func TestALockerHasItsOwnRenewal(t *testing.T) {
	server := servertest.Start(t)
	for _, defaults := range [][]redislock.Option{nil, {redislock.WithSession()}, {redislock.WithoutLease()},
		{redislock.WithWait(time.Hour), redislock.WithoutRenewal()}} {
		locker := gocron.NewLocker(client(t, server, defaults...), redislock.WithLease(900*time.Millisecond))
		renewals := server.Calls("lock.renew")
		isRun := runs(t, locker, "nightly", func() {
			servertest.Eventually(t, "renewals", func() bool { return server.Calls("lock.renew") >= renewals+4 })
			if _, err := gocron.NewLocker(client(t, server)).Lock(context.Background(), "nightly"); err == nil {
				t.Error("another scheduler runs it too")
			}
		})
		if !isRun || !server.IsFree("nightly") {
			t.Fatal("not run, or held yet")
		}
	}
}

func TestALockerLogsWhatTheSchedulerDrops(t *testing.T) {
	server, log := servertest.Start(t), logged(t)
	locker := gocron.NewLocker(client(t, server))
	// Another scheduler runs it: that is what the lock is for.
	server.Ask("LOCK.ACQUIRE", "nightly", "another scheduler")
	if runs(t, locker, "nightly", func() {}) || log.has("WARN") {
		t.Fatal(log)
	}
	server.Break("nightly")
	if !runs(t, locker, "nightly", func() { server.Break("nightly") }) || !log.has("WARN", "was lost", "job=nightly") {
		t.Fatal(log)
	}
	server.Ask("SET", "weekly", "of another client")
	if runs(t, locker, "weekly", func() {}) || !log.has("WARN", "skipped", "job=weekly", "not a lock") {
		t.Fatal(log)
	}
	// A value that the server would refuse at the release is refused before the job.
	locker = gocron.NewLocker(client(t, server), redislock.WithAtLeast(math.MaxInt64))
	if runs(t, locker, "yearly", func() {}) || !log.has("WARN", "skipped", "job=yearly", "lock.max-lease") {
		t.Fatal(log)
	}
	if !server.IsFree("yearly") {
		t.Fatal("held")
	}
}
