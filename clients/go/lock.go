package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Lock is what to lock, and how: made by a [Client] and its options, and taken any number of times, by any number of
// goroutines. Each Lock is a new owner, but with [WithToken] and [AsOwnerOf].
type Lock struct {
	client *Client
	family family
	config
}

// Lock waits for the lock until the context ends, in the server's queue: first come, first served. A broken connection,
// a failover, a moved slot do not end the wait, nor does a time-out of the socket.
//
// The context's error, if it ends first: then nothing is queued and nothing is held, or is withdrawn in the background
// where the server cannot be reached, and the call has taken a second longer at most. If the server could not be asked,
// the error is also that of the last attempt, and the first retry is logged as a warning: with a context without end
// Lock waits until the server can be reached. With [WithWait], [ErrNotAcquired] when that time is over. [ErrDeadlock],
// [ErrWrongType], [ErrWrongKind], [ErrTooManyWaiters] if waiting cannot help; [ErrCancelled] by an operator;
// [ErrNotReplicated]; [ErrNoModule]; [ErrUsage]; [ErrLost] if the owner of [AsOwnerOf] has lost its hold; go-redis's
// errors that no retry mends, such as a wrong password or a missing permission.
func (l *Lock) Lock(ctx context.Context) (*Hold, error) {
	hold, _, err := l.take(ctx, false)
	return hold, err
}

// TryLock takes the lock if that is possible at once; else [ErrNotAcquired], by another owner or while others wait. It
// asks for a second if the server cannot be reached. Other errors as of Lock.
func (l *Lock) TryLock(ctx context.Context) (*Hold, error) {
	once := *l
	once.isWaiting = false
	return once.Lock(ctx)
}

// Do runs the work while it holds the lock, which it waits for as Lock does. The work's context ends with the caller's,
// and with the cause [ErrLost] when the lock is lost; [FromContext] has the hold. Use [WithAutoRenew] or [WithSession]
// where the work may take longer than the lease.
//
// The work's error is returned as it is, and never hidden or delayed by a release that fails (a second at most); where
// the work ended since the lock was lost, the error is [ErrLost] too. A panic passes through behind the release. Other
// errors as of Lock and [Hold.Unlock].
func (l *Lock) Do(ctx context.Context, work func(ctx context.Context) error) error {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	isLost, err := hold.under(ctx, workDone, work)
	switch {
	case err == nil:
		if err = hold.Unlock(ctx); errors.Is(err, ErrUnlocked) {
			err = nil // The work has unlocked it itself.
		}
	case isLost && errors.Is(err, context.Canceled) && ctx.Err() == nil:
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// Coalesced is how [Lock.LockCoalesced] ended.
type Coalesced struct {
	// Hold, if this caller is to do the work: Unlock answers all waiters that it is done, UnlockFailed grants the lock
	// to the next waiter.
	Hold *Hold
	// DoneFence is that of the grant under which another caller did the work meanwhile. 0: none did.
	DoneFence uint64
}

// LockCoalesced waits as Lock does, but is told "done" when the holder unlocks (COALESCE): for work whose result all
// can share. Only of a mutex, without [WithMixed] and [WithAtLeast]. See [Once], which does all of it.
func (l *Lock) LockCoalesced(ctx context.Context) (Coalesced, error) {
	if l.family.kind != kindMutex || l.poll > 0 || l.atLeast > 0 {
		return Coalesced{}, usage("coalescing needs a mutex, without WithMixed and WithAtLeast")
	}
	hold, done, err := l.take(ctx, true)
	return Coalesced{hold, done}, err
}

// Info is what LOCK.INFO tells: the holders, with age and time left, and how many wait; nil if the lock is free and not
// waited for. Of several keys, the first one that is held.
func (l *Lock) Info(ctx context.Context) (*Info, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	var info *Info
	for _, key := range l.family.keys {
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

// FromToken is the hold of a lock that was taken elsewhere, by its token ([Hold.Detach]): for a job that is queued here
// and done there. It asks the server at once. Its Unlock gives back all that the token holds. With [WithAutoRenew] it
// is renewed from here on. Not with [WithSession] and [WithAtLeast], which begin with the grant. [ErrLost] if the token
// does not hold the lock.
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
	found, failed := r.held(ctx, &l.family, token)
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
	if l.family.slots {
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
	h.granted(l.family.mode(), found.holds, got, 0, nil)
	if l.isRenewed {
		// Less than the third of the lease may be left after which the first renewal is due.
		if err := hold.Renew(ctx, l.lease); err != nil {
			return nil, err
		}
	}
	return hold, nil
}

func (l *Lock) route() route { return route{client: l.client, key: l.family.key()} }

// take acquires; done is the fence of the hold that did the work meanwhile.
func (l *Lock) take(ctx context.Context, coalesce bool) (hold *Hold, done uint64, err error) {
	if err := l.usable(ctx); err != nil {
		return nil, 0, err
	}
	h := l.of
	if h == nil {
		h = newHold(ctx, l, l.owner())
	} else if l.isSession {
		// The binding of the first hold is that of all.
		again := *l
		again.isSession = false
		l = &again
	}
	a := &asking{lock: l, hold: h, ctx: ctx, began: time.Now(), coalesce: coalesce, route: l.route()}
	hold, done, err = a.take()
	if hold == nil {
		return nil, done, a.refused(err)
	}
	l.tell(ctx, EventGranted, h.token, hold.Fence(), time.Since(a.began))
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
