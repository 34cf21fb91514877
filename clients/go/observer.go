package redislock

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// EventKind is what happens to a lock, from its Lock to its end.
type EventKind string

// The kinds of events.
const (
	// EventQueued: the request waits in the server's queue.
	EventQueued EventKind = "queued"
	// EventGranted: with the time from the call to the grant.
	EventGranted EventKind = "granted"
	// EventNotGranted: the call ended without a grant, for whatever reason; with its time.
	EventNotGranted EventKind = "not granted"
	// EventRenewed: the lease has begun anew, by this client. The server's own renewals of a session are not told.
	EventRenewed EventKind = "renewed"
	// EventLost: known to be lost, told once; with the time since the grant.
	EventLost EventKind = "lost"
	// EventReleased: with the time since the grant.
	EventReleased EventKind = "released"
)

// Event is told to an observer ([WithObserver]), and logged at debug by log/slog's default logger.
type Event struct {
	Kind EventKind
	// Lock is the family: mutex, reentrant, read, write, semaphore or multi.
	Lock string
	Keys []string
	// Owner is the token.
	Owner string
	// Fence is that of the grant; 0: there was none.
	Fence uint64
	// Time is the wait or the hold, of the kinds that say so.
	Time time.Duration
	// Context is the caller's, or of what goes on in the background its own: for spans.
	Context context.Context
}

// warn logs what the caller would otherwise not hear of, or only in the end.
func (l *Lock) warn(ctx context.Context, what, token string, err error) {
	slog.WarnContext(ctx, "redislock: "+what, "key", strings.Join(l.family.keys, ", "), "owner", token, "error", err)
}

func (l *Lock) tell(ctx context.Context, kind EventKind, token string, fence uint64, after time.Duration) {
	if logger := slog.Default(); logger.Enabled(ctx, slog.LevelDebug) {
		logger.DebugContext(ctx, "redislock: "+string(kind), "key", strings.Join(l.family.keys, ", "), "owner", token,
			"fence", fence, "after", after)
	}
	if l.observer == nil {
		return
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			slog.ErrorContext(ctx, "redislock: the observer panicked", "event", string(kind), "panic", panicked)
		}
	}()
	l.observer(Event{kind, l.family.kind, l.family.keys, token, fence, after, ctx})
}
