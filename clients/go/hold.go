package redislock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// hold is one owner's holds on one lock.
//
//	open ──release──▶ released
//	  └──lose──▶ lost
type hold struct {
	lock  *Lock // of the first grant
	token string

	// ctx ends with the cause ErrLost when the hold is lost, and without one when all is released.
	ctx context.Context
	end context.CancelCauseFunc

	turns    [2]chan struct{} // one request of each mode at a time
	known    atomic.Int32     // how many Holds of it the program has
	renewing sync.Mutex       // a renewal and the release do not cross

	mu    sync.Mutex
	now   holding
	timer *time.Timer
	again resend
}

// holding is what the client knows of a hold.
type holding struct {
	state     state
	fence     uint64        // of the latest grant, in any mode
	counts    [2]int        // without those for which a release was sent
	lease     time.Duration // of the next renewal
	deadline  time.Time     // zero: none
	since     time.Time
	keptUntil time.Time // WithAtLeast: before this a release leaves the lock to its lease
	session   *line
}

type state int

const (
	isOpen state = iota
	wasLost
	wasReleased
)

func newHold(ctx context.Context, l *Lock, token string) *hold {
	h := &hold{lock: l, token: token, now: holding{lease: l.lease}}
	h.turns = [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
	h.ctx, h.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return h
}

func (h *hold) takeTurn(ctx context.Context, mode int) error {
	select {
	case h.turns[mode] <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *hold) endTurn(mode int) { <-h.turns[mode] }

func (h *hold) get() holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// set changes what is open yet; false: it is not.
func (h *hold) set(change func(now *holding)) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now.state != isOpen {
		return false
	}
	change(&h.now)
	return true
}

func (h *hold) count(mode, more int) holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.counts[mode] += more
	return h.now
}

// granted: an acquire of an owner that holds the lock already never shortens its lease.
func (h *hold) granted(mode, holds int, got answer, atLeast time.Duration, session *line) bool {
	return h.set(func(now *holding) {
		now.counts[mode] = holds
		if until := got.received.Add(atLeast); now.fence != got.fence && atLeast > 0 && until.After(now.keptUntil) {
			now.keptUntil = until
		}
		now.fence = got.fence
		isFirst := now.since.IsZero()
		if isFirst {
			now.since, now.session = got.received, session
		}
		if isFirst && session != nil {
			context.AfterFunc(session.ctx, h.lose)
		}
		if isFirst || (!now.deadline.IsZero() && (got.deadline.IsZero() || got.deadline.After(now.deadline))) {
			h.extend(got.deadline)
		}
	})
}

// extend arms the timer for the next renewal, or for the deadline; mu is held.
func (h *hold) extend(deadline time.Time) {
	h.now.deadline = deadline
	switch {
	case h.lock.isRenewed || h.now.session != nil:
		h.arm(h.now.lease / 3)
	case !deadline.IsZero():
		h.arm(time.Until(deadline))
	case h.timer != nil:
		h.timer.Stop()
	}
}

func (h *hold) arm(after time.Duration) {
	if h.timer == nil {
		h.timer = time.AfterFunc(after, h.keep)
	} else {
		h.timer.Reset(after)
	}
}

// isLost: the deadline is over too, where there is no session.
func (n holding) isLost() bool {
	isLate := n.session == nil && !n.deadline.IsZero() && !time.Now().Before(n.deadline)
	return n.state == wasLost || (n.state == isOpen && isLate)
}

// lose has no effect if the loss was known before, or all was released.
func (h *hold) lose() {
	if h.over(wasLost) {
		h.end(ErrLost)
		h.tellLoss()
		if session := h.get().session; session != nil {
			session.end()
		}
	}
}

func (h *hold) tellLoss() {
	now := h.get()
	h.lock.tell(context.WithoutCancel(h.ctx), EventLost, h.token, now.fence, time.Since(now.since))
}

// over ends the hold and what keeps it; false: that was over before.
func (h *hold) over(state state) bool {
	return h.set(func(now *holding) {
		now.state = state
		if h.timer != nil {
			h.timer.Stop()
		}
	})
}

// ask sends a command that a loss answers too.
func (h *hold) ask(ctx context.Context, words []any) (reply any, err error) {
	r := h.lock.route()
	reply, failed := r.query(ctx, late, resendFor, words)
	if failed != nil && !failed.meansLost() {
		return nil, failed.error()
	}
	if failed != nil || reply == nil || reply == int64(0) {
		h.lose()
		return nil, ErrLost
	}
	return reply, nil
}

// Hold is a lock that is held. Unlock gives it back, and says whether it was still held. A nil *Hold holds nothing: its
// fence is 0, it is lost, and what asks the server about it fails with [ErrUsage].
type Hold struct {
	*hold
	family family
	lock   *Lock
	fence  uint64
	slot   int
	since  time.Time
	holds  int // how many of the owner's holds it gives back

	unlock     sync.Mutex // one Unlock at a time
	isUnlocked atomic.Bool
}

func publicHold(inner *hold, l *Lock, got answer, holds int) *Hold {
	h := &Hold{hold: inner, family: l.family, lock: l, fence: got.fence, slot: got.slot, since: got.received, holds: holds}
	// What keeps it does not keep alive what the program has dropped without Unlock: its lease ends the hold.
	inner.known.Add(1)
	runtime.AddCleanup(h, func(inner *hold) { inner.known.Add(-1) }, inner)
	return h
}

// Fence is the fencing token: it grows with every grant, over all keys. Give it to the resource that the lock protects,
// which refuses older ones.
func (h *Hold) Fence() uint64 { return h.orNone().fence }

// Token is the owner, as LOCK.INFO shows it.
func (h *Hold) Token() string { return h.orNone().token }

// Slot is the number of a hold [WithSlot], which no other holder has, from 0; -1 without.
func (h *Hold) Slot() int { return h.orNone().slot }

// Keys are the names that are locked.
func (h *Hold) Keys() []string { return append([]string(nil), h.orNone().family.keys...) }

// Context ends when the hold does: with the cause [ErrLost] if it was lost, with context.Canceled after Unlock. It has
// the values of Lock's context, and not its end. A loss is known within a third of the lease where it is renewed, when
// the connection of a session ends, and at the local deadline otherwise, whatever the network does.
func (h *Hold) Context() context.Context { return h.orNone().ctx }

// IsLost is true if the lock is known to be lost.
func (h *Hold) IsLost() bool { return h.orNone().get().isLost() }

// Remaining is how long the lease lasts at least, counted from before the request by a monotonic clock; 0 if it is
// over. false: it has no deadline.
func (h *Hold) Remaining() (time.Duration, bool) {
	deadline := h.orNone().get().deadline
	if deadline.IsZero() {
		return 0, false
	}
	return max(0, time.Until(deadline)), true
}

// IsHeld asks the server.
func (h *Hold) IsHeld(ctx context.Context) (bool, error) {
	if h == nil {
		return false, errNoHold
	}
	r := h.lock.route()
	found, failed := r.held(ctx, &h.family, h.token)
	if failed != nil {
		return false, failed.error()
	}
	return found != nil, nil
}

// Renew begins the lease anew from now, with this length, which later renewals have too. [ErrLost]; go-redis's error if
// the server could not be asked for a second.
func (h *Hold) Renew(ctx context.Context, lease time.Duration) error {
	switch {
	case h == nil:
		return errNoHold
	case h.isUnlocked.Load():
		return ErrUnlocked
	case lease <= 0:
		return usage("a lease must be greater than 0")
	}
	sent := time.Now()
	if _, err := h.ask(ctx, h.family.renew(h.token, lease)); err != nil {
		return err
	}
	h.set(func(now *holding) {
		now.lease = lease
		h.extend(sent.Add(lease))
	})
	h.lock.tell(ctx, EventRenewed, h.token, h.fence, 0)
	return nil
}

// Extend adds to what is left of the lease, by the server's clock. Errors as of Renew, and [ErrUsage] for a lock
// without a lease, or if nothing is added.
func (h *Hold) Extend(ctx context.Context, by time.Duration) error {
	switch {
	case h == nil:
		return errNoHold
	case h.isUnlocked.Load():
		return ErrUnlocked
	case by <= 0:
		return usage("Extend needs a duration greater than 0")
	}
	reply, err := h.ask(ctx, h.family.held(h.token))
	if err != nil {
		return err
	}
	found, failed := heldOf(reply)
	switch {
	case failed != nil:
		return failed.error()
	case !found.ends:
		return usage("a lock without a lease cannot be extended")
	}
	return h.Renew(ctx, plus(found.left, by))
}

// Detach hands the lock over to another process: nothing is released, this client stops renewing it, and the Hold
// counts as unlocked. The other process calls [Lock.FromToken] within the lease. A session's lock ends here, with its
// connection.
func (h *Hold) Detach() string {
	if h == nil {
		return ""
	}
	now := h.get()
	if h.isUnlocked.CompareAndSwap(false, true) && now.counts[0]+now.counts[1] == h.holds {
		h.over(wasReleased)
		h.end(nil)
		if now.session != nil {
			now.session.end()
		}
	}
	return h.token
}

// Unlock gives the lock back; within [WithAtLeast] it leaves it to its lease. It does so with a context that has ended,
// too. [ErrLost] if the lock was lost before; [ErrUnlocked] after an Unlock; go-redis's error if the server could not
// be told for 10 s: then nothing renews the lock, and Unlock may be called again. If the context ends first, the
// release has a second more, and goes on in the background until it has run or the lease is over; the error is the
// context's.
func (h *Hold) Unlock(ctx context.Context) error { return h.unlockAs(ctx, workDone) }

// UnlockFailed is Unlock after work that was not done: of the requests that wait for its result ([Once]) the next is
// granted the lock. It frees the lock also within [WithAtLeast].
func (h *Hold) UnlockFailed(ctx context.Context) error { return h.unlockAs(ctx, workFailed) }

func (h *Hold) unlockAs(ctx context.Context, done work) error {
	if h == nil {
		return errNoHold
	}
	h.unlock.Lock()
	defer h.unlock.Unlock()
	if !h.isUnlocked.CompareAndSwap(false, true) {
		return ErrUnlocked
	}
	var r releasing
	released := h.beside(done, &r)
	select {
	case <-released:
	case <-ctx.Done():
		if !aside(released) {
			r.isGone.Store(true)
			return r.ended(ctx.Err())
		}
	}
	err := r.err
	if err != nil && !errors.Is(err, ErrLost) {
		h.isUnlocked.Store(false)
	}
	runtime.KeepAlive(h)
	return err
}

// unlockBehind is for a caller with an error of its own, which must be neither hidden nor delayed.
func (h *Hold) unlockBehind(done work) {
	if !h.isUnlocked.CompareAndSwap(false, true) {
		return // The work has unlocked it itself.
	}
	var r releasing
	r.isGone.Store(true)
	aside(h.beside(done, &r))
}

// releasing is a release that runs beside its caller.
type releasing struct {
	isGone atomic.Bool             // no caller waits for it
	failed atomic.Pointer[failure] // the latest attempt
	err    error                   // the caller's, when it is over
}

func (r *releasing) ended(why error) error {
	var again resend
	if failed := r.failed.Load(); failed != nil {
		again.cause = failed.error()
	}
	return again.ended(why)
}

func (h *Hold) beside(done work, r *releasing) (released chan struct{}) {
	isKnown := h.IsLost() // By its context, too.
	return h.lock.client.beside(owner{h.family.key(), h.token}, func() {
		r.err = h.giveBack(done, r)
		switch {
		case r.err == nil || !r.isGone.Load():
		case errors.Is(r.err, ErrLost):
			if !isKnown {
				h.lock.warn(h.ctx, "the lock was lost before its release", h.token, r.err)
			}
		default:
			h.lock.warn(h.ctx, "the release in the background failed: the lock will expire with its lease", h.token, r.err)
		}
	})
}

// giveBack releases, and sends that again while it helps.
func (h *Hold) giveBack(done work, r *releasing) error {
	mode, inner := h.family.mode(), h.hold
	_ = inner.takeTurn(context.Background(), mode)
	defer inner.endTurn(mode)
	// A loss that is known before stays one, whatever the server has.
	wasLost := inner.get().isLost()
	if wasLost {
		inner.lose()
	}
	now := inner.count(mode, -h.holds)
	left, isLast := now.counts[mode], now.counts == [2]int{}
	session, keptUntil := now.session, now.keptUntil
	if isLast {
		// A renewal behind the release would find no hold: one that is under way ends.
		inner.over(wasReleased)
		inner.end(nil)
		inner.renewing.Lock()
		defer inner.renewing.Unlock()
	} else {
		session = nil
	}
	if !isLast || done == workFailed {
		keptUntil = time.Time{}
	}
	isHeld, failed := h.release(left, keptUntil, done, r, session)
	if session != nil {
		session.end()
	}
	switch {
	case failed != nil && !r.isGone.Load():
		inner.count(mode, h.holds) // It may be unlocked again.
		return failed.error()
	case isHeld && !wasLost:
		h.lock.tell(context.WithoutCancel(h.ctx), EventReleased, h.token, h.fence, time.Since(h.since))
		return nil
	}
	// Without a confirmed release the lock counts as lost.
	if isLast && !wasLost {
		inner.tellLoss()
	}
	if failed != nil {
		return failed.error()
	}
	inner.lose() // The owner's other holds too.
	return ErrLost
}

// release is false if the token did not hold the lock.
func (h *Hold) release(
	left int, keptUntil time.Time, done work, under *releasing, session *line,
) (isHeld bool, failed *failure) {
	f, r := &h.family, h.lock.route()
	var again resend
	for mayBeDone := false; ; {
		words, isKept := f.release(h.token, left, done), false
		if rest := time.Until(keptUntil); !keptUntil.IsZero() && rest > 0 {
			words, isKept = f.renew(h.token, rest), true
		}
		reply, failed := r.send(h.lock.client.ctx, late, words)
		number, isNumber := reply.(int64)
		switch {
		case failed == nil && !isNumber:
			return false, unexpected(reply)
		case failed == nil && isKept && number != 1:
			keptUntil = time.Time{} // One of several keys was lost: the others are released.
		case failed == nil:
			// It finds nothing if an earlier release, with a lost reply, has run. If it finds some of several keys, no
			// earlier one has.
			return isKept || f.wasHeld(number) || (mayBeDone && number <= 0), nil
		case failed.meansLost():
			h.releaseEach(&r)
			return false, nil
		default:
			limit := releaseFor
			if under.isGone.Load() && left == 0 { // Behind others waits the release of the owner's other holds.
				limit = h.lock.lease
			}
			if session != nil {
				// The server may see its end although no other connection reaches it.
				session.end()
			}
			mayBeDone = mayBeDone || failed.isSent || session != nil
			if !failed.isTransient() || again.isOver(limit) {
				return false, failed
			}
			under.failed.Store(failed)
			if again.failed(failed) {
				h.lock.warn(h.ctx, "the release failed: retrying", h.token, failed.error())
			}
			if again.wait(h.lock.client.ctx) != nil {
				return false, failed
			}
		}
	}
}

// releaseEach: one of several keys has become something else, and MLOCK.RELEASE changed nothing.
func (h *Hold) releaseEach(r *route) {
	if h.family.kind != kindMulti {
		return
	}
	for _, key := range h.family.keys {
		// A hold that this does not release ends with its lease.
		_, _ = r.send(h.lock.client.ctx, undoFor, []any{"LOCK.RELEASE", key, h.token})
	}
}

type holdKey struct{}

// FromContext is the hold under which [Lock.Do] or [Once] runs the work; nil outside of them, with a fence of 0.
func FromContext(ctx context.Context) *Hold {
	h, _ := ctx.Value(holdKey{}).(*Hold)
	return h
}

// under runs work with a context that ends with the caller's and with the hold. Where the work fails, panics, or ends
// its goroutine, the lock is given back behind it. isLost: the hold's loss ended the context.
func (h *Hold) under(ctx context.Context, failed work, work func(context.Context) error) (isLost bool, err error) {
	under, cancel := context.WithCancelCause(context.WithValue(ctx, holdKey{}, h))
	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	isDone := false
	defer func() {
		isLost = errors.Is(context.Cause(under), ErrLost)
		stop()
		cancel(nil)
		if !isDone {
			h.unlockBehind(failed)
		}
	}()
	err = work(under)
	isDone = err == nil
	return
}
