package redislock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Once computes a value once for all callers (single-flight over many processes): it returns what read finds, or what
// compute returns while this caller alone holds the lock. The callers that wait meanwhile read the new value.
//
// read reports whether there is a value; it runs before the lock is asked for, after the grant, and after the release
// of another caller. compute stores the value where read finds it; its context ends with the cause [ErrLost] if the
// lock is lost, and [FromContext] has the hold. The lock is a mutex with a lease; with [WithAutoRenew] compute may take
// longer than that. [WithWait] limits the wait for another caller, and not read and compute: then [ErrNotMade], if
// there is no value.
//
// An error of compute is that of its caller alone: the next one computes the value. The same holds after a panic, when
// the context ends, and, after the lease, when the process dies. If the lock was lost while compute ran, the result is
// what read finds then, or what compute returned if there is nothing.
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
	// WithWait is the time of all its waits together.
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
		// Done but not there (the lock was held for something else, or the value has gone): ask again.
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
		// Another caller may have made it while this one asked for the lock.
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
		// Another caller may have made the value too: all have what is read now.
		if found, isThere, err := read(ctx); err != nil || isThere {
			return found, err
		}
	case err != nil && !errors.Is(err, ErrUnlocked):
		// The value was made under the lock, whose lease ends it.
		slog.WarnContext(ctx, "redislock: the lock of a computed value could not be released", "key",
			hold.Keys(), "error", err)
	}
	return value, nil
}
