package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Exec acquires the lock, runs one command on the server and releases the lock, all in one packet and as a new owner.
// The keys of the command must be in the slot of the lock. If the lock is held, Exec waits as [Lock.Lock] does, and
// sends the command and the release in one packet after the grant; with [WithSession] over a dedicated connection.
//
// The error of the returned command says whether it ran:
//   - the command's own error: it ran, and that error says how far it got
//   - [ErrNotRun], which also wraps [ErrNotAcquired], [ErrLost] or another error of Lock: it did not run
//   - any other error, of the connection or the context: it may have run, and is not sent again
//
// While the slot of its keys moves, the command is sent again until the wait ends, because neither node runs a command
// on multiple keys if one of them is missing. A lock without a lease gets one of 30 s here, and nothing is renewed.
// Exec returns [ErrUsage] with [WithToken], [AsOwnerOf], [WithAtLeast], [WithReplicas] and [WithSlot].
func (l *Lock) Exec(ctx context.Context, args ...any) *redis.Cmd {
	command, err := l.exec(ctx, args)
	if err != nil {
		return failedCmd(ctx, args, err)
	}
	return command
}

// TryExec is [Lock.Exec] without waiting: if the lock is not free, the command's error is [ErrNotAcquired], as that of
// [Lock.TryLock].
func (l *Lock) TryExec(ctx context.Context, args ...any) *redis.Cmd {
	once := *l
	once.isWaiting = false
	return once.Exec(ctx, args...)
}

func (l *Lock) exec(ctx context.Context, args []any) (*redis.Cmd, error) {
	switch {
	case len(args) == 0:
		return nil, notRun(usage("Exec needs a command"))
	case l.token != "" || l.of != nil || l.atLeast > 0 || l.replicas > 0 || l.lockType.slots:
		return nil, notRun(usage("Exec cannot be combined with WithToken, AsOwnerOf, WithAtLeast, WithReplicas or WithSlot"))
	}
	inner, err := arguments(args)
	if err = cmp.Or(err, l.usable(ctx)); err != nil {
		return nil, notRun(err)
	}
	leased := *l
	if leased.lease == 0 { // Without a lease, a process that dies meanwhile would leave the lock behind.
		leased.lease = defaultLease
	}
	a := &asking{lock: &leased, hold: newHold(ctx, &leased, makeToken()), ctx: ctx, began: time.Now(), inner: inner,
		holds: l.lockType.step(), route: l.route()}
	got, err := a.acquire()
	if err != nil {
		a.withdraw()
		if err = a.refused(err); !a.mayHaveRun {
			err = notRun(err)
		}
		return nil, err
	}
	a.route.close()
	granted, ends := time.Since(a.began), EventReleased
	if errors.Is(a.ran.Err(), ErrLost) || a.isUnconfirmed { // Without a confirmed release it counts as lost.
		ends = EventLost
	}
	l.notify(ctx, EventGranted, a.hold.token, got.fence, granted)
	l.notify(ctx, ends, a.hold.token, got.fence, time.Since(got.received))
	return a.ran, nil
}

// parts returns the command and the release.
func (a *asking) parts() [][]any {
	t, token := &a.lock.lockType, a.hold.token
	return [][]any{t.exec(token, a.inner), t.release(token, a.before, workDone)}
}

// packet sends the acquire, the command and the release at once.
func (a *asking) packet(ctx context.Context) (answer, *failure) {
	parts := a.parts()
	replies, failed := a.route.packet(ctx, a.lock.client.limit(late), a.words(0, ""), parts[0], parts[1])
	if failed != nil {
		failed.isFinal = failed.isSent
		return answer{}, failed
	}
	got, failed := answerOf(replies[0].value)
	if failed == nil && got.outcome == isGranted {
		failed = a.executed(replies[1], replies[2])
	}
	return got, failed
}

// behind sends the command and the release after a grant.
func (a *asking) behind(ctx context.Context) *failure {
	replies, failed := a.route.packet(ctx, a.lock.client.limit(late), a.parts()...)
	if failed != nil && failed.code() == "ASK" { // The key has moved to the node that granted the lock.
		replies, failed = a.route.packet(ctx, a.lock.client.limit(late), a.parts()...)
	}
	if failed != nil && (replies == nil || !isReply(failed.err)) { // The lock is held, whatever failed.
		return &failure{err: failed.err, isSent: true, isFinal: failed.isSent}
	}
	return a.executed(replies[0], replies[1])
}

// executed reads the replies after a grant. After a failure that is not final, the command did not run, and everything
// is sent again.
func (a *asking) executed(command, released reply) *failure {
	failed, freed := failureOf(command.err), failureOf(released.err)
	switch {
	case failed == nil:
	case failed.isSent:
		failed.isFinal = true
		return failed
	case failed.code() == "NOTHELD", failed.code() == "WRONGTYPE" && freed != nil && freed.code() == "WRONGTYPE":
		command.err = notRun(ErrLost)
	case !a.lock.client.servers.isOfCommand(failed):
		return &failure{err: failed.err, isSent: true}
	}
	a.ran, a.isUnconfirmed = commandOf(a.ctx, a.lock.lockType.exec(a.hold.token, a.inner), command), freed != nil
	if freed != nil && !freed.meansLost() {
		a.undo()
	}
	return nil
}

// commandOf returns a command with its reply, as go-redis would.
func commandOf(ctx context.Context, words []any, got reply) *redis.Cmd {
	command := redis.NewCmd(ctx, words...)
	command.SetVal(got.value)
	command.SetErr(got.err)
	return command
}

// Exec runs a command on the server only while the lock is held, atomically (LOCK.EXEC). The keys of the command must
// be in the slot of the lock.
//
// The error of the returned command is its own, or [ErrNotRun] if it did not run, which also wraps [ErrLost] if the
// lock was lost. After any other error, of the connection or the context, the command may have run. While the slot of
// its keys moves, the command is sent again until the context or the hold ends.
func (h *Hold) Exec(ctx context.Context, args ...any) *redis.Cmd {
	if h == nil {
		return failedCmd(ctx, args, notRun(errNoHold))
	}
	inner, err := arguments(args)
	if err != nil {
		return failedCmd(ctx, args, notRun(err))
	}
	r, servers := h.lock.route(), h.lock.client.servers
	var again resend
	for {
		if err := h.usable(); err != nil {
			return failedCmd(ctx, args, notRun(err))
		}
		words := h.lockType.exec(h.token, inner)
		got, failed := r.packet(ctx, r.client.limit(late), words)
		switch {
		case failed == nil:
			return commandOf(ctx, words, got[0])
		case h.isLostBy(ctx, failed):
			h.lose()
			return failedCmd(ctx, args, notRun(ErrLost))
		case errors.Is(failed.error(), ErrNoModule):
			return failedCmd(ctx, args, notRun(ErrNoModule))
		case failed.isSent && ctx.Err() != nil:
			return failedCmd(ctx, args, ctx.Err())
		case failed.isSent || r.over != nil && servers.isOfCommand(failed):
			return failedCmd(ctx, args, failed.err)
		case ctx.Err() != nil:
			again.interrupted(failed)
			return failedCmd(ctx, args, notRun(again.ended(ctx.Err())))
		case h.ctx.Err() != nil:
			return failedCmd(ctx, args, notRun(ErrLost))
		case !failed.isTransient() || !failed.isRedirection() && again.isOver(resendFor):
			return failedCmd(ctx, args, notRun(failed.error()))
		}
		if again.failed(failed) {
			h.lock.warn(ctx, "the command did not run: retrying", h.token, failed.error())
		}
		_ = again.wait(ctx)
	}
}

// isLostBy reports whether the failure means that the lock was lost. WRONGTYPE may concern the lock's key or the
// command's own.
func (h *Hold) isLostBy(ctx context.Context, failed *failure) bool {
	if failed.code() == "WRONGTYPE" {
		r := h.lock.route()
		found, asked := r.held(ctx, &h.lockType, h.token)
		return asked == nil && found == nil
	}
	return failed.code() == "NOTHELD"
}

// isOfCommand reports whether an error reply to LOCK.EXEC is the command's own, and not a refusal after which nothing
// ran. Outside a cluster TRYAGAIN is the command's own, on an adopted key.
func (s *servers) isOfCommand(failed *failure) bool {
	return isReply(failed.err) && (!failed.isTransient() || s.cluster == nil && failed.code() == "TRYAGAIN")
}

func notRun(err error) error { return fmt.Errorf("%w: %w", ErrNotRun, err) }

// failedCmd returns a new command with the error. The one that was sent may still be written to.
func failedCmd(ctx context.Context, args []any, err error) *redis.Cmd {
	command := redis.NewCmd(ctx, args...)
	command.SetErr(err)
	return command
}
