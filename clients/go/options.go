package redislock

import "time"

const defaultLease = 30 * time.Second

// Option is a setting of a lock. Pass it to [New] for all locks of a client, or to a single lock. Options apply in
// order, those of the lock after those of the client. A later option replaces an earlier one and turns off the options
// that it excludes. A duration of zero or less results in [ErrUsage] when the lock is used; fractions of a millisecond
// round up.
type Option func(*Lock)

type config struct {
	lease          time.Duration // 0: no deadline
	wait           time.Duration
	isWaiting      bool // until the context ends, or for wait
	atLeast        time.Duration
	isRenewed      bool
	isSession      bool
	replicas       int
	replicaTimeout time.Duration
	poll           time.Duration // 0: not mixed
	tellsHolder    bool
	token          string
	hasToken       bool
	of             *hold
	observer       func(Event)
}

// WithLease sets how long the lock is held without a renewal, at most the server's lock.max-lease. Default: 30 s.
func WithLease(lease time.Duration) Option { return func(l *Lock) { l.lease = positive(lease) } }

// WithoutLease holds the lock without a deadline (PERSIST): only Unlock, an operator or a Redis command such as DEL
// frees it. It excludes [WithAutoRenew], [WithSession] and [WithAtLeast], each of which sets the default lease again.
func WithoutLease() Option {
	return func(l *Lock) { l.lease, l.isRenewed, l.isSession, l.atLeast = 0, false, false, 0 }
}

// leased restores a lease for an option that needs one.
func (l *Lock) leased() {
	if l.lease == 0 {
		l.lease = defaultLease
	}
}

// WithWait limits the wait, in addition to the context. After this time [Lock.Lock] returns [ErrNotAcquired]. Default:
// no limit.
func WithWait(wait time.Duration) Option { return func(l *Lock) { l.wait = positive(wait) } }

// WithoutWaitLimit waits until the context ends. It undoes [WithWait].
func WithoutWaitLimit() Option { return func(l *Lock) { l.wait = 0 } }

// WithAutoRenew renews the lease after each third of it, in the background, until the hold ends. A hold that the
// program drops without Unlock is no longer renewed once it has been garbage collected. It excludes [WithSession].
func WithAutoRenew() Option {
	return func(l *Lock) {
		l.isRenewed, l.isSession = true, false
		l.leased()
	}
}

// WithSession binds the lock to a dedicated connection: the server renews the lease while the connection lives, and
// releases the lock when it ends. A program that is paused for longer than its lease keeps the lock. It excludes
// [WithAutoRenew], [WithAtLeast] and [WithMixed].
func WithSession() Option {
	return func(l *Lock) {
		l.isSession, l.isRenewed, l.atLeast, l.poll = true, false, 0, 0
		l.leased()
	}
}

// WithoutRenewal holds the lock for its lease and no longer. It undoes [WithAutoRenew] and [WithSession].
func WithoutRenewal() Option { return func(l *Lock) { l.isRenewed, l.isSession = false, false } }

// WithAtLeast limits work to once per interval: an Unlock within this time of the grant does not free the lock, but
// sets its lease to the rest of that time. So a job that takes a second does not run again on a host with a different
// clock. If the process dies, the lock expires with its lease. Acquiring with a time above lock.max-lease returns
// [ErrUsage]. It excludes [WithSession], and [WithToken], because the same owner would be granted the lock again within
// that time.
func WithAtLeast(atLeast time.Duration) Option {
	return func(l *Lock) {
		l.atLeast, l.isSession = positive(atLeast), false
		l.token, l.hasToken = "", false
		l.leased()
	}
}

// WithReplicas requires that this many replicas confirm the grant within this time. If fewer do, the lock is released
// and Lock returns [ErrNotReplicated]. This reduces what a failover can lose, but it is not a consensus protocol.
func WithReplicas(replicas int, within time.Duration) Option {
	if replicas < 1 {
		replicas = -1 // 0 would look as if the option had not been given.
	}
	return func(l *Lock) { l.replicas, l.replicaTimeout = replicas, positive(within) }
}

// WithMixed shares the key with clients that hold it as a string (SET key … NX), for a migration. Lock then polls at
// 0.5 to 1.5 times this interval and never waits in the server's queue, so that both sides make progress. Locks are not
// granted in order of arrival, so remove this option when the last old client is gone. It excludes [WithSession].
func WithMixed(poll time.Duration) Option {
	return func(l *Lock) { l.poll, l.isSession = positive(poll), false }
}

// WithTellHolder sets Holder in a [NotAcquiredError], which takes one LOCK.INFO after the refusal.
func WithTellHolder() Option { return func(l *Lock) { l.tellsHolder = true } }

// WithToken sets the owner ID, 1 to 1,024 arbitrary bytes. Default: a new one for each Lock (host:pid:random). One
// owner must be one goroutine, task or request, because a mutex is granted again to the token that holds it. It
// excludes [WithAtLeast] and [AsOwnerOf].
func WithToken(token string) Option {
	return func(l *Lock) { l.token, l.hasToken, l.of, l.atLeast = token, true, nil, 0 }
}

// AsOwnerOf acquires the lock as the owner of an existing hold of the same name: a [Client.Reentrant] lock again, or
// either side of a [Client.RW] lock. It excludes [WithToken].
func AsOwnerOf(h *Hold) Option {
	return func(l *Lock) { l.of, l.token, l.hasToken = h.orNone().hold, "", false }
}

// WithPermits sets how many permits one hold of a semaphore has, from 1 to its limit. Default: 1. It excludes
// [WithSlot].
func WithPermits(permits int) Option {
	return func(l *Lock) { l.lockType.permits, l.lockType.slots = permits, false }
}

// WithSlot gives each hold of a semaphore a number from 0 to limit-1 that no other holder has, such as the number of a
// worker, a port or a GPU. See [Hold.Slot]. It excludes [WithPermits].
func WithSlot() Option {
	return func(l *Lock) { l.lockType.slots, l.lockType.permits = true, 1 }
}

// WithObserver calls observer with each event of the lock, in the goroutine of the event, so it should return quickly.
// A panic in it is recovered and logged, and changes no outcome.
func WithObserver(observer func(Event)) Option { return func(l *Lock) { l.observer = observer } }

// check finds invalid options, and options that do not fit the lock type, before anything is sent.
func (l *Lock) check() error {
	t := &l.lockType
	isSemaphore := t.kind == kindSemaphore
	switch {
	case l.lease == refused:
		return usage("a lease must be greater than 0; use WithoutLease for no deadline")
	case l.wait == refused:
		return usage("a wait must be greater than 0; use TryLock not to wait")
	case l.atLeast == refused, l.poll == refused, l.replicaTimeout == refused:
		return usage("WithAtLeast, WithMixed and WithReplicas need a duration greater than 0")
	case l.replicas < 0:
		return usage("WithReplicas needs at least one replica")
	case len(t.keys) == 0 || t.keys[0] == "":
		return usage("a lock needs a name")
	case isSemaphore && (t.permits < 1 || t.permits > t.limit):
		return usage("permits must be from 1 to the limit of the semaphore")
	case !isSemaphore && (t.slots || t.permits != 0):
		return usage("only a semaphore has slots and permits")
	case l.hasToken && (l.token == "" || len(l.token) > 1024):
		return usage("a token must be 1 to 1,024 bytes long")
	case l.of != nil && !t.isAgain(&l.of.lock.lockType):
		return usage("only a reentrant or read/write lock of the same name can be acquired again by its owner")
	}
	return nil
}
