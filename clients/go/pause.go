package redislock

import (
	"context"
	"fmt"
	"time"
)

const (
	// slice is the longest BLOCK. No socket waits for it: the outcome is a message.
	slice = 5 * time.Second
	// late: after this no reply will come.
	late = 5 * time.Second
	// resendFor is how long a request without BLOCK is sent again: long enough for a reconnect and a slot's move.
	resendFor = time.Second
	// releaseFor is how long a release is sent again while its caller waits: long enough for a failover.
	releaseFor = 10 * time.Second
	// lastAttempt is how late the last attempt of a wait may end.
	lastAttempt = time.Second
	// kept is how long a caller that gives up waits for the cleanup, which goes on in the background.
	kept = time.Second
	// undoFor limits one attempt of a cleanup, and making a connection for a retry.
	undoFor = 2 * time.Second

	firstPause = 10 * time.Millisecond
	// longestPause is far below lock.keep-place (1 s): the waiter keeps its place in the queue.
	longestPause = 250 * time.Millisecond
)

// resend tells how a request is sent again, after jittered pauses that grow, and for how long. It begins with its first
// failure. There is a second try, however late the first one failed.
type resend struct {
	next     time.Duration
	since    time.Time
	cause    error // of the latest failure
	isLogged bool
}

// failed records why the request is sent again. It is true where that is to be logged: once, at the first failure.
// Redirections are part of every move of a slot, so only those are logged that have gone on for a while.
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

// interrupted: the context ended during this attempt. Of the first one this is all that is known.
func (r *resend) interrupted(f *failure) {
	if r.cause == nil && !f.isSent {
		r.cause = f.err
	}
}

// ended is the error of a request that ends without a reply: why it ends, and what has kept it from its reply.
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

// isOver: a limit of 0 has no end.
func (r *resend) isOver(limit time.Duration) bool {
	if r.since.IsZero() {
		r.since = time.Now()
		return false
	}
	return limit > 0 && time.Since(r.since) >= limit
}

// wait pauses; its error is the context's.
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
