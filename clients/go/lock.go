package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Lock describes what to lock and how. A [Client] creates it. It can be acquired any number of times, by any number of
// goroutines. Each call of its Lock method is a new owner, except with [WithToken] and [AsOwnerOf].
type Lock struct {
	client   *Client
	lockType lockType
	config
}

// Lock acquires the lock. It waits in the server's queue, first come, first served, until the context ends. A broken
// connection, a failover, a moved slot or a socket timeout does not end the wait.
//
// If the context ends first, Lock returns its error, at most a second later, and leaves neither a queued request nor a
// hold behind; if the server cannot be reached, the withdrawal goes on in the background. The error then also wraps
// that of the last attempt. The first retry is logged as a warning, because with a context that never ends Lock waits
// until the server can be reached. With [WithWait], Lock returns [ErrNotAcquired] after that time.
//
// Other errors are:
//   - [ErrDeadlock], [ErrWrongType], [ErrWrongKind] or [ErrTooManyWaiters] if waiting cannot help
//   - [ErrCancelled] if an operator ended the wait
//   - [ErrNotReplicated] if too few replicas confirmed the grant
//   - [ErrLost] if the owner of [AsOwnerOf] has lost its hold
//   - [ErrNoModule], [ErrUsage] and [ErrClosed]
//   - errors of go-redis that no retry resolves, such as a wrong password or a missing permission
func (l *Lock) Lock(ctx context.Context) (*Hold, error) {
	hold, _, err := l.take(ctx, false)
	return hold, err
}

// TryLock acquires the lock if that is possible at once. It returns [ErrNotAcquired] if another owner holds the lock or
// other requests wait. It retries for a second if the server cannot be reached. Other errors are those of [Lock.Lock].
func (l *Lock) TryLock(ctx context.Context) (*Hold, error) {
	once := *l
	once.isWaiting = false
	return once.Lock(ctx)
}

// Do acquires the lock as [Lock.Lock] does, calls work, and releases the lock. The context of work ends with the
// caller's, and with the cause [ErrLost] if the lock is lost; [FromContext] returns the hold. Use [WithAutoRenew] or
// [WithSession] if the work may take longer than the lease.
//
// Do returns the error of work unchanged. A release that fails neither hides it nor delays it by more than a second. If
// work ended because the lock was lost, the error is [ErrLost] as well. A panic propagates after the release. Other
// errors are those of Lock and [Hold.Unlock].
func (l *Lock) Do(ctx context.Context, work func(ctx context.Context) error) error {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	isLost, err := hold.under(ctx, workDone, work)
	switch {
	case err == nil:
		if err = hold.Unlock(ctx); errors.Is(err, ErrUnlocked) {
			err = nil // The work has already unlocked it.
		}
	case isLost && errors.Is(err, context.Canceled) && ctx.Err() == nil:
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// Coalesced is the result of [Lock.LockCoalesced].
type Coalesced struct {
	// Hold is not nil if this caller has to do the work. Unlock then reports to all waiters that it is done;
	// UnlockFailed grants the lock to the next waiter.
	Hold *Hold
	// DoneFence is the fencing token of the hold under which another caller did the work meanwhile; 0 if none did.
	DoneFence uint64
}

// LockCoalesced acquires the lock as [Lock.Lock] does, but ends the wait with "done" when the holder unlocks
// (COALESCE): for work whose result all callers can share. It needs a mutex without [WithMixed] and [WithAtLeast];
// otherwise it returns [ErrUsage]. [Once] is built on it.
func (l *Lock) LockCoalesced(ctx context.Context) (Coalesced, error) {
	if l.lockType.kind != kindMutex || l.poll > 0 || l.atLeast > 0 {
		return Coalesced{}, usage("coalescing needs a mutex, without WithMixed and WithAtLeast")
	}
	hold, done, err := l.take(ctx, true)
	return Coalesced{hold, done}, err
}

// Info returns the state of the lock from the server (LOCK.INFO): the holders with their age and remaining time, and
// the number of waiters. It returns nil if the lock is free and has no waiters. For multiple keys it reports the first
// one that is held.
func (l *Lock) Info(ctx context.Context) (*Info, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	var info *Info
	for _, key := range l.lockType.keys {
		r := route{client: l.client, key: key}
		reply, failed := r.query(ctx, late, resendFor, []any{"LOCK.INFO", key, "COUNT", mostHolders})
		var found *Info
		if failed == nil {
			found, failed = infoOf(reply)
		}
		if failed != nil {
			return nil, failed.error()
		}
		if info = cmp.Or(found, info); info != nil && info.Holding > 0 {
			break
		}
	}
	return info, nil
}

// FromToken returns the hold of a lock that was acquired elsewhere, by its token ([Hold.Detach]): for a job that one
// process enqueues and another one runs. It asks the server at once, and returns [ErrLost] if the token does not hold
// the lock. Its Unlock releases everything that the token holds. With [WithAutoRenew] the hold is renewed from now on.
// [WithSession] and [WithAtLeast] start at the grant, so FromToken returns [ErrUsage] with them.
func (l *Lock) FromToken(ctx context.Context, token string) (*Hold, error) {
	if l.isSession || l.atLeast > 0 {
		return nil, usage("a session and WithAtLeast start at the grant: FromToken cannot be combined with them")
	}
	of := *l
	WithToken(token)(&of)
	if err := of.check(); err != nil {
		return nil, err
	}
	r, asked := of.route(), time.Now()
	found, failed := r.held(ctx, &l.lockType, token)
	if failed != nil {
		return nil, failed.error()
	}
	if found == nil {
		return nil, ErrLost
	}
	got := answer{fence: found.fence, slot: -1, received: time.Now()}
	if found.ends {
		got.deadline = asked.Add(found.left)
	}
	if l.lockType.slots {
		info, err := l.Info(ctx)
		if err != nil || info == nil {
			return nil, cmp.Or(err, ErrLost)
		}
		for _, holder := range info.Holders {
			if holder.Owner == token && holder.Slot != nil {
				got.slot = *holder.Slot
			}
		}
	}
	h := newHold(ctx, &of, token)
	hold := publicHold(h, &of, got, found.holds)
	h.granted(l.lockType.mode(), found.holds, got, 0, nil)
	if l.isRenewed {
		// Renew now: the lease may expire before the first renewal, which is due after a third of it.
		if err := hold.Renew(ctx, l.lease); err != nil {
			h.finish(wasReleased)
			h.end(nil)
			return nil, err
		}
	}
	return hold, nil
}

func (l *Lock) route() route { return route{client: l.client, key: l.lockType.key()} }

// take acquires the lock. done is the fence of the hold that did the work meanwhile.
func (l *Lock) take(ctx context.Context, coalesce bool) (hold *Hold, done uint64, err error) {
	if err := l.usable(ctx); err != nil {
		return nil, 0, err
	}
	h := l.of
	if h == nil {
		h = newHold(ctx, l, l.owner())
	} else if l.isSession {
		// All holds of an owner share the session of the first one.
		again := *l
		again.isSession = false
		l = &again
	}
	a := &asking{lock: l, hold: h, ctx: ctx, began: time.Now(), coalesce: coalesce, route: l.route()}
	hold, done, err = a.take()
	if hold == nil {
		return nil, done, a.refused(err)
	}
	l.notify(ctx, EventGranted, h.token, hold.Fence(), time.Since(a.began))
	return hold, 0, nil
}

func (l *Lock) usable(ctx context.Context) error {
	return cmp.Or(l.check(), l.client.usable(), ctx.Err())
}

func (l *Lock) owner() string {
	if l.token != "" {
		return l.token
	}
	return makeToken()
}
