package redislock

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// hold is one owner's holds on one lock.
//
//	open ──release──▶ over
//	  └──lose──▶ lost ──release──▶ over
type hold struct {
	client *Client
	lock   *Lock
	token  string

	// ctx ends with the cause ErrLost when the hold is lost, and without one when all is released.
	ctx context.Context
	end context.CancelCauseFunc

	turns [2]chan struct{} // one request of each mode at a time

	mu        sync.Mutex
	state     state
	fenceOf   uint64 // of the latest grant, in any mode
	counts    [2]int
	sure      [2]int // those for which no release was sent: the server has at least these, or they were lost
	deadline  time.Time
	since     time.Time
	keptUntil time.Time // WithAtLeast: before this a release leaves the lock to its lease
	timer     *time.Timer
	link      *link // of a session
	stop      chan struct{}
	length    chan time.Duration // of the lease, after a renewal by hand
	isTold    bool               // the observer was told of the loss
	renewing  sync.Mutex         // a renewal and the release do not cross
	known     atomic.Int32       // how many Holds of it the program has
}

type state int

const (
	isOpen state = iota
	wasLost
	wasReleased
)

func newHold(ctx context.Context, l *Lock, token string) *hold {
	h := &hold{client: l.client, lock: l, token: token, stop: make(chan struct{}), length: make(chan time.Duration, 1)}
	h.ctx, h.end = context.WithCancelCause(context.WithoutCancel(ctx))
	for mode := range h.turns {
		h.turns[mode] = make(chan struct{}, 1)
	}
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

// granted counts WithAtLeast from a new grant, not from a repeated acquire of its owner.
func (h *hold) granted(mode, holds int, got answer, atLeast time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[mode], h.sure[mode] = holds, holds
	isNew := h.fenceOf != got.fence
	h.fenceOf = got.fence
	if h.since.IsZero() {
		h.since = got.received
	}
	if until := got.received.Add(atLeast); isNew && atLeast > 0 && until.After(h.keptUntil) {
		h.keptUntil = until
	}
	h.setDeadline(got.deadline)
}

// setDeadline arms the timer that tells the loss at the local deadline. A session has none.
func (h *hold) setDeadline(deadline time.Time) {
	h.deadline = deadline
	if h.timer != nil {
		h.timer.Stop()
	}
	if deadline.IsZero() || h.link != nil || h.state != isOpen {
		return
	}
	h.timer = time.AfterFunc(time.Until(deadline), func() {
		if h.isLost() {
			h.lose(h.lock)
		}
	})
}

func (h *hold) extend(deadline time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == isOpen {
		h.setDeadline(deadline)
	}
}

func (h *hold) count(mode int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[mode]
}

func (h *hold) surely(mode int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sure[mode]
}

func (h *hold) fence() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fenceOf
}

// adopt: the server holds it under this fence now.
func (h *hold) adopt(fence uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fenceOf = fence
}

func (h *hold) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state == wasReleased
}

func (h *hold) isLost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	isLate := h.link == nil && !h.deadline.IsZero() && !time.Now().Before(h.deadline)
	return h.state == wasLost || (h.state == isOpen && isLate)
}

// remaining is at least 0; hasEnd is false without a deadline.
func (h *hold) remaining() (left time.Duration, hasEnd bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deadline.IsZero() {
		return 0, false
	}
	return max(0, time.Until(h.deadline)), true
}

// lose has no effect if the loss was known before, or all was released.
func (h *hold) lose(l *Lock) {
	h.mu.Lock()
	isNews := h.state == isOpen
	if isNews {
		h.state = wasLost
		h.ended()
	}
	h.mu.Unlock()
	if isNews {
		h.end(ErrLost)
		h.tellLoss(l)
	}
}

func (h *hold) tellLoss(l *Lock) {
	h.mu.Lock()
	isNews := !h.isTold
	h.isTold = true
	since := time.Since(h.since)
	h.mu.Unlock()
	if isNews {
		l.tell(h.ctx, EventLost, h.token, h.fence(), since)
	}
}

// ended stops the timer and what keeps the hold.
func (h *hold) ended() {
	if h.timer != nil {
		h.timer.Stop()
	}
	select {
	case <-h.stop:
	default:
		close(h.stop)
	}
}

// forget stops the renewals of a hold that the program dropped.
func (h *hold) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended()
	if h.link != nil {
		h.link.close()
	}
}

// over: released, or about to be. No loss is told from here on, and the renewals stop.
func (h *hold) over() {
	h.mu.Lock()
	h.state = wasReleased
	h.ended()
	h.mu.Unlock()
	h.end(nil)
}

// renew begins the lease anew, with this length.
func (h *hold) renew(ctx context.Context, f *family, lease time.Duration) error {
	r := route{client: h.client, key: f.key()}
	again := resendWithin(resendFor)
	for {
		sent := time.Now()
		reply, failed := r.send(ctx, late, f.renew(h.token, lease))
		switch {
		case failed == nil && reply == int64(1):
			h.extend(sent.Add(lease))
			return nil
		case failed == nil || failed.meansLost():
			h.lose(h.lock)
			return ErrLost
		case !failed.isTransient() || ctx.Err() != nil || again.isOver():
			return failed.error()
		}
		if err := again.wait(ctx); err != nil {
			return err
		}
	}
}

// Hold is a lock that is held. Unlock gives it back, and says whether it was still held.
type Hold struct {
	*hold
	family  family
	lock    *Lock
	fence   uint64
	slot    int
	since   time.Time
	holds   int // how many of the owner's holds it gives back
	dropped work

	unlock     sync.Mutex // one Unlock at a time
	isUnlocked atomic.Bool
}

func publicHold(inner *hold, l *Lock, got answer, holds int, dropped work) *Hold {
	h := &Hold{hold: inner, family: l.family, lock: l, fence: got.fence, slot: got.slot, since: got.received, holds: holds,
		dropped: dropped}
	// What keeps it does not keep alive what the program has dropped without Unlock: its lease ends the hold.
	inner.known.Add(1)
	runtime.AddCleanup(h, (*hold).dropOne, inner)
	return h
}

// dropOne: the program has dropped one Hold of this owner.
func (h *hold) dropOne() {
	if h.known.Add(-1) == 0 {
		h.forget()
	}
}

// Fence is the fencing token: it grows with every grant, over all keys. Give it to the resource that the lock protects,
// which refuses older ones.
func (h *Hold) Fence() uint64 { return h.fence }

// Token is the owner, as LOCK.INFO shows it.
func (h *Hold) Token() string { return h.token }

// Slot is the number of a hold [WithSlot], which no other holder has, from 0; -1 without.
func (h *Hold) Slot() int { return h.slot }

// Keys are the names that are locked.
func (h *Hold) Keys() []string { return append([]string(nil), h.family.keys...) }

// Context ends when the hold does: with the cause [ErrLost] if it was lost, with context.Canceled after Unlock. It has
// the values of Lock's context, and not its end. A loss is known within a third of the lease where it is renewed, when
// the connection of a session ends, and at the local deadline otherwise, whatever the network does.
func (h *Hold) Context() context.Context { return h.ctx }

// IsLost is true if the lock is known to be lost.
func (h *Hold) IsLost() bool { return h.isLost() }

// Remaining is how long the lease lasts at least, counted from before the request by a monotonic clock; 0 if it is
// over. false: it has no deadline.
func (h *Hold) Remaining() (time.Duration, bool) { return h.remaining() }

// IsHeld asks the server.
func (h *Hold) IsHeld(ctx context.Context) (bool, error) {
	r := route{client: h.client, key: h.family.key()}
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
	case h.isUnlocked.Load():
		return ErrUnlocked
	case lease <= 0:
		return usage("a lease is longer than 0")
	}
	if err := h.renew(ctx, &h.family, lease); err != nil {
		return err
	}
	select {
	case <-h.length:
	default:
	}
	h.length <- lease
	h.lock.tell(ctx, EventRenewed, h.token, h.fence, 0)
	return nil
}

// Extend adds to what is left of the lease, by the server's clock. Errors as of Renew, and [ErrUsage] for a lock
// without a lease.
func (h *Hold) Extend(ctx context.Context, by time.Duration) error {
	if h.isUnlocked.Load() {
		return ErrUnlocked
	}
	r := route{client: h.client, key: h.family.key()}
	found, failed := r.held(ctx, &h.family, h.token)
	switch {
	case failed != nil:
		return failed.error()
	case found == nil:
		h.lose(h.lock)
		return ErrLost
	case !found.ends:
		return usage("a lock without a lease has nothing to extend")
	}
	return h.Renew(ctx, found.left+by)
}

// Exec runs a command on the server only while the lock is held, in one step (LOCK.EXEC). Its keys are in the lock's
// slot. The command's error is [ErrLost] if the lock was lost: then it did not run. After a broken connection it may
// have run.
func (h *Hold) Exec(ctx context.Context, args ...any) *redis.Cmd {
	r := route{client: h.client, key: h.family.key()}
	command := r.exec(ctx, &h.family, h.token, args)
	if errors.Is(command.Err(), ErrLost) {
		h.lose(h.lock)
	}
	return command
}

// Detach hands the lock over to another process: nothing is released, this client stops renewing it, and the Hold
// counts as unlocked. The other process calls [Lock.FromToken] within the lease.
func (h *Hold) Detach() string {
	if h.isUnlocked.CompareAndSwap(false, true) && h.count(h.family.mode()) == h.holds && h.count(1-h.family.mode()) == 0 {
		h.over()
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
	h.unlock.Lock()
	defer h.unlock.Unlock()
	if !h.isUnlocked.CompareAndSwap(false, true) {
		return ErrUnlocked
	}
	result := make(chan error, 1)
	var isGone atomic.Bool
	released := h.client.beside(owner{h.family.key(), h.token}, func() { result <- h.giveBack(done, &isGone) })
	select {
	case <-released:
	case <-ctx.Done():
		if !aside(released) {
			isGone.Store(true)
			return ctx.Err()
		}
	}
	err := <-result
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
	var isGone atomic.Bool
	isGone.Store(true)
	aside(h.client.beside(owner{h.family.key(), h.token}, func() {
		if err := h.giveBack(done, &isGone); err != nil {
			slog.Warn("redislock: released behind an error of the work", "key", h.family.keys, "owner", h.token, "error", err)
		}
	}))
}

// giveBack releases, and sends that again while it helps. isGone: no caller waits for it.
func (h *Hold) giveBack(done work, isGone *atomic.Bool) error {
	mode, inner := h.family.mode(), h.hold
	_ = inner.takeTurn(context.Background(), mode)
	defer inner.endTurn(mode)
	left := max(0, inner.count(mode)-h.holds)
	isLast := left == 0 && inner.count(1-mode) == 0
	wasLost := inner.isLost()
	var keptUntil time.Time
	inner.mu.Lock()
	if isLast && done == workDone {
		keptUntil = inner.keptUntil
	}
	inner.sure[mode] = left
	link := inner.link
	inner.mu.Unlock()
	if isLast {
		// A renewal behind the release would find no hold: one that is under way ends.
		inner.over()
		inner.renewing.Lock()
		defer inner.renewing.Unlock()
	} else {
		link = nil
	}
	isHeld, failed := h.release(left, keptUntil, done, wasLost, isGone, link)
	if link != nil {
		link.close()
	}
	if failed != nil && !isGone.Load() {
		return failed.error()
	}
	inner.mu.Lock()
	inner.counts[mode] = left
	inner.mu.Unlock()
	switch {
	case failed != nil:
		// Without a confirmed release the lock counts as lost.
		if isLast {
			inner.tellLoss(h.lock)
		}
		return failed.error()
	case !isHeld:
		inner.lose(h.lock)
		inner.tellLoss(h.lock)
		return ErrLost
	}
	h.lock.tell(context.WithoutCancel(h.ctx), EventReleased, h.token, h.fence, time.Since(h.since))
	return nil
}

// release is false if the token did not hold the lock.
func (h *Hold) release(
	left int, keptUntil time.Time, done work, wasLost bool, isGone *atomic.Bool, session *link,
) (bool, *failure) {
	f := &h.family
	r := route{client: h.client, key: f.key()}
	patient, gone := resendWithin(releaseFor), resendBehind(h.lock.lease)
	if left > 0 {
		gone.limit = releaseFor // Behind it waits the release of the owner's other holds.
	}
	mayBeDone := false
	for {
		words, isKept := f.release(h.token, left, done), false
		if rest := time.Until(keptUntil); !keptUntil.IsZero() && rest > 0 {
			words, isKept = f.renew(h.token, rest), true
		}
		reply, failed := r.send(h.client.ctx, late, words)
		if failed != nil {
			if failed.meansLost() {
				h.releaseEach(&r)
				return false, nil
			}
			over, again := patient.isOver(), patient
			if isGone.Load() {
				over, again = gone.isOver(), gone
			}
			if !failed.isTransient() || over {
				return false, failed
			}
			mayBeDone = mayBeDone || failed.isSent || session != nil
			if session != nil {
				// The server may see its end although no other connection reaches it.
				session.close()
			}
			if again.wait(h.client.ctx) != nil {
				return false, failed
			}
			continue
		}
		number, isNumber := reply.(int64)
		switch {
		case !isNumber:
			return false, unexpected(reply)
		case isKept && number == 1:
			return !wasLost, nil
		case isKept:
			keptUntil = time.Time{} // One of several keys was lost: the others are released.
			continue
		}
		// It finds nothing where an earlier one, whose reply was lost, has released the lock. If it finds some of several
		// keys, no earlier one has run. A loss that was known before stays one, whatever the server has.
		return !wasLost && (f.wasHeld(number) || (mayBeDone && number <= 0)), nil
	}
}

// releaseEach: one of several keys has become something else, and MLOCK.RELEASE changed nothing.
func (h *Hold) releaseEach(r *route) {
	if h.family.kind != kindMulti {
		return
	}
	for _, key := range h.family.keys {
		// A hold that this does not release ends with its lease.
		_, _ = r.send(h.client.ctx, undoFor, []any{"LOCK.RELEASE", key, h.token})
	}
}

type holdKey struct{}

// FromContext is the hold under which [Lock.Do] or [Once] runs the work; nil outside of them.
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

func (h *Hold) do(ctx context.Context, work func(context.Context) error) error {
	isLost, err := h.under(ctx, h.dropped, work)
	switch {
	case err == nil:
		if err = h.Unlock(ctx); errors.Is(err, ErrUnlocked) {
			err = nil // The work has unlocked it itself.
		}
	case isLost && errors.Is(err, context.Canceled) && ctx.Err() == nil:
		err = errors.Join(ErrLost, err)
	}
	return err
}
