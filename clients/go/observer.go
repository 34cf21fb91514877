package redislock

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// EventKind is the kind of an [Event].
type EventKind string

// The kinds of events.
const (
	// EventQueued is sent when the request waits in the server's queue.
	EventQueued EventKind = "queued"
	// EventGranted is sent at a grant. Event.Time is the time since the call.
	EventGranted EventKind = "granted"
	// EventNotGranted is sent when the call ends without a grant, for any reason. Event.Time is its duration.
	EventNotGranted EventKind = "not granted"
	// EventRenewed is sent when this client has renewed the lease. The server's renewals of a session are not reported.
	EventRenewed EventKind = "renewed"
	// EventLost is sent once when the lock is known to be lost. Event.Time is the time since the grant.
	EventLost EventKind = "lost"
	// EventReleased is sent after a release. Event.Time is the time since the grant.
	EventReleased EventKind = "released"
)

// Event describes what happened to a lock. An observer ([WithObserver]) receives it, and log/slog's default logger logs
// it at debug level.
type Event struct {
	Kind EventKind
	// Lock is the lock type: mutex, reentrant, read, write, semaphore or multi.
	Lock string
	// Keys are the names of the lock.
	Keys []string
	// Owner is the owner ID.
	Owner string
	// Fence is the fencing token of the grant; 0 if there was none.
	Fence uint64
	// Time is the duration of the wait or the hold, for the kinds that document it.
	Time time.Duration
	// Context is that of the caller, or of the background work: for spans.
	Context context.Context
}

// warn logs a problem that the caller would otherwise learn only at the end, or never.
func (l *Lock) warn(ctx context.Context, what, token string, err error) {
	slog.WarnContext(ctx, "redislock: "+what, "key", strings.Join(l.lockType.keys, ", "), "owner", token, "error", err)
}

func (l *Lock) notify(ctx context.Context, kind EventKind, token string, fence uint64, after time.Duration) {
	if logger := slog.Default(); logger.Enabled(ctx, slog.LevelDebug) {
		logger.DebugContext(ctx, "redislock: "+string(kind), "key", strings.Join(l.lockType.keys, ", "), "owner", token,
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
	l.observer(Event{kind, l.lockType.kind, l.lockType.keys, token, fence, after, ctx})
}
