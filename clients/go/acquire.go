package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// request is one acquire. A retry repeats the same bytes, but for the number after BLOCK.
type request struct {
	lock  *Lock
	token string
	// before and holds are the owner's count in this mode before the request, and after the grant.
	before, holds int
	// beside is the fence of the owner's holds in the other mode; 0: it has none.
	beside   uint64
	coalesce bool
	// isUsed: a message may be about an earlier request of the same token.
	isUsed bool
}

func (r *request) owner() owner { return owner{r.lock.family.key(), r.token} }

func (r *request) words(block time.Duration, channel string) []any {
	words := r.lock.family.acquire(r.token, r.holds, r.lock.lease)
	if block > 0 {
		words = append(words, "BLOCK", milliseconds(block))
		if r.coalesce {
			words = append(words, "COALESCE")
		}
	}
	if channel != "" {
		words = append(words, "NOTIFY", channel)
	}
	if r.lock.isSession {
		words = append(words, "SESSION")
	}
	return words
}

// asking is an acquire that is under way.
type asking struct {
	*request
	hold    *hold // the owner's
	attempt *attempt
	route   route
	ends    time.Time // of WithWait; zero: none
	// isUncertain: the outcome of a request is unknown. It may be queued, or granted.
	isUncertain bool
	// isUntold: the message about an earlier slice did not come, so that one may come that is not about this slice.
	isUntold bool
}

// newAsking: a session is bound to the connection that asks, and WAIT counts what was written on that of the grant.
func newAsking(req *request, h *hold, a *attempt) *asking {
	l := req.lock
	return &asking{request: req, hold: h, attempt: a,
		route: route{client: l.client, key: l.family.key(), isOwn: l.isSession || l.replicas > 0}}
}

// acquire asks until the lock is granted, the wait is over, or the context ends.
func (a *asking) acquire(ctx context.Context) (answer, error) {
	var limit context.CancelFunc
	asked := ctx
	if a.lock.isWaiting && a.lock.wait > 0 {
		a.ends = time.Now().Add(a.lock.wait)
		// It covers the whole last attempt: connecting, the reply, the nodes of a cluster.
		asked, limit = context.WithDeadlineCause(ctx, a.ends.Add(lastAttempt), errNoReply)
		defer limit()
	}
	if err := a.lock.client.settledFor(asked, a.owner()); err != nil {
		return answer{}, err
	}
	got, err := a.ask(asked)
	if err != nil && ctx.Err() != nil {
		return answer{}, ctx.Err()
	}
	return got, err
}

func (a *asking) ask(ctx context.Context) (answer, error) {
	isWaiting := a.lock.isWaiting && a.lock.poll == 0
	resend, backoff := resendWithin(resendFor), newBackoff()
	for {
		was := a.isUncertain
		a.isUncertain = true
		ask := a.atOnce
		if isWaiting {
			ask = a.inQueue
		}
		got, failed := ask(ctx)
		switch {
		case failed == nil:
			backoff = newBackoff()
		case ctx.Err() != nil:
			a.isUncertain = was || failed.isSent
			return answer{}, context.Cause(ctx)
		default:
			a.isUncertain = was || failed.isSent
			switch code := failed.code(); {
			case code == "WRONGTYPE" && a.lock.poll == 0:
				return answer{}, a.wrongType(ctx)
			case (code == "WRONGTYPE" || code == "GRACE") && !isWaiting:
				got = answer{outcome: notGranted}
			case !failed.isTransient():
				return answer{}, failed.error()
			case !a.lock.isWaiting && resend.isOver(), a.isOver():
				return answer{}, failed.error()
			default:
				pause := backoff.pause()
				if !a.ends.IsZero() {
					pause = min(pause, max(0, time.Until(a.ends)))
				}
				if err := sleep(ctx, pause); err != nil {
					return answer{}, err
				}
				continue
			}
		}
		switch got.outcome {
		case isGranted:
			return got, nil
		case isQueued: // Until now, and nothing is known: ask again.
			continue
		}
		a.isUncertain = false
		switch {
		case got.outcome == isDone, !a.lock.isWaiting:
			return got, nil
		case a.lock.poll > 0:
			// Half to one and a half of the interval: clients that poll in step would starve each other.
			pause := jittered(a.lock.poll, 0.5, 1.5)
			if !a.ends.IsZero() && time.Now().Add(pause).After(a.ends) {
				if err := sleep(ctx, max(0, time.Until(a.ends))); err != nil {
					return answer{}, err
				}
				return got, nil
			}
			if err := sleep(ctx, pause); err != nil {
				return answer{}, err
			}
		case a.isOver():
			return got, nil
		}
	}
}

func (a *asking) isOver() bool { return !a.ends.IsZero() && !time.Now().Before(a.ends) }

// block is the length of the next slice.
func (a *asking) block(ctx context.Context, longest time.Duration) time.Duration {
	if deadline, found := ctx.Deadline(); found && a.ends.IsZero() {
		longest = min(longest, time.Until(deadline))
	}
	if !a.ends.IsZero() {
		longest = min(longest, time.Until(a.ends))
	}
	return max(longest, time.Millisecond)
}

// atOnce sends one request that does not wait.
func (a *asking) atOnce(ctx context.Context) (answer, *failure) { return a.send(ctx, a.words(0, "")) }

func (a *asking) send(ctx context.Context, words []any) (answer, *failure) {
	sent := time.Now()
	reply, failed := a.route.send(ctx, late, words)
	if failed != nil {
		return answer{}, failed
	}
	return a.granted(ctx, reply, sent)
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
	// The lease began with the grant, which may be a slice later than the request. And the local clock cannot tell whether
	// the holds in the other mode lasted until the grant.
	isLate := lease > 0 && time.Since(sent) >= lease/10
	if !isLate && (a.beside == 0 || a.beside == got.fence) {
		return got, nil
	}
	asked := time.Now()
	var held *heldReply
	if reply, failed = a.route.send(ctx, late, a.lock.family.held(a.token)); failed == nil {
		held, failed = heldOf(reply)
	}
	switch {
	case failed != nil:
		// Whatever became of this question, the lock was granted.
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

// movingSlice: while a slot moves, its new node takes no subscription for it.
const movingSlice = 250 * time.Millisecond

// inQueue waits for one slice in the server's queue (NOTIFY).
func (a *asking) inQueue(ctx context.Context) (answer, *failure) {
	n, asked, failed := a.route.node(ctx)
	if failed != nil {
		return answer{}, failed
	}
	a.route.asked = asked
	channel := a.lock.client.servers.channelOf(a.route.key)
	if asked == "" {
		listening, cancel := context.WithTimeout(ctx, late)
		failed := n.inbox.listen(listening, channel)
		cancel()
		if failed != nil {
			if ctx.Err() == nil {
				a.lock.client.servers.note(n, a.route.key, failed)
			}
			return answer{}, &failure{err: failed.err} // Of the channel: no request was sent.
		}
	}
	w := n.inbox.add(a.lock.family.keys, a.token)
	defer n.inbox.remove(w)
	block := a.block(ctx, slice)
	sent := time.Now()
	got, failed := a.send(ctx, a.words(block, channel))
	if failed != nil || got.outcome != isQueued {
		return got, failed
	}
	a.attempt.isQueued()
	patience := block + lateMessage
	if asked != "" {
		patience = movingSlice
	}
	if !a.ends.IsZero() {
		// The message about the end of the wait is a little late, as all are.
		patience = min(patience, max(0, time.Until(a.ends))+lateMessage/2)
	}
	return a.told(ctx, n, w, sent, block, patience)
}

// told waits for the message about a request that is queued.
func (a *asking) told(
	ctx context.Context, n *node, w *waiter, sent time.Time, block, patience time.Duration,
) (answer, *failure) {
	queued := answer{outcome: isQueued}
	isLate := a.isUntold
	a.isUntold = true
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var ended <-chan struct{} // With a connection of its own the request leaves the queue.
	if a.route.link != nil {
		ended = a.route.link.net.ended
	}
	for {
		var message notice
		select {
		case message = <-w.notices:
		case <-ended:
			return queued, nil
		case <-ctx.Done():
			return answer{}, &failure{err: context.Cause(ctx), isSent: true}
		case <-timer.C:
			if patience > movingSlice {
				// The server told nothing: the subscription may be dead.
				n.inbox.suspect()
			}
			if a.isOver() {
				a.withdraw(a.before)
				return answer{outcome: notGranted}, nil
			}
			return queued, nil
		}
		switch message.outcome {
		case "granted":
			lease := a.lock.lease
			if a.isUsed || a.lock.replicas > 0 || (lease > 0 && time.Since(sent) >= lease/10) {
				// Of an earlier request; not covered by WAIT; or a lease that began long after the request. Asking
				// again begins it anew.
				return queued, nil
			}
			got := answer{outcome: isGranted, fence: message.fence, slot: message.slot, holds: -1, received: time.Now()}
			if lease > 0 {
				got.deadline = sent.Add(lease)
			}
			return got, nil
		case "done":
			if a.isUsed && a.lock.client.takeLate(a.owner()) {
				return queued, nil
			}
			if isLate {
				// An earlier request may have been answered, while this one is queued behind the next holder.
				a.withdraw(a.before)
			}
			return answer{outcome: isDone, fence: message.fence}, nil
		case "timeout":
			if time.Since(sent) < block-5*time.Millisecond {
				continue // Of an earlier request.
			}
			a.isUntold, a.isUncertain = false, false
			return answer{outcome: notGranted}, nil
		case "cancelled":
			if a.isUsed && a.lock.client.takeLate(a.owner()) {
				return queued, nil
			}
			return answer{}, &failure{err: fmt.Errorf("%w: by LOCK.CANCEL", ErrCancelled), isSent: true}
		case "superseded", "unblocked":
			if message.outcome == "unblocked" {
				n.inbox.suspect()
			}
			if err := sleep(ctx, jittered(longestPause, 0.5, 1)); err != nil {
				return answer{}, &failure{err: err, isSent: true}
			}
			return queued, nil
		default:
			// Interrupted, moved, or a key of another type: the reply to the next request says more.
			return queued, nil
		}
	}
}

// keepLink hands the connection over to the hold that is bound to it.
func (a *asking) keepLink() *link {
	if !a.lock.isSession {
		return nil
	}
	kept := a.route.link
	a.route.link = nil
	return kept
}

func (a *asking) wrongType(ctx context.Context) error {
	reply, failed := a.route.send(ctx, late, []any{"TYPE", a.route.key})
	if failed != nil {
		return failed.error()
	}
	hint := ""
	if reply == "string" {
		hint = "; a SET NX client may hold it: WithMixed takes turns with such clients"
	}
	return fmt.Errorf("%w: the key %q is a %v%s", ErrWrongType, a.route.key, reply, hint)
}

// withdraw leaves neither a queued request nor a hold of it behind, as soon as the server can be reached within the
// lease. It keeps the caller for a second at most. before: the owner's count that is restored.
func (a *asking) withdraw(before int) {
	a.route.close()
	if !a.isUncertain {
		return
	}
	a.isUncertain = false
	l, token := a.lock, a.token
	failedWork := workDone
	if a.coalesce {
		failedWork = workFailed
	}
	if a.isUsed {
		l.client.expectLate(a.owner())
	}
	done := l.client.beside(a.owner(), func() {
		r := route{client: l.client, key: l.family.key()}
		// In this order: a release alone could arrive just before the grant.
		if reply := r.undo(l.family.cancel(token), l.lease); reply == int64(0) && !a.coalesce {
			l.client.takeLate(a.owner()) // It was not queued: no message will come.
		}
		r.undo(l.family.release(token, before, failedWork), l.lease)
		// What the owner still holds is in the other mode. It has the fence of an upgrade that was granted meanwhile.
		if a.beside != 0 {
			if found, failed := r.held(l.client.ctx, &l.family, token); failed == nil && found != nil {
				a.hold.adopt(found.fence)
			} else if failed == nil {
				a.hold.lose(l)
			}
		}
	})
	aside(done)
}

// undo sends the command until it has run, or the lease is over. nil: it has no reply.
func (r *route) undo(words []any, lease time.Duration) any {
	again := resendBehind(lease)
	for {
		reply, failed := r.send(r.client.ctx, undoFor, words)
		if failed == nil || !failed.isTransient() || again.isOver() || again.wait(r.client.ctx) != nil {
			return reply
		}
	}
}

// aside keeps the caller for a second at most.
func aside(done <-chan struct{}) bool {
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
func (a *asking) replicated(ctx context.Context) error {
	a.isUncertain = true
	l := a.lock
	until := time.Now().Add(l.replicaTimeout)
	for {
		wait := max(min(slice, time.Until(until)), time.Millisecond)
		command := redis.NewCmd(ctx, "WAIT", l.replicas, milliseconds(wait))
		// The cleanup after a reply that does not come is part of the time.
		failed := a.route.link.exchange(ctx, wait+late-kept, command)
		if failed == nil {
			failed = failureOf(command.Err())
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if failed != nil {
			return failed.error()
		}
		confirmed, _ := command.Val().(int64)
		if confirmed >= int64(l.replicas) {
			a.isUncertain = false
			return nil
		}
		if !time.Now().Before(until) {
			return fmt.Errorf("%w: %d of %d within %v", ErrNotReplicated, confirmed, l.replicas, l.replicaTimeout)
		}
	}
}

// query sends a command that is safe to repeat, and sends it again while that helps.
func (r *route) query(ctx context.Context, words []any) (any, *failure) {
	again := resendWithin(resendFor)
	for {
		reply, failed := r.send(ctx, late, words)
		if failed == nil || !failed.isTransient() || ctx.Err() != nil || again.isOver() {
			return reply, failed
		}
		if err := again.wait(ctx); err != nil {
			return nil, failed
		}
	}
}

// held is the server's view of a token's hold; nil: none.
func (r *route) held(ctx context.Context, f *family, token string) (*heldReply, *failure) {
	reply, failed := r.query(ctx, f.held(token))
	switch {
	case failed == nil:
		return heldOf(reply)
	case failed.meansLost():
		return nil, nil
	}
	return nil, failed
}

// exec is LOCK.EXEC, sent again only if it certainly did not run.
func (r *route) exec(ctx context.Context, f *family, token string, words []any) *redis.Cmd {
	command := redis.NewCmd(ctx, append([]any{"LOCK.EXEC", f.key(), token}, words...)...)
	again := resendWithin(resendFor)
	for {
		failed := r.process(ctx, late, command)
		if failed == nil {
			return command
		}
		switch code := failed.code(); {
		case code == "NOTHELD":
			command.SetErr(ErrLost)
		case code == "WRONGTYPE":
			// Of the lock's own key, or of the command's.
			if found, asked := r.held(ctx, f, token); asked == nil && found == nil {
				command.SetErr(ErrLost)
			}
		case failed.isTransient() && !failed.isSent && !again.isOver() && again.wait(ctx) == nil:
			command = redis.NewCmd(ctx, command.Args()...)
			continue
		case errors.Is(failed.error(), ErrNoModule):
			command.SetErr(ErrNoModule)
		default:
			command.SetErr(failed.err)
		}
		return command
	}
}
