// Package gocron has the Locker and the Elector of gocron's scheduler, over locks of the redis-lock module: no two
// schedulers run one job at the same time, or one of them runs all jobs.
package gocron

import (
	"context"
	"errors"
	"sync"

	"github.com/go-co-op/gocron/v2"

	redislock "github.com/redis-lock/redis-lock/clients/go"
)

// NewLocker gives each run of a job the lock of the job's name, which is not waited for: a scheduler that does not get
// it skips this run. For jobs that are shorter than the clocks of the hosts differ use [redislock.WithAtLeast], for
// jobs that may take longer than the lease [redislock.WithAutoRenew].
func NewLocker(locks *redislock.Client, options ...redislock.Option) gocron.Locker {
	return locker{locks, options}
}

type locker struct {
	locks   *redislock.Client
	options []redislock.Option
}

func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	hold, err := l.locks.Mutex(key, l.options...).TryLock(ctx)
	if err != nil {
		return nil, err // Not hold: a nil *Hold in an interface is not nil.
	}
	return hold, nil
}

// ErrNotLeader is the Elector's answer where another scheduler leads.
var ErrNotLeader = errors.New("redislock/gocron: this scheduler is not the leader")

// Elector lets one of many schedulers run their jobs: the one that holds a lock. See [NewElector].
type Elector struct {
	lock *redislock.Lock
	end  context.CancelFunc
	done chan struct{}

	mu   sync.Mutex
	hold *redislock.Hold
	err  error
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector waits for the lock in the background, in the server's queue, and leads while it is held. After a loss it
// queues again. Without options the lock is one of a session: the next scheduler leads as soon as this process ends.
// Close ends it.
func NewElector(locks *redislock.Client, name string, options ...redislock.Option) *Elector {
	if len(options) == 0 {
		options = []redislock.Option{redislock.WithSession()}
	}
	ctx, end := context.WithCancel(context.Background())
	e := &Elector{lock: locks.Mutex(name, options...), end: end, done: make(chan struct{})}
	go e.run(ctx)
	return e
}

func (e *Elector) run(ctx context.Context) {
	defer close(e.done)
	for ctx.Err() == nil {
		hold, err := e.lock.Lock(ctx)
		e.set(hold, err)
		if err != nil {
			return // It waits out all that a wait can help with.
		}
		select {
		case <-hold.Context().Done():
		case <-ctx.Done():
		}
		e.set(nil, nil)
		_ = hold.Unlock(ctx) // Lost, or the end of this elector: what is left ends with its lease.
	}
}

func (e *Elector) set(hold *redislock.Hold, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold, e.err = hold, err
}

// IsLeader is nil while this scheduler leads, else [ErrNotLeader], or the error that ended the election.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil:
		return e.err
	case e.hold == nil || e.hold.IsLost():
		return ErrNotLeader
	}
	return nil
}

// Close gives the leadership back.
func (e *Elector) Close() {
	e.end()
	<-e.done
}
