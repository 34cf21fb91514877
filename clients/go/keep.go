package redislock

import (
	"context"
	"time"
)

// soonest is the shortest time for the reply to a renewal.
const soonest = 50 * time.Millisecond

// keep is called by the timer of a hold. It renews the lease for its full length after each third of it, so that a loss
// is noticed within a third; with a session it asks LOCK.HELD instead. With neither it reports the loss at the
// deadline.
func (h *hold) keep() {
	now := h.get()
	isForgotten := h.known.Load() == 0 // The program has dropped it without Unlock, so let the lease end it.
	switch {
	case now.isLost(), isForgotten && now.session != nil:
		h.lose()
		return
	case isForgotten, !h.lock.isRenewed && now.session == nil:
		h.set(func(now *holding) {
			if !now.deadline.IsZero() {
				h.arm(time.Until(now.deadline))
			}
		})
		return
	}
	h.renewing.Lock()
	defer h.renewing.Unlock()
	if now = h.get(); now.state != isOpen {
		return
	}
	sent := time.Now()
	isHeld, failed := h.renewed(now)
	switch {
	case failed != nil && !failed.meansLost() && now.session == nil && !h.get().isLost():
		if h.again.failed(failed) && h.ctx.Err() == nil { // Otherwise a release has ended this renewal.
			h.lock.warn(h.ctx, "the renewal failed: retrying until the lease expires", h.token, failed.error())
		}
		h.set(func(*holding) { h.arm(min(h.again.pause(), now.lease/3)) })
	case !isHeld:
		h.lose()
	case h.set(func(after *holding) {
		h.again = resend{}
		if after.lease == now.lease { // Otherwise the caller renews after this one, and records that deadline.
			h.extend(sent.Add(now.lease))
		}
	}) && now.session == nil:
		h.lock.notify(h.ctx, EventRenewed, h.token, now.fence, 0)
	}
}

// renewed sends the renewal, or the check of a session.
func (h *hold) renewed(now holding) (isHeld bool, failed *failure) {
	t, ctx := &h.lock.lockType, h.lock.client.ctx
	if now.session != nil {
		reply, failed := now.session.ask(ctx, late, t.held(h.token)...)
		return reply != nil, failed
	}
	// Wait for the reply no longer than until the deadline, or until a release wants to run.
	limit := late
	if !now.deadline.IsZero() {
		limit = max(time.Until(now.deadline), soonest)
	}
	ctx, cancel := context.WithTimeoutCause(h.ctx, limit, errNoReply)
	defer cancel()
	r := h.lock.route()
	reply, failed := r.send(ctx, late, t.renew(h.token, now.lease))
	return reply == int64(1), failed
}
