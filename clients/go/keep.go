package redislock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// soonest is the shortest time for the reply to a renewal.
const soonest = 50 * time.Millisecond

// keep starts what the lock's options ask for. link: the connection of a session.
func (h *hold) keep(f *family, link *link) {
	switch {
	case h.lock.isSession && link != nil:
		h.mu.Lock()
		h.link = link
		h.setDeadline(h.deadline)
		h.mu.Unlock()
		go h.watchSession(*f, h.lock.lease)
	case h.lock.isRenewed:
		go h.renewals(*f, h.lock.lease)
	}
}

// renewals renews the lease for its full length after each third of it, so that a loss is noticed within a third.
func (h *hold) renewals(f family, lease time.Duration) {
	r := route{client: h.client, key: f.key()}
	backoff, pause := newBackoff(), lease/3
	for {
		timer := time.NewTimer(pause)
		select {
		case <-h.stop:
			timer.Stop()
			return
		case <-h.client.ctx.Done():
			timer.Stop()
			return
		case lease = <-h.length:
			timer.Stop()
			pause = lease / 3 // It was just renewed by hand.
			continue
		case <-timer.C:
		}
		h.renewing.Lock()
		isHeld, failed := h.renewOnce(&r, &f, lease)
		h.renewing.Unlock()
		switch {
		case h.isOver():
			return
		case failed != nil && !failed.meansLost() && !h.isLost():
			pause = min(backoff.pause(), lease/3)
		case !isHeld:
			h.lose(h.lock)
			return
		default:
			h.lock.tell(h.ctx, EventRenewed, h.token, h.fence(), 0)
			backoff, pause = newBackoff(), lease/3
		}
	}
}

func (h *hold) renewOnce(r *route, f *family, lease time.Duration) (bool, *failure) {
	if h.isOver() {
		return false, nil
	}
	left, _ := h.remaining()
	// No reply is waited for beyond the deadline, nor for a release that waits for this renewal.
	ctx, cancel := context.WithTimeout(h.client.ctx, max(left, soonest))
	defer cancel()
	stop := context.AfterFunc(h.ctx, cancel)
	defer stop()
	sent := time.Now()
	reply, failed := r.send(ctx, late, f.renew(h.token, lease))
	if failed != nil {
		return false, failed
	}
	if reply != int64(1) {
		return false, nil
	}
	h.extend(sent.Add(lease))
	return true, nil
}

// watchSession tells the loss when the connection ends, or when LOCK.HELD, asked after each third of the lease, says
// so.
func (h *hold) watchSession(f family, lease time.Duration) {
	h.mu.Lock()
	link := h.link
	h.mu.Unlock()
	for {
		timer := time.NewTimer(lease / 3)
		select {
		case <-h.stop:
			timer.Stop()
			return
		case <-h.client.ctx.Done():
			timer.Stop()
			link.close()
			h.lose(h.lock)
			return
		case lease = <-h.length:
			timer.Stop()
			continue
		case <-link.net.ended:
			timer.Stop()
			h.lose(h.lock)
			return
		case <-timer.C:
		}
		sent := time.Now()
		command := redis.NewCmd(h.ctx, f.held(h.token)...)
		failed := link.exchange(h.client.ctx, late, command)
		if failed == nil {
			failed = failureOf(command.Err())
		}
		found, _ := heldOf(command.Val())
		if failed != nil || found == nil {
			h.lose(h.lock)
			link.close()
			return
		}
		h.extend(sent.Add(lease))
	}
}
