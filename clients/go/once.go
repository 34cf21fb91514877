package redislock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Once returns the value that read finds. If there is none, one caller computes it and the others wait: single-flight,
// or request coalescing, over many processes.
//
// read reports whether there is a value. It runs before the lock is requested, after the grant, and after the release
// of another caller. compute must store the value where read finds it. Its context ends with the cause [ErrLost] if the
// lock is lost, and [FromContext] returns the hold. The lock must be a mutex with a lease; with [WithAutoRenew] compute
// may take longer than that. [WithWait] limits the wait for another caller, but not read and compute. If there is no
// value after that time, Once returns [ErrNotMade].
//
// If compute fails, only its own caller gets the error, and the next caller computes the value. The same happens after
// a panic, when the context ends, and, once the lease has expired, when the process dies. If the lock is lost while
// compute runs, Once returns what read finds then, or what compute returned if read finds nothing.
func Once[T any](
	ctx context.Context,
	lock *Lock,
	read func(ctx context.Context) (value T, isThere bool, err error),
	compute func(ctx context.Context) (T, error),
) (T, error) {
	var none T
	if lock.lease == 0 {
		return none, usage("Once needs a lease: without one, a caller that dies would keep all others waiting")
	}
	// WithWait limits the sum of all waits.
	rest, ends := *lock, time.Now().Add(lock.wait)
	for {
		if value, isThere, err := read(ctx); err != nil || isThere {
			return value, err
		}
		got, err := rest.LockCoalesced(ctx)
		switch {
		case errors.Is(err, ErrNotAcquired):
			value, isThere, failed := read(ctx)
			if failed != nil || isThere {
				return value, failed
			}
			return none, fmt.Errorf("%w: %w", ErrNotMade, err)
		case err != nil:
			return none, err
		case got.Hold != nil:
			return computeUnder(ctx, got.Hold, read, compute)
		}
		// Done, but no value (the lock was held for something else, or the value was evicted): try again.
		if lock.wait > 0 {
			rest.wait = max(1, time.Until(ends))
		}
	}
}

func computeUnder[T any](
	ctx context.Context,
	hold *Hold,
	read func(context.Context) (T, bool, error),
	compute func(context.Context) (T, error),
) (T, error) {
	var value T
	_, err := hold.under(ctx, workFailed, func(under context.Context) (err error) {
		// Another caller may have stored it while this one was acquiring the lock.
		var isThere bool
		if value, isThere, err = read(under); err != nil || isThere {
			return err
		}
		if err = under.Err(); err == nil {
			value, err = compute(under)
		}
		return err
	})
	if err != nil {
		return value, err
	}
	switch err := hold.Unlock(ctx); {
	case errors.Is(err, ErrLost):
		// Another caller may have computed the value as well: return what all callers read.
		if found, isThere, err := read(ctx); err != nil || isThere {
			return found, err
		}
	case err != nil && !errors.Is(err, ErrUnlocked):
		// The value was computed under the lock, so return it. The lease ends the hold.
		slog.WarnContext(ctx, "redislock: the lock of a computed value could not be released", "key",
			hold.Keys(), "error", err)
	}
	return value, nil
}
