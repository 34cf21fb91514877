// Package gocron implements the Locker and the Elector of gocron's scheduler with locks of the redis-lock module. With
// a Locker no two schedulers run the same job at the same time; with an Elector one scheduler runs all jobs.
package gocron

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	redislock "github.com/redis-lock/redis-lock/clients/go"
)

// NewLocker returns a Locker that acquires a lock with the name of the job for each run. It does not wait: a scheduler
// that does not get the lock skips this run. The lock is renewed while the job runs, whatever the client's defaults
// are. For jobs that are shorter than the difference between the clocks of the hosts, use [redislock.WithAtLeast]. The
// options replace those of the Locker.
//
// gocron drops the errors of a Locker, so NewLocker logs them: a failure other than that another scheduler runs the
// job, and a lock that was lost while the job ran.
func NewLocker(locks *redislock.Client, options ...redislock.Option) gocron.Locker {
	return locker{locks, append([]redislock.Option{redislock.WithAutoRenew()}, options...)}
}

type locker struct {
	locks   *redislock.Client
	options []redislock.Option
}

func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	hold, err := l.locks.Mutex(key, l.options...).TryLock(ctx)
	switch {
	case err == nil:
		return held{key, hold}, nil
	case !errors.Is(err, redislock.ErrNotAcquired) && ctx.Err() == nil:
		slog.WarnContext(ctx, "redislock/gocron: the run is skipped, since its lock cannot be acquired",
			"job", key, "error", err)
	}
	return nil, err
}

// held is the lock of a running job.
type held struct {
	key  string
	hold *redislock.Hold
}

func (h held) Unlock(ctx context.Context) error {
	err := h.hold.Unlock(ctx)
	switch {
	case errors.Is(err, redislock.ErrLost):
		slog.WarnContext(ctx, "redislock/gocron: the lock was lost while the job ran: another scheduler may have run it too",
			"job", h.key, "error", err)
	case err != nil && ctx.Err() == nil: // If the context has ended, the release goes on in the background.
		slog.WarnContext(ctx, "redislock/gocron: the lock of the job could not be released and will expire with its lease",
			"job", h.key, "error", err)
	}
	return err
}

// ErrNotLeader means that this scheduler does not lead. After a refusal or a loss the error also wraps the reason.
var ErrNotLeader = errors.New("redislock/gocron: this scheduler is not the leader")

// The pauses after a refusal or a loss. An Elector that is always refused asks a few times a minute.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 10 * time.Second
)

// Elector lets only one of many schedulers run the jobs: the one that holds a lock. See [NewElector].
type Elector struct {
	name string
	lock *redislock.Lock
	end  context.CancelFunc
	done chan struct{}

	mu   sync.Mutex
	hold *redislock.Hold
	err  error
}

var (
	_ gocron.Elector = (*Elector)(nil)
	_ io.Closer      = (*Elector)(nil)
)

// NewElector starts an Elector, which waits for the lock in the background, in the server's queue, and leads while it
// holds the lock. It waits until Close, and uses a session, whatever the client's defaults are, so the next scheduler
// leads as soon as this process ends. The options replace those of the Elector, except for the wait.
//
// After a loss, and after any failure (an operator cancels the wait, the queue or the memory is full, a permission is
// missing), it logs the reason, pauses, and queues again. [Elector.Close] ends it, as does Close of the client.
func NewElector(locks *redislock.Client, name string, options ...redislock.Option) *Elector {
	all := append([]redislock.Option{redislock.WithSession()}, options...)
	ctx, end := context.WithCancel(context.Background())
	e := &Elector{name: name, lock: locks.Mutex(name, append(all, redislock.WithoutWaitLimit())...), end: end,
		done: make(chan struct{})}
	go e.run(ctx)
	return e
}

func (e *Elector) run(ctx context.Context) {
	defer close(e.done)
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := e.lead(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, redislock.ErrClosed) {
			slog.ErrorContext(ctx, "redislock/gocron: this scheduler will not lead again", "lock", e.name, "error", err)
			return
		}
		if time.Since(began) > longestPause { // It has waited or led in the meantime.
			pause = firstPause
		}
		slog.WarnContext(ctx, "redislock/gocron: this scheduler is not the leader, and will queue again after a pause",
			"lock", e.name, "pause", pause, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestPause)
	}
}

// lead waits for the lock, and leads until it is lost or the context ends.
func (e *Elector) lead(ctx context.Context) error {
	hold, err := e.lock.Lock(ctx)
	e.set(hold, err)
	if err != nil {
		return err
	}
	select {
	case <-hold.Context().Done():
	case <-ctx.Done():
	}
	e.set(nil, nil)
	err = hold.Unlock(ctx)
	e.set(nil, err)
	return err
}

func (e *Elector) set(hold *redislock.Hold, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold, e.err = hold, err
}

// IsLeader returns nil while this scheduler leads, and otherwise [ErrNotLeader].
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil:
		return fmt.Errorf("%w: %w", ErrNotLeader, e.err)
	case e.hold.IsLost():
		return ErrNotLeader
	}
	return nil
}

// Close gives up the leadership and ends the Elector. The error is always nil; it makes the Elector an [io.Closer].
func (e *Elector) Close() error {
	e.end()
	<-e.done
	return nil
}
