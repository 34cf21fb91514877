package redislock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Exec takes the lock, runs one command on the server, and gives the lock back: all in one packet, as an owner of its
// own. Its keys are in the lock's slot. A lock that is held is waited for as Lock does, and the command and the release
// follow in one packet behind the grant; with [WithSession] over a connection of its own.
//
// The command's error is its own; [ErrNotAcquired], or another error of Lock: it did not run; [ErrLost] if the lock was
// lost before the command: it did not run. If the connection or the context ends before the command's reply, it may
// have run, and is not sent again. Not with [WithToken], [AsOwnerOf], [WithAtLeast], [WithReplicas] and [WithSlot]. A
// lock without a lease has one of 30 s here, and nothing is renewed.
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
		return nil, usage("Exec needs a command")
	case l.token != "" || l.of != nil || l.atLeast > 0 || l.replicas > 0 || l.family.slots:
		return nil, usage("Exec goes without WithToken, AsOwnerOf, WithAtLeast, WithReplicas and WithSlot")
	}
	if err := l.usable(ctx); err != nil {
		return nil, err
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
		return nil, a.refused(err)
	}
	a.route.close()
	granted, ends := time.Since(a.began), EventReleased
	if a.ran.Err() == ErrLost || a.isUnconfirmed { // Without a confirmed release it counts as lost.
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
		command.SetErr(ErrLost)
	case failed.isTransient():
		return &failure{err: failed.err, isSent: true}
	}
	a.ran, a.isUnconfirmed = command, freed != nil
	if freed != nil && !freed.meansLost() {
		a.takeBack()
	}
	return nil
}
