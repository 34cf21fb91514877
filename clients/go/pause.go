package redislock

import (
	"context"
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
	// longestUndoPause: no place in a queue depends on a cleanup.
	longestUndoPause = time.Second
)

// backoff gives jittered pauses that grow.
type backoff struct {
	next, longest time.Duration
}

func newBackoff() backoff { return backoff{firstPause, longestPause} }

func (b *backoff) pause() time.Duration {
	pause := jittered(b.next, 0.5, 1)
	b.next = min(2*b.next, b.longest)
	return pause
}

// resend tells for how long a request is sent again, counted from its first failure. There is a second try, however
// late the first one failed.
type resend struct {
	backoff
	limit time.Duration // negative: for ever
	until time.Time
}

func resendWithin(limit time.Duration) *resend { return &resend{backoff: newBackoff(), limit: limit} }

// resendBehind is for a cleanup that no caller waits for; a lease of 0 has no end.
func resendBehind(lease time.Duration) *resend {
	if lease == 0 {
		lease = -1
	}
	return &resend{backoff: backoff{firstPause, longestUndoPause}, limit: lease}
}

func (r *resend) isOver() bool {
	switch {
	case r.limit < 0:
		return false
	case r.until.IsZero():
		r.until = time.Now().Add(r.limit)
		return false
	}
	return !time.Now().Before(r.until)
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

// milliseconds is at least 1 and rounded up: the server takes no shorter time.
func milliseconds(d time.Duration) int64 {
	return max(1, int64((d+time.Millisecond-1)/time.Millisecond))
}
