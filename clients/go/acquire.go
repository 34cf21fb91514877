package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// asking is one acquire, from the call to its end. A retry repeats the same bytes, except for the number after BLOCK.
//
// A request normally waits in the server's queue over the shared connection, and a message reports its outcome
// (NOTIFY). It waits for the reply on a dedicated connection instead if the grant is bound to that (WithSession), if
// WAIT counts what was written on it (WithReplicas), or if a message could be about another request of the same token.
type asking struct {
	lock  *Lock
	hold  *hold // of the owner
	ctx   context.Context
	began time.Time
	ends  time.Time // of WithWait; zero: none
	route route
	again resend
	// before and holds are the owner's count in this mode before the request, and after the grant.
	before, holds int
	// otherFence is the fence of the owner's holds in the other mode; 0 if it has none.
	otherFence uint64
	coalesce   bool
	// inner is a command to send after the request, together with the release (Exec). ran is the same command once it has
	// its reply.
	inner []any
	ran   *redis.Cmd
	// mayHaveRun: inner was sent, and its reply was lost. isUnconfirmed: the release after inner failed.
	mayHaveRun, isUnconfirmed bool
	// isUncertain: the outcome of a request is unknown. It may be queued, or granted.
	isUncertain bool
	// isOwed: the message about an earlier slice did not come, so the next message may not be about this slice.
	isOwed bool
	// isMissed: the latest slice ended without a message, over a connection and a subscription that seemed alive.
	isMissed         bool
	isQueuedReported bool // to the observer
}

// take acquires the lock for one owner.
func (a *asking) take() (*Hold, uint64, error) {
	l, h, mode := a.lock, a.hold, a.lock.lockType.mode()
	if l.isWaiting && l.wait > 0 {
		a.ends = time.Now().Add(l.wait)
	}
	if err := a.takeTurn(mode); err != nil {
		return nil, 0, err
	}
	defer h.endTurn(mode)
	now := h.get()
	if now.isLost() || now.state != isOpen {
		return nil, 0, ErrLost
	}
	a.before, a.holds = now.counts[mode], now.counts[mode]+l.lockType.step()
	if now.counts[1-mode] > 0 {
		a.otherFence = now.fence
	}
	got, err := a.acquire()
	defer a.route.close()
	if got.outcome == isDone {
		return nil, got.fence, nil
	}
	if err == nil {
		err = a.checked(got)
	}
	if err == nil && l.replicas > 0 {
		err = a.replicated()
	}
	if err != nil {
		a.withdraw()
		return nil, 0, err
	}
	var session *line // The hold is bound to it.
	if l.isSession {
		session, a.route.own = a.route.own, nil
	}
	hold := publicHold(h, l, got, l.lockType.step())
	if !h.granted(mode, a.holds, got, l.atLeast, session) {
		if h.get().state == wasLost { // Its deadline has passed since the check.
			a.before, a.isUncertain = 0, true
			a.withdraw()
			return nil, 0, ErrLost
		}
		// The owner's holds in the other mode were released meanwhile.
		hold = publicHold(newHold(a.ctx, l, h.token), l, got, l.lockType.step())
		hold.granted(mode, a.holds, got, l.atLeast, session)
	}
	return hold, 0, nil
}

// takeTurn waits for the owner's request under way, within the acquire timeout. An owner sends one request per mode at
// a time, because each states the resulting count.
func (a *asking) takeTurn(mode int) error {
	if a.hold.tryTurn(mode) {
		return nil
	}
	ctx, end := a.ctx, context.CancelFunc(func() {})
	switch {
	case !a.lock.isWaiting:
		ctx, end = context.WithTimeout(ctx, resendFor)
	case !a.ends.IsZero():
		ctx, end = context.WithDeadline(ctx, a.ends)
	}
	defer end()
	if a.hold.takeTurn(ctx, mode) != nil {
		return cmp.Or(a.ctx.Err(), error(&NotAcquiredError{Keys: a.lock.lockType.keys}))
	}
	return nil
}

// checked returns ErrLost if the owner's earlier holds were lost. The new grant is then released.
func (a *asking) checked(got answer) error {
	now := a.hold.get()
	otherHolds := 0
	if a.otherFence != 0 {
		otherHolds = now.counts[1-a.lock.lockType.mode()] // They may have been released meanwhile.
	}
	isShort := otherHolds > 0 && got.holds >= 0 && got.holds < a.holds+otherHolds
	isKnown := now.isLost() && (a.before > 0 || a.otherFence != 0)
	if isShort || isKnown || (a.before > 0 && now.fence != got.fence) {
		a.hold.lose()
		a.before, a.isUncertain = 0, true
		return ErrLost
	}
	return nil
}

// refused reports that nothing was granted.
func (a *asking) refused(err error) error {
	a.lock.notify(a.ctx, EventNotGranted, a.hold.token, 0, time.Since(a.began))
	if refusal := (*NotAcquiredError)(nil); a.lock.tellsHolder && errors.As(err, &refusal) {
		// If the user may not ask, the refusal has no holder.
		if info, asked := a.lock.Info(a.ctx); asked == nil && info != nil && len(info.Holders) > 0 {
			refusal.Holder = info.Holders[0].Owner
		}
	}
	return err
}

func (a *asking) owner() owner { return owner{a.route.key, a.hold.token} }

func (a *asking) words(block time.Duration, channel string) []any {
	words := a.lock.lockType.acquire(a.hold.token, a.holds, a.lock.lease)
	if block > 0 {
		words = append(words, "BLOCK", milliseconds(block))
		if a.coalesce {
			words = append(words, "COALESCE")
		}
	}
	if channel != "" {
		words = append(words, "NOTIFY", channel)
	}
	if a.lock.isSession {
		words = append(words, "SESSION")
	}
	return words
}

// acquire sends requests until the lock is granted, the wait times out, or the context ends.
func (a *asking) acquire() (answer, error) {
	ctx, end := context.WithCancelCause(a.ctx)
	defer end(nil)
	defer context.AfterFunc(a.lock.client.ctx, func() { end(ErrClosed) })()
	if a.lock.isWaiting && a.lock.wait > 0 {
		if a.ends.IsZero() {
			a.ends = time.Now().Add(a.lock.wait)
		}
		// It covers the whole last attempt: connecting, the reply, finding the node of a cluster.
		var limit context.CancelFunc
		ctx, limit = context.WithDeadlineCause(ctx, a.ends.Add(lastAttempt), errNoReply)
		defer limit()
	}
	got, err := a.ask(ctx)
	switch {
	case err != nil && a.ctx.Err() != nil:
		err = a.again.ended(a.ctx.Err())
	case err == errNoReply: // The last attempt of a wait timed out.
		err = a.again.ended(err)
	case err == nil && got.outcome == notGranted:
		err = &NotAcquiredError{Keys: a.lock.lockType.keys}
	}
	return got, err
}

func (a *asking) ask(ctx context.Context) (answer, error) {
	l := a.lock
	isUsed := l.of != nil || l.token != ""
	if isUsed {
		settling, end := ctx, context.CancelFunc(func() {})
		if !l.isWaiting {
			settling, end = context.WithTimeoutCause(ctx, resendFor, errNoReply)
		}
		err := l.client.settled(settling, func(of owner) bool { return of == a.owner() })
		end()
		if err != nil {
			return answer{}, err
		}
	}
	isQueueing := l.isWaiting && l.poll == 0
	a.route.isOwn = l.isSession || l.replicas > 0
	// If the outcome cannot come as a message, try without waiting first.
	isAtOnce := !isQueueing || a.route.isOwn || isUsed || a.inner != nil
	if l.atLeast > l.lease {
		if err := a.prove(ctx); err != nil {
			return answer{}, err
		}
	}
	for {
		was, send := a.isUncertain, a.notified
		switch {
		case isAtOnce:
			send = a.atOnce
		case a.route.isOwn || isUsed:
			send = a.blocked
		}
		a.isUncertain = true
		got, failed := send(ctx)
		if failed == nil && got.outcome == isGranted && a.inner != nil && a.ran == nil {
			failed = a.behind(ctx)
		}
		if failed != nil {
			a.isUncertain = was || failed.isSent
			a.mayHaveRun = a.mayHaveRun || failed.isFinal
			switch code := failed.code(); {
			case ctx.Err() == nil && code == "WRONGTYPE" && l.poll == 0:
				return answer{}, a.wrongType(ctx)
			case ctx.Err() == nil && (code == "WRONGTYPE" || code == "GRACE"):
				got = answer{outcome: notGranted}
			default:
				if err := a.retry(ctx, failed); err != nil {
					return answer{}, err
				}
				continue
			}
		}
		a.again = resend{}
		switch got.outcome {
		case isGranted, isDone:
			a.isUncertain = got.outcome == isGranted && l.replicas > 0
			return got, nil
		case isQueued: // The outcome is unknown: ask again.
			continue
		}
		a.isUncertain = false
		if !l.isWaiting || a.isOver() {
			return got, nil
		}
		if isAtOnce = !isQueueing; l.poll > 0 {
			// Jittered, because clients that poll in step would starve each other.
			if err := sleep(ctx, a.left(jittered(l.poll, 0.5, 1.5))); err != nil {
				return answer{}, err
			}
			if a.isOver() {
				return got, nil
			}
		}
	}
}

// retry pauses after a transient failure. After any other failure, or when the time is up, it returns the error that
// ends the acquire.
func (a *asking) retry(ctx context.Context, failed *failure) error {
	switch {
	case ctx.Err() != nil:
		a.again.interrupted(failed)
		return context.Cause(ctx)
	case !failed.isTransient(), a.isOver(), !a.lock.isWaiting && a.again.isOver(resendFor):
		return failed.error()
	}
	if a.again.failed(failed) {
		a.lock.warn(a.ctx, "the request for the lock failed: retrying", a.hold.token, failed.error())
	}
	return sleep(ctx, a.left(a.again.pause()))
}

// prove detects a time of WithAtLeast that the server will refuse because it is above lock.max-lease. Otherwise only
// the release would fail, after the work. It sends a renewal with that time by an owner that holds nothing, which
// changes nothing. If the time is not above the lease, the acquire itself proves it.
func (a *asking) prove(ctx context.Context) error {
	for {
		_, failed := a.route.send(ctx, late, a.lock.lockType.renew(makeToken(), a.lock.atLeast))
		if failed == nil || ctx.Err() == nil && failed.meansLost() { // The acquire reports a key of another type.
			a.again = resend{}
			return nil
		}
		if err := a.retry(ctx, failed); err != nil {
			return err
		}
	}
}

func (a *asking) isOver() bool { return !a.ends.IsZero() && !time.Now().Before(a.ends) }

// left limits a duration to the rest of the wait.
func (a *asking) left(longest time.Duration) time.Duration {
	if !a.ends.IsZero() {
		return min(longest, max(0, time.Until(a.ends)))
	}
	return longest
}

// block is how long the request stays queued: at most this long.
func (a *asking) block(ctx context.Context, longest time.Duration) time.Duration {
	longest = a.left(longest)
	if deadline, found := ctx.Deadline(); found && a.ends.IsZero() {
		longest = min(longest, time.Until(deadline))
	}
	return max(longest, time.Millisecond)
}

// atOnce sends one request that does not wait.
func (a *asking) atOnce(ctx context.Context) (answer, *failure) {
	if a.inner != nil {
		return a.packet(ctx)
	}
	return a.send(ctx, 0, a.words(0, ""))
}

// blocked waits for one slice over a dedicated connection.
func (a *asking) blocked(ctx context.Context) (answer, *failure) {
	a.route.isOwn = true
	a.reportQueued()
	block := a.block(ctx, slice)
	return a.send(ctx, block, a.words(block, ""))
}

func (a *asking) reportQueued() {
	if !a.isQueuedReported {
		a.isQueuedReported = true
		a.lock.notify(a.ctx, EventQueued, a.hold.token, 0, 0)
	}
}

// send sends one request, whose reply may take block longer than usual.
func (a *asking) send(ctx context.Context, block time.Duration, words []any) (answer, *failure) {
	sent := time.Now()
	got, failed := a.route.packet(ctx, block+a.lock.client.limit(late), words)
	if failed != nil {
		return answer{}, failed
	}
	return a.granted(ctx, got[0].value, sent)
}

// granted reads the reply, and gives a grant its deadline.
func (a *asking) granted(ctx context.Context, reply any, sent time.Time) (answer, *failure) {
	got, failed := answerOf(reply)
	if failed != nil || got.outcome != isGranted {
		return got, failed
	}
	lease := a.lock.lease
	if lease > 0 {
		got.deadline = sent.Add(lease)
	}
	// Ask the server if the reply was late. Also ask it after an upgrade, because the local clock cannot tell whether the
	// holds in the other mode lasted until the grant.
	if !a.isLate(sent) && (a.otherFence == 0 || a.otherFence == got.fence) {
		return got, nil
	}
	asked := time.Now()
	var held *heldReply
	if reply, failed = a.route.send(ctx, late, a.lock.lockType.held(a.hold.token)); failed == nil {
		held, failed = heldOf(reply)
	}
	switch {
	case failed != nil:
		// The lock was granted, whatever the reason of this failure.
		return answer{}, &failure{err: failed.err, isSent: true}
	case held == nil:
		return answer{outcome: notGranted}, nil
	}
	got.holds = held.holds
	if held.ends {
		got.deadline = asked.Add(held.left)
	}
	return got, nil
}

// isLate reports whether the reply came so late that it matters: the lease began with the grant, which may have been a
// slice later than the request.
func (a *asking) isLate(sent time.Time) bool {
	return a.lock.lease > 0 && time.Since(sent) >= a.lock.lease/10
}

// movingSlice is the slice while a slot moves, because its new node accepts no subscription for it yet.
const movingSlice = 250 * time.Millisecond

// notified waits for one slice until a message reports the outcome (NOTIFY).
func (a *asking) notified(ctx context.Context) (answer, *failure) {
	wasMissed := a.isMissed
	a.isMissed = false
	servers, isAsking := a.lock.client.servers, a.route.isAsking
	n, failed := a.route.node(ctx)
	if failed != nil {
		return answer{}, failed
	}
	channel, until := servers.channelOf(a.route.key), context.Background()
	if !isAsking {
		if until, failed = n.inbox.listen(ctx, channel); failed != nil {
			if ctx.Err() == nil {
				a.route.next, a.route.isAsking = servers.note(n, nil, failed)
			}
			return answer{}, &failure{err: failed.err} // The subscription failed, so no request was sent.
		}
	}
	notices := n.inbox.add(a.hold.token)
	defer n.inbox.remove(a.hold.token)
	// It stays queued for two slices, and is sent again after one, so that a client that is paused for longer than
	// lock.keep-place (1 s) keeps its queue position.
	sent, block := time.Now(), a.block(ctx, 2*slice)
	got, failed := a.send(ctx, 0, a.words(block, channel))
	if failed != nil || got.outcome != isQueued {
		if wasMissed && failed == nil && got.outcome == isGranted && !isAsking && !isDelivered(notices) {
			n.inbox.suspect(errNoReply) // The message about this grant did not come, so the subscription may be dead.
		}
		return got, failed
	}
	a.reportQueued()
	again := jittered(slice, 0.8, 1)
	switch {
	case isAsking: // No message comes, so only the next reply can tell.
		again = min(movingSlice, block+lateMessage/2)
	case again >= block-lateMessage:
		again = block + lateMessage/2 // Allow for the delay of the message that the wait has timed out.
	}
	timer := time.NewTimer(again)
	defer timer.Stop()
	wasOwed := a.isOwed
	a.isOwed = true
	for {
		select {
		case message := <-notices:
			if message.Outcome == "timeout" && time.Since(sent) < block-5*time.Millisecond {
				continue // It concerns an earlier slice.
			}
			return a.outcomeOf(ctx, n, message, sent, wasOwed)
		case <-until.Done(): // A message may be lost, or the request has left the queue.
			return got, nil
		case <-a.route.over.ctx.Done():
			return got, nil
		case <-ctx.Done():
			return answer{}, &failure{err: context.Cause(ctx), isSent: true}
		case <-timer.C:
			if a.isOver() {
				if !isAsking {
					n.inbox.suspect(errNoReply) // No message came, so the subscription may be dead.
				}
				a.withdraw()
				return answer{outcome: notGranted}, nil
			}
			a.isMissed = !isAsking
			return got, nil
		}
	}
}

// isDelivered waits briefly for a message, which comes over another connection than the reply.
func isDelivered(notices <-chan notice) bool {
	timer := time.NewTimer(lateMessage / 10)
	defer timer.Stop()
	select {
	case <-notices:
		return true
	case <-timer.C:
		return false
	}
}

// outcomeOf interprets the message about a queued request. It returns isQueued if only the reply to the next request
// can tell.
func (a *asking) outcomeOf(
	ctx context.Context, n *node, message notice, sent time.Time, wasOwed bool,
) (answer, *failure) {
	queued := answer{outcome: isQueued}
	switch message.Outcome {
	case "granted":
		if a.isLate(sent) {
			return queued, nil // Asking again restarts the lease.
		}
		got := answer{outcome: isGranted, fence: message.Fence, slot: -1, holds: -1, received: time.Now()}
		if message.Slot != nil {
			got.slot = *message.Slot
		}
		if a.lock.lease > 0 {
			got.deadline = sent.Add(a.lock.lease)
		}
		return got, nil
	case "done":
		if wasOwed {
			// The message may concern an earlier slice, while this one is queued behind the next holder.
			a.withdraw()
		}
		return answer{outcome: isDone, fence: message.Fence}, nil
	case "timeout":
		a.isOwed = false
		return answer{outcome: notGranted}, nil
	case "cancelled":
		return answer{}, &failure{err: fmt.Errorf("%w: by LOCK.CANCEL", ErrCancelled), isSent: true}
	case "superseded", "unblocked":
		if message.Outcome == "unblocked" {
			n.inbox.suspect(errNoReply)
		}
		if err := sleep(ctx, jittered(longestPause, 0.5, 1)); err != nil {
			return answer{}, &failure{err: err, isSent: true}
		}
	}
	return queued, nil
}

func (a *asking) wrongType(ctx context.Context) error {
	reply, failed := a.route.send(ctx, late, []any{"TYPE", a.route.key})
	if failed != nil {
		return failed.error()
	}
	hint := ""
	if reply == "string" {
		hint = "; a SET NX client may hold it: WithMixed shares the lock with such clients"
	}
	return fmt.Errorf("%w: the key %q is a %v%s", ErrWrongType, a.route.key, reply, hint)
}

// withdraw removes the request from the queue, or releases its grant, as soon as the server can be reached. It delays
// the caller for a second at most.
func (a *asking) withdraw() {
	a.route.close()
	if a.isUncertain {
		a.isUncertain = false
		waitBriefly(a.undo())
	}
}

// undo restores the owner's count from before the request, in the background.
func (a *asking) undo() (done chan struct{}) {
	l, t, token, work := a.lock, &a.lock.lockType, a.hold.token, workDone
	if a.coalesce {
		work = workFailed
	}
	return l.client.inBackground(a.owner(), nil, func() {
		r := l.route()
		// Cancel first: a release alone could arrive just before the grant.
		_, _ = r.query(l.client.ctx, undoFor, l.lease, t.cancel(token))
		_, _ = r.query(l.client.ctx, undoFor, l.lease, t.release(token, a.before, work))
		if a.otherFence == 0 {
			return
		}
		// The owner still holds the other mode, which keeps the fence of an upgrade that was granted meanwhile.
		if found, failed := r.held(l.client.ctx, t, token); failed == nil && found != nil {
			a.hold.set(func(now *holding) { now.fence = found.fence })
		} else if failed == nil {
			a.hold.lose()
		}
	})
}

// waitBriefly waits for background work, for a second at most, and reports whether it has ended.
func waitBriefly(done <-chan struct{}) bool {
	timer := time.NewTimer(kept)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// replicated waits until enough replicas have received the grant, which was made on this same connection.
func (a *asking) replicated() error {
	l, until := a.lock, time.Now().Add(a.lock.replicaTimeout)
	for {
		wait := max(min(slice, time.Until(until)), time.Millisecond)
		// Leave time for the cleanup if no reply comes.
		reply, failed := a.route.own.ask(a.ctx, wait+late-kept, "WAIT", l.replicas, milliseconds(wait))
		if failed != nil {
			return cmp.Or(a.ctx.Err(), l.client.usable(), failed.error())
		}
		confirmed, _ := reply.(int64)
		if confirmed >= int64(l.replicas) {
			a.isUncertain = false
			return nil
		}
		if !time.Now().Before(until) {
			return fmt.Errorf("%w: %d of %d within %v", ErrNotReplicated, confirmed, l.replicas, l.replicaTimeout)
		}
	}
}

// query sends a command that is safe to repeat, and retries it within the limit while that may help; 0 means no limit.
// The failure is that of the last attempt, and isSent if any attempt was.
func (r *route) query(ctx context.Context, attempt, limit time.Duration, words []any) (any, *failure) {
	var again resend
	wasSent := false
	for {
		reply, failed := r.send(ctx, attempt, words)
		if failed != nil && wasSent && !failed.isSent {
			sent := *failed
			sent.isSent = true
			failed = &sent
		}
		wasSent = failed != nil && failed.isSent
		switch {
		case failed == nil || !failed.isTransient():
			return reply, failed
		case ctx.Err() != nil:
			again.interrupted(failed)
		case again.isOver(limit):
			return nil, failed
		default:
			again.failed(failed)
			_ = again.wait(ctx)
		}
		if ctx.Err() != nil {
			return nil, &failure{err: again.ended(ctx.Err()), isSent: failed.isSent}
		}
	}
}

// held returns the server's view of a token's hold; nil if it has none.
func (r *route) held(ctx context.Context, t *lockType, token string) (*heldReply, *failure) {
	reply, failed := r.query(ctx, late, resendFor, t.held(token))
	switch {
	case failed == nil:
		return heldOf(reply)
	case failed.meansLost():
		return nil, nil
	}
	return nil, failed
}
