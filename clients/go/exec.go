package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Exec takes the lock, runs one command on the server, and gives the lock back: all in one packet, as an owner of its
// own. Its keys are in the lock's slot. A lock that is held is waited for as Lock does, and the command and the release
// follow in one packet behind the grant; with [WithSession] over a connection of its own.
//
// The command's error is its own: then it ran, as far as that says. [ErrNotRun], together with [ErrNotAcquired],
// [ErrLost] or another error of Lock: it did not run. Any other error, of the connection or the context, ended it
// before its reply: it may have run, and is not sent again. While the slot of its keys moves it is sent again until the
// wait is over, because neither node runs a command on several keys of which one does not exist. Not with [WithToken],
// [AsOwnerOf], [WithAtLeast], [WithReplicas] and [WithSlot]. A lock without a lease has one of 30 s here, and nothing
// is renewed.
func (l *Lock) Exec(ctx context.Context, args ...any) *redis.Cmd {
	command, err := l.exec(ctx, args)
	if err != nil {
		return failedCmd(ctx, args, err)
	}
	return command
}

// TryExec is Exec if that is possible at once; else [ErrNotAcquired], as of [Lock.TryLock].
func (l *Lock) TryExec(ctx context.Context, args ...any) *redis.Cmd {
	once := *l
	once.isWaiting = false
	return once.Exec(ctx, args...)
}

func (l *Lock) exec(ctx context.Context, args []any) (*redis.Cmd, error) {
	switch {
	case len(args) == 0:
		return nil, notRun(usage("Exec needs a command"))
	case l.token != "" || l.of != nil || l.atLeast > 0 || l.replicas > 0 || l.family.slots:
		return nil, notRun(usage("Exec cannot be combined with WithToken, AsOwnerOf, WithAtLeast, WithReplicas or WithSlot"))
	}
	if err := l.usable(ctx); err != nil {
		return nil, notRun(err)
	}
	leased := *l
	if leased.lease == 0 { // A process that dies meanwhile would leave it behind.
		leased.lease = defaultLease
	}
	a := &asking{lock: &leased, hold: newHold(ctx, &leased, makeToken()), ctx: ctx, began: time.Now(), inner: args,
		holds: l.family.step(), route: l.route()}
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
	l.tell(ctx, EventGranted, a.hold.token, got.fence, granted)
	l.tell(ctx, ends, a.hold.token, got.fence, time.Since(got.received))
	return a.ran, nil
}

// parts are the command and the release.
func (a *asking) parts() []*redis.Cmd {
	f, token := &a.lock.family, a.hold.token
	return []*redis.Cmd{redis.NewCmd(a.ctx, f.exec(token, a.inner)...),
		redis.NewCmd(a.ctx, f.release(token, a.before, workDone)...)}
}

// packet is all of it at once.
func (a *asking) packet(ctx context.Context) (got answer, failed *failure) {
	commands := append([]*redis.Cmd{redis.NewCmd(ctx, a.words(0, "")...)}, a.parts()...)
	if failed = a.route.packet(ctx, a.lock.client.limit(late), commands...); failed != nil {
		failed.isFinal = failed.isSent
		return answer{}, failed
	}
	got, failed = answerOf(commands[0].Val())
	if failed == nil && got.outcome == isGranted {
		failed = a.executed(commands[1], commands[2])
	}
	return got, failed
}

// behind is the command and the release behind a grant.
func (a *asking) behind(ctx context.Context) *failure {
	commands := a.parts()
	failed := a.route.packet(ctx, a.lock.client.limit(late), commands...)
	if failed != nil && failed.code() == "ASK" { // The grant was made where the key has moved to.
		commands = a.parts()
		failed = a.route.packet(ctx, a.lock.client.limit(late), commands...)
	}
	if failed != nil && !isReply(failed.err) { // It is held, whatever failed.
		return &failure{err: failed.err, isSent: true, isFinal: failed.isSent}
	}
	return a.executed(commands[0], commands[1])
}

// executed reads the replies behind a grant. A failure that is not final: the command did not run, and all is sent
// again.
func (a *asking) executed(command, released *redis.Cmd) *failure {
	failed, freed := failureOf(command.Err()), failureOf(released.Err())
	switch {
	case failed == nil:
	case failed.isSent:
		failed.isFinal = true
		return failed
	case failed.code() == "NOTHELD", failed.code() == "WRONGTYPE" && freed != nil && freed.code() == "WRONGTYPE":
		command.SetErr(notRun(ErrLost))
	case !a.lock.client.servers.isOfCommand(failed):
		return &failure{err: failed.err, isSent: true}
	}
	a.ran, a.isUnconfirmed = command, freed != nil
	if freed != nil && !freed.meansLost() {
		a.takeBack()
	}
	return nil
}

// Exec runs a command on the server only while the lock is held, in one step (LOCK.EXEC). Its keys are in the lock's
// slot. The command's error is its own, or [ErrNotRun], together with [ErrLost] if the lock was lost. Any other error,
// of the connection or the context, ended it before its reply: it may have run. While the slot of its keys moves it is
// sent again until the context ends, or the hold.
func (h *Hold) Exec(ctx context.Context, args ...any) *redis.Cmd {
	if h == nil {
		return failedCmd(ctx, args, notRun(errNoHold))
	}
	r, servers := h.lock.route(), h.lock.client.servers
	var again resend
	for {
		command := redis.NewCmd(ctx, h.family.exec(h.token, args)...)
		failed := r.packet(ctx, r.client.limit(late), command)
		switch {
		case failed == nil:
			return command
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

// isLostBy: WRONGTYPE may be of the lock's own key, or of the command's.
func (h *Hold) isLostBy(ctx context.Context, failed *failure) bool {
	if failed.code() == "WRONGTYPE" {
		r := h.lock.route()
		found, asked := r.held(ctx, &h.family, h.token)
		return asked == nil && found == nil
	}
	return failed.code() == "NOTHELD"
}

// isOfCommand: the error reply to LOCK.EXEC is the command's own, and no refusal after which nothing was run. Outside
// of a cluster TRYAGAIN is the command's, on a key that is adopted.
func (s *servers) isOfCommand(failed *failure) bool {
	return isReply(failed.err) && (!failed.isTransient() || s.cluster == nil && failed.code() == "TRYAGAIN")
}

func notRun(err error) error { return fmt.Errorf("%w: %w", ErrNotRun, err) }

// failedCmd is a new command: one that was sent may be written to yet.
func failedCmd(ctx context.Context, args []any, err error) *redis.Cmd {
	command := redis.NewCmd(ctx, args...)
	command.SetErr(err)
	return command
}
