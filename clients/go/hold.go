package redislock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// hold is the state of one owner's holds on one lock.
//
//	open ──release──▶ released
//	  └──lose──▶ lost
type hold struct {
	lock  *Lock // of the first grant
	token string

	// ctx ends with the cause ErrLost when the hold is lost, and without one when all is released.
	ctx context.Context
	end context.CancelCauseFunc

	turns    [2]chan struct{} // allow one request per mode at a time
	known    atomic.Int32     // number of Holds that the program refers to; counted if something is renewed
	renewing sync.Mutex       // keeps a renewal and the release apart

	mu    sync.Mutex
	now   holding
	timer *time.Timer
	again resend
}

// holding is what the client knows of a hold.
type holding struct {
	state     state
	fence     uint64        // of the latest grant, in any mode
	counts    [2]int        // without those whose release was sent
	lease     time.Duration // of the next renewal
	deadline  time.Time     // zero: none
	since     time.Time
	keptUntil time.Time // WithAtLeast: before this a release only sets the lease
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

func (h *hold) tryTurn(mode int) bool {
	select {
	case h.turns[mode] <- struct{}{}:
		return true
	default:
		return false
	}
}

func (h *hold) endTurn(mode int) { <-h.turns[mode] }

func (h *hold) get() holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// set applies a change if the hold is still open, and reports whether it was.
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

// granted records a grant. An acquire of an owner that holds the lock already never shortens its lease.
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

// extend arms the timer for the next renewal, or for the deadline. The caller holds mu.
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

// shorten records a deadline that a renewal without a reply may have set. The caller holds mu.
func (h *hold) shorten(deadline time.Time) {
	if h.now.session != nil || !h.now.deadline.IsZero() && h.now.deadline.Before(deadline) {
		return
	}
	h.now.deadline = deadline
	if !h.lock.isRenewed {
		h.arm(time.Until(deadline))
	}
}

func (h *hold) arm(after time.Duration) {
	if h.timer == nil {
		h.timer = time.AfterFunc(after, h.keep)
	} else {
		h.timer.Reset(after)
	}
}

// isLost reports whether the hold is lost. Without a session, it is lost once its deadline has passed.
func (n holding) isLost() bool {
	isLate := n.session == nil && !n.deadline.IsZero() && !time.Now().Before(n.deadline)
	return n.state == wasLost || (n.state == isOpen && isLate)
}

// lose ends the hold as lost. It has no effect if the loss is known already, or everything was released.
func (h *hold) lose() {
	if h.finish(wasLost) {
		h.end(ErrLost)
		h.reportLoss()
		if session := h.get().session; session != nil {
			session.end()
		}
	}
}

func (h *hold) reportLoss() {
	now := h.get()
	h.lock.notify(context.WithoutCancel(h.ctx), EventLost, h.token, now.fence, time.Since(now.since))
}

// finish ends the hold and its renewal, and reports whether the hold was open.
func (h *hold) finish(state state) bool {
	return h.set(func(now *holding) {
		now.state = state
		if h.timer != nil {
			h.timer.Stop()
		}
	})
}

// ask sends a command whose reply may say that the hold was lost. After an error, mayHaveRun says whether the server
// may have run it.
func (h *hold) ask(ctx context.Context, words []any) (reply any, mayHaveRun bool, err error) {
	r := h.lock.route()
	reply, failed := r.query(ctx, late, resendFor, words)
	if failed != nil && !failed.meansLost() {
		return nil, failed.isSent, failed.error()
	}
	if failed != nil || reply == nil || reply == int64(0) {
		h.lose()
		return nil, false, ErrLost
	}
	return reply, true, nil
}

// usable returns ErrLost if the hold is known to be lost: the server may still have it, but nothing succeeds under it.
func (h *hold) usable() error {
	if h.get().isLost() {
		h.lose()
		return ErrLost
	}
	return nil
}

// closed is the error of a request during which the hold was lost or released.
func (h *hold) closed() error {
	if h.get().state == wasReleased {
		return ErrUnlocked
	}
	return ErrLost
}

// Hold is an acquired lock. Unlock releases it, and reports if it was no longer held. A nil *Hold holds nothing: its
// fence is 0, IsLost is true, and methods that ask the server return [ErrUsage].
type Hold struct {
	*hold
	lockType lockType
	lock     *Lock
	fence    uint64
	slot     int
	since    time.Time
	holds    int // number of the owner's holds that Unlock releases

	unlock     sync.Mutex // one Unlock at a time
	isUnlocked atomic.Bool
}

func publicHold(inner *hold, l *Lock, got answer, holds int) *Hold {
	h := &Hold{hold: inner, lockType: l.lockType, lock: l, fence: got.fence, slot: got.slot, since: got.received,
		holds: holds}
	// Renewal refers only to the inner hold, so a Hold that the program drops without Unlock expires with its lease.
	if inner.lock.isRenewed || inner.lock.isSession {
		inner.known.Add(1)
		runtime.AddCleanup(h, func(inner *hold) { inner.known.Add(-1) }, inner)
	}
	return h
}

// Fence returns the fencing token, which increases with every grant, over all keys. Send it to the resource that the
// lock protects, which refuses older ones.
func (h *Hold) Fence() uint64 { return h.orNone().fence }

// Token returns the owner ID, as LOCK.INFO shows it.
func (h *Hold) Token() string { return h.orNone().token }

// Slot returns the number of a hold [WithSlot], from 0, which no other holder has. Without WithSlot it returns -1.
func (h *Hold) Slot() int { return h.orNone().slot }

// Keys returns the names that are locked.
func (h *Hold) Keys() []string { return append([]string(nil), h.orNone().lockType.keys...) }

// Context returns a context that ends with the hold: with the cause [ErrLost] if the lock is lost, and with
// context.Canceled after Unlock. It has the values of the context that Lock got, but does not end with it. A loss is
// noticed within a third of the lease with [WithAutoRenew], when the connection ends with [WithSession], and otherwise
// when the lease expires by the local clock, whatever the network does.
func (h *Hold) Context() context.Context { return h.orNone().ctx }

// IsLost reports whether the lock is known to be lost. It does not ask the server: see [Hold.IsHeld].
func (h *Hold) IsLost() bool { return h.orNone().get().isLost() }

// Remaining returns the remaining time of the lease, counted from before the request was sent by a monotonic clock; 0
// if the lease has expired. The second result is false if the lock has no deadline.
func (h *Hold) Remaining() (time.Duration, bool) {
	deadline := h.orNone().get().deadline
	if deadline.IsZero() {
		return 0, false
	}
	return max(0, time.Until(deadline)), true
}

// IsHeld asks the server whether the lock is still held.
func (h *Hold) IsHeld(ctx context.Context) (bool, error) {
	if h == nil {
		return false, errNoHold
	}
	r := h.lock.route()
	found, failed := r.held(ctx, &h.lockType, h.token)
	if failed != nil {
		return false, failed.error()
	}
	return found != nil, nil
}

// Renew restarts the lease: it expires this long from now. Later renewals use this length as well. To add to what is
// left of the lease, use [Hold.Extend].
//
// Renew returns [ErrLost] if the lock was lost, [ErrUnlocked] after an Unlock, [ErrUsage] if lease is not greater than
// 0 or above the server's lock.max-lease, and go-redis's error if the server could not be reached for a second.
func (h *Hold) Renew(ctx context.Context, lease time.Duration) error {
	switch {
	case h == nil:
		return errNoHold
	case h.isUnlocked.Load():
		return ErrUnlocked
	case lease <= 0:
		return usage("a lease must be greater than 0")
	}
	if err := h.usable(); err != nil {
		return err
	}
	sent, before := time.Now(), lease
	// Set it first: an automatic renewal that is sent after this request must not bring the old lease back.
	h.set(func(now *holding) { before, now.lease = now.lease, lease })
	if _, mayHaveRun, err := h.ask(ctx, h.lockType.renew(h.token, lease)); err != nil {
		h.set(func(now *holding) {
			now.lease = before
			if mayHaveRun {
				h.shorten(sent.Add(lease))
			}
			// An automatic renewal under way has sent another lease, and then leaves the timer to this one.
			if h.lock.isRenewed || now.session != nil {
				h.arm(0)
			}
		})
		return err
	}
	if !h.set(func(*holding) { h.extend(sent.Add(lease)) }) {
		return h.closed()
	}
	h.lock.notify(ctx, EventRenewed, h.token, h.fence, 0)
	return nil
}

// Extend adds this long to what is left of the lease, by the server's clock. Later renewals use the resulting length.
// To restart the lease, use [Hold.Renew]; note that extend of the clients for Node and Java does that.
//
// Extend returns the errors of Renew, and [ErrUsage] for a lock without a lease or if by is not greater than 0.
func (h *Hold) Extend(ctx context.Context, by time.Duration) error {
	switch {
	case h == nil:
		return errNoHold
	case h.isUnlocked.Load():
		return ErrUnlocked
	case by <= 0:
		return usage("Extend needs a duration greater than 0")
	}
	if err := h.usable(); err != nil {
		return err
	}
	reply, _, err := h.ask(ctx, h.lockType.held(h.token))
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

// Detach prepares the hand-off of the lock to another process, and returns the token for its [Lock.FromToken], which it
// must call before the lease expires. Nothing is released, this client stops renewing the lease, and the Hold counts as
// unlocked. The lock of a session cannot be handed off: it is released with its connection.
func (h *Hold) Detach() string {
	if h == nil {
		return ""
	}
	now := h.get()
	if h.isUnlocked.CompareAndSwap(false, true) && now.counts[0]+now.counts[1] == h.holds {
		h.finish(wasReleased)
		h.end(nil)
		if now.session != nil {
			now.session.end()
		}
	}
	return h.token
}

// Unlock releases the lock; within the time of [WithAtLeast] it only sets the lease to the rest of that time. The
// context limits how long Unlock waits. If it ends first, or has ended already, the release gets one more second and
// then goes on in the background until it has run or the lease has expired; Unlock returns the context's error.
//
// Unlock returns [ErrLost] if the lock was lost before, [ErrUnlocked] if it was called before, and go-redis's error if
// the server could not be reached for 10 s: the lock is no longer renewed then, and Unlock may be called again.
func (h *Hold) Unlock(ctx context.Context) error { return h.unlockAs(ctx, workDone) }

// UnlockFailed releases the lock after work that was not done: the next of the requests that wait for its result
// ([Once]) is granted the lock. It frees the lock even within the time of [WithAtLeast]. Its errors are those of
// [Hold.Unlock].
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
	r := &releasing{work: done, route: h.lock.route()}
	if !h.releasedAtOnce(ctx, r) {
		released := h.startRelease(r)
		select {
		case <-released:
		case <-ctx.Done():
			if !waitBriefly(released) {
				r.isGone.Store(true)
				return r.ended(ctx.Err())
			}
		}
	}
	err := r.err
	if err != nil && !errors.Is(err, ErrLost) {
		h.isUnlocked.Store(false)
	}
	runtime.KeepAlive(h)
	return err
}

// unlockAfterError releases the lock for a caller that has an error, which the release must neither hide nor delay.
func (h *Hold) unlockAfterError(done work) {
	if !h.isUnlocked.CompareAndSwap(false, true) {
		return // The work has already unlocked it.
	}
	r := &releasing{work: done, route: h.lock.route()}
	r.isGone.Store(true)
	waitBriefly(h.startRelease(r))
}

// releasing is a release. The caller makes the first attempt itself if nothing delays it. Whatever takes longer than
// that attempt, or than the caller's context, goes on in the background.
type releasing struct {
	work  work
	route route

	isGone atomic.Bool             // no caller waits for it any more
	failed atomic.Pointer[failure] // of the latest attempt
	err    error                   // for the caller, once it has ended

	isPrepared      bool // the fields below are set
	left            int  // holds of the owner in this mode
	isLast, wasLost bool
	keptUntil       time.Time
	lasts           time.Duration // until the lease has expired; 0: it does not expire
	session         *line

	isKept bool // the latest attempt sets the lease, and does not release
	first  *attempt
}

// attempt is what an attempt to release returned.
type attempt struct {
	reply  any
	failed *failure
}

func (r *releasing) ended(why error) error {
	var again resend
	if failed := r.failed.Load(); failed != nil {
		again.cause = failed.error()
	}
	return again.ended(why)
}

// releasedAtOnce reports whether the caller's own attempt has ended the release.
func (h *Hold) releasedAtOnce(ctx context.Context, r *releasing) bool {
	if ctx.Err() != nil || !h.prepare(r, false) {
		return false
	}
	first := h.attempt(ctx, r)
	if first.failed == nil || first.failed.isSent || ctx.Err() == nil { // Otherwise nothing has failed yet.
		r.first = &first
	}
	if first.failed != nil || r.isKept && first.reply != int64(1) { // Another attempt follows.
		return false
	}
	r.err = h.conclude(r)
	return true
}

func (h *Hold) startRelease(r *releasing) (released chan struct{}) {
	isKnown := h.IsLost() // The caller may know it from the context of the hold.
	var ready func()
	if !r.isPrepared {
		ready = func() { h.prepare(r, true) }
	}
	return h.lock.client.inBackground(owner{h.lockType.key(), h.token}, ready, func() {
		r.err = h.conclude(r)
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

// prepare records the release, so that no request or renewal of the owner is under way. If one is, it waits, or changes
// nothing and returns false.
func (h *Hold) prepare(r *releasing, mayWait bool) bool {
	mode, inner := h.lockType.mode(), h.hold
	if mayWait {
		_ = inner.takeTurn(context.Background(), mode)
	} else if !inner.tryTurn(mode) {
		return false
	} else if !inner.renewing.TryLock() {
		inner.endTurn(mode)
		return false
	}
	// A loss that was known before remains a loss, even if the server still has the lock.
	if r.wasLost = inner.get().isLost(); r.wasLost {
		inner.lose()
	}
	now := inner.count(mode, -h.holds)
	r.left, r.isLast, r.isPrepared = now.counts[mode], now.counts == [2]int{}, true
	if now.session != nil || !now.deadline.IsZero() {
		r.lasts = max(now.lease, time.Until(now.deadline))
	}
	if r.isLast {
		r.session = now.session
		inner.finish(wasReleased)
		inner.end(nil)
	}
	switch {
	case r.isLast && mayWait:
		inner.renewing.Lock() // After the release, a renewal in flight would find no hold.
	case !r.isLast && !mayWait:
		inner.renewing.Unlock()
	}
	if r.isLast && r.work == workDone {
		r.keptUntil = now.keptUntil
	}
	return true
}

// conclude releases after prepare, and retries while that may help.
func (h *Hold) conclude(r *releasing) error {
	mode, inner := h.lockType.mode(), h.hold
	defer inner.endTurn(mode)
	if r.isLast {
		defer inner.renewing.Unlock()
	}
	isHeld, failed := h.release(r)
	if r.session != nil {
		r.session.end()
	}
	switch {
	case failed != nil && !r.isGone.Load():
		inner.count(mode, h.holds) // The caller may try again.
		return failed.error()
	case isHeld && !r.wasLost:
		h.lock.notify(context.WithoutCancel(h.ctx), EventReleased, h.token, h.fence, time.Since(h.since))
		return nil
	}
	// Without a confirmed release the lock counts as lost.
	if r.isLast && !r.wasLost {
		inner.reportLoss()
	}
	if failed != nil {
		return failed.error()
	}
	inner.lose() // The owner's other holds are lost as well.
	return ErrLost
}

// attempt sends the release.
func (h *Hold) attempt(ctx context.Context, r *releasing) attempt {
	words := h.lockType.release(h.token, r.left, r.work)
	r.isKept = false
	if rest := time.Until(r.keptUntil); !r.keptUntil.IsZero() && rest > 0 {
		words, r.isKept = h.lockType.renew(h.token, rest), true
	}
	reply, failed := r.route.send(ctx, late, words)
	return attempt{reply, failed}
}

// release reports whether the token held the lock.
func (h *Hold) release(r *releasing) (isHeld bool, failed *failure) {
	t := &h.lockType
	var again resend
	for mayBeDone := false; ; {
		var got attempt
		switch first := r.first; {
		case first == nil:
			got = h.attempt(h.lock.client.ctx, r)
		case first.failed != nil && first.failed.left != nil: // The caller's context has ended before its reply.
			got.reply, got.failed = first.failed.left.result()
		default:
			got = *first
		}
		r.first = nil
		number, isNumber := got.reply.(int64)
		failed := got.failed
		switch {
		case failed == nil && !isNumber:
			return false, unexpected(got.reply)
		case failed == nil && r.isKept && number != 1:
			r.keptUntil = time.Time{} // One of multiple keys was lost: release the others.
		case failed == nil:
			// It finds nothing if an earlier release ran whose reply was lost. If it finds some of multiple keys, no
			// earlier one has run.
			return r.isKept || t.wasHeld(number) || (mayBeDone && number <= 0), nil
		case failed.meansLost():
			h.releaseEach(&r.route)
			return false, nil
		default:
			limit := releaseFor
			if r.isGone.Load() && r.left == 0 { // Otherwise the release of the owner's other holds waits for this one.
				limit = r.lasts
			}
			if r.session != nil {
				// The server may notice the end of this connection even if no other one can reach it.
				r.session.end()
			}
			mayBeDone = mayBeDone || failed.isSent || r.session != nil
			if !failed.isTransient() || again.isOver(limit) {
				return false, failed
			}
			r.failed.Store(failed)
			if again.failed(failed) {
				h.lock.warn(h.ctx, "the release failed: retrying", h.token, failed.error())
			}
			if again.wait(h.lock.client.ctx) != nil {
				return false, failed
			}
		}
	}
}

// releaseEach releases each key separately. One of them holds another type, so MLOCK.RELEASE changed nothing.
func (h *Hold) releaseEach(r *route) {
	if h.lockType.kind != kindMulti {
		return
	}
	for _, key := range h.lockType.keys {
		// If this fails, the lease ends the hold.
		_, _ = r.send(h.lock.client.ctx, undoFor, []any{"LOCK.RELEASE", key, h.token})
	}
}

type holdKey struct{}

// FromContext returns the hold under which [Lock.Do] or [Once] runs the work. Outside of them it returns nil, whose
// fence is 0.
func FromContext(ctx context.Context) *Hold {
	h, _ := ctx.Value(holdKey{}).(*Hold)
	return h
}

// under runs work with a context that ends with the caller's context and with the hold. If the work fails, panics, or
// ends its goroutine, the lock is released afterwards. isLost reports whether the loss of the hold ended the context.
func (h *Hold) under(ctx context.Context, failed work, work func(context.Context) error) (isLost bool, err error) {
	under, cancel := context.WithCancelCause(context.WithValue(ctx, holdKey{}, h))
	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	isDone := false
	defer func() {
		isLost = errors.Is(context.Cause(under), ErrLost)
		stop()
		cancel(nil)
		if !isDone {
			h.unlockAfterError(failed)
		}
	}()
	err = work(under)
	isDone = err == nil
	return
}
