package redislock

import (
	"context"
	"fmt"
	"time"
)

const (
	// slice is the longest BLOCK. No socket waits that long, because a message reports the outcome.
	slice = 5 * time.Second
	// late is how long to wait for a reply. A connection without one counts as dead.
	late = 5 * time.Second
	// resendFor is how long a request without BLOCK is retried: long enough for a reconnect and for a slot to move.
	resendFor = time.Second
	// releaseFor is how long a release is retried while its caller waits: long enough for a failover.
	releaseFor = 10 * time.Second
	// lastAttempt is how long the last attempt may go on after the acquire timeout.
	lastAttempt = time.Second
	// kept is how long a cancelled caller waits for the cleanup, which then goes on in the background.
	kept = time.Second
	// undoFor limits one attempt of a cleanup, and opening a connection for a retry.
	undoFor = 2 * time.Second

	firstPause = 10 * time.Millisecond
	// longestPause is far below lock.keep-place (1 s), so that the waiter keeps its queue position.
	longestPause = 250 * time.Millisecond
)

// resend decides when and for how long a request is sent again, after growing, jittered pauses. It starts with the
// first failure. A request is always tried twice, however late the first attempt failed.
type resend struct {
	next     time.Duration
	since    time.Time
	cause    error // of the latest failure
	isLogged bool
}

// failed records why the request is sent again, and reports whether to log it: once, at the first failure. Every slot
// move causes redirections, so those are logged only if they last.
func (r *resend) failed(f *failure) bool {
	if r.since.IsZero() {
		r.since = time.Now()
	}
	r.cause = f.error()
	if r.isLogged || f.isRedirection() && time.Since(r.since) < resendFor {
		return false
	}
	r.isLogged = true
	return true
}

// interrupted records that the context ended during this attempt, unless an earlier one already has a cause.
func (r *resend) interrupted(f *failure) {
	if r.cause == nil && !f.isSent {
		r.cause = f.err
	}
}

// ended is the error of a request that ends without a reply: why it ends, and what prevented the reply.
func (r *resend) ended(why error) error {
	if r.cause == nil || r.cause == why {
		return why
	}
	return fmt.Errorf("%w: %w", why, r.cause)
}

func (r *resend) pause() time.Duration {
	r.next = min(max(2*r.next, firstPause), longestPause)
	return jittered(r.next, 0.5, 1)
}

// isOver reports whether the limit since the first failure has passed; 0 means no limit.
func (r *resend) isOver(limit time.Duration) bool {
	if r.since.IsZero() {
		r.since = time.Now()
		return false
	}
	return limit > 0 && time.Since(r.since) >= limit
}

// wait pauses, and returns the context's error if that ends first.
func (r *resend) wait(ctx context.Context) error { return sleep(ctx, r.pause()) }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
