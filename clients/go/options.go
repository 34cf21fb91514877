package redislock

import "time"

const defaultLease = 30 * time.Second

// Option is a setting of a lock, given to [New] for all locks or to one of them. Options apply in order, the lock's own
// after those of the client: a later one replaces an earlier one, and turns off what it excludes. A duration of zero or
// less is an [ErrUsage]; fractions of a millisecond round up.
type Option func(*Lock)

type config struct {
	lease          time.Duration // 0: no deadline
	wait           time.Duration
	isWaiting      bool // as long as the context lasts, or wait
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

// WithLease sets how long the lock is held without a renewal: 1 ms, to which a shorter lease is rounded up, to
// lock.max-lease. Default: 30 s.
func WithLease(lease time.Duration) Option { return func(l *Lock) { l.lease = positive(lease) } }

// WithoutLease holds the lock without a deadline (PERSIST): only Unlock, an operator or Redis's own commands end it. It
// excludes [WithAutoRenew], [WithSession] and [WithAtLeast], each of which sets the default lease again.
func WithoutLease() Option {
	return func(l *Lock) { l.lease, l.isRenewed, l.isSession, l.atLeast = 0, false, false, 0 }
}

// leased restores a lease for an option that needs one.
func (l *Lock) leased() {
	if l.lease == 0 {
		l.lease = defaultLease
	}
}

// WithWait limits the wait, whatever the context's time is: then [Lock.Lock] fails with [ErrNotAcquired].
func WithWait(wait time.Duration) Option { return func(l *Lock) { l.wait = positive(wait) } }

// WithoutWaitLimit waits until the context ends, as a lock does without [WithWait].
func WithoutWaitLimit() Option { return func(l *Lock) { l.wait = 0 } }

// WithAutoRenew renews the lease after each third of it, in a goroutine that ends with the hold. A hold that the
// program forgets without Unlock is not renewed any more once the garbage collector has found it. It excludes
// [WithSession].
func WithAutoRenew() Option {
	return func(l *Lock) {
		l.isRenewed, l.isSession = true, false
		l.leased()
	}
}

// WithSession binds the lock to a connection of its own: the server renews the lease while that lives, and releases the
// lock when it ends. A program that stands still for longer than its lease keeps the lock. It excludes [WithAutoRenew],
// [WithAtLeast] and [WithMixed].
func WithSession() Option {
	return func(l *Lock) {
		l.isSession, l.isRenewed, l.atLeast, l.poll = true, false, 0, 0
		l.leased()
	}
}

// WithoutRenewal holds the lock for its lease and no longer, as a lock does without [WithAutoRenew] and [WithSession].
func WithoutRenewal() Option { return func(l *Lock) { l.isRenewed, l.isSession = false, false } }

// WithAtLeast is for work at most once per interval: an Unlock within this time of the grant does not free the lock,
// but sets its lease to the rest of that time. So a job that takes a second does not run again on a host whose clock
// differs. A process that dies leaves the lock to its lease. A time above lock.max-lease is an [ErrUsage]. It excludes
// [WithSession] and [WithToken]: the owner of a token would be granted the lock again within that time.
func WithAtLeast(atLeast time.Duration) Option {
	return func(l *Lock) {
		l.atLeast, l.isSession = positive(atLeast), false
		l.token, l.hasToken = "", false
		l.leased()
	}
}

// WithReplicas asks for a grant that this many replicas confirm within this time; otherwise it is given back, and Lock
// fails with [ErrNotReplicated]. This narrows what a failover can lose, and is no consensus.
func WithReplicas(replicas int, within time.Duration) Option {
	if replicas < 1 {
		replicas = -1 // Of 0 the lock could not tell that it was asked for.
	}
	return func(l *Lock) { l.replicas, l.replicaTimeout = replicas, positive(within) }
}

// WithMixed is for a fleet that moves over: other clients hold the key as a string (SET key … NX). Lock polls at this
// interval, half of it more or less, and never waits in the server's queue, so that both sides progress. Grants are not
// in the order of arrival: remove this option when the last old client is gone. It excludes [WithSession].
func WithMixed(poll time.Duration) Option {
	return func(l *Lock) { l.poll, l.isSession = positive(poll), false }
}

// WithTellHolder names the holder in a [NotAcquiredError], by one LOCK.INFO then.
func WithTellHolder() Option { return func(l *Lock) { l.tellsHolder = true } }

// WithToken sets the owner, in place of a new one for each Lock (host:pid:random): 1 to 1,024 bytes, any bytes. One
// owner is one line of execution: a mutex is granted again to the token that holds it. It excludes [WithAtLeast] and
// [AsOwnerOf].
func WithToken(token string) Option {
	return func(l *Lock) { l.token, l.hasToken, l.of, l.atLeast = token, true, nil, 0 }
}

// AsOwnerOf takes the lock as the owner of a hold of the same name, which keeps its token: of [Client.Reentrant] again,
// of [Client.RW] also the other side. It excludes [WithToken].
func AsOwnerOf(h *Hold) Option {
	return func(l *Lock) { l.of, l.token, l.hasToken = h.orNone().hold, "", false }
}

// WithPermits sets the permits of one hold of a semaphore: 1 to its limit. Default: 1. It excludes [WithSlot].
func WithPermits(permits int) Option {
	return func(l *Lock) { l.family.permits, l.family.slots = permits, false }
}

// WithSlot gives each hold of a semaphore a number, from 0 and below the limit, that no other holder has: a worker's
// number, a port, a GPU. See [Hold.Slot]. It excludes [WithPermits].
func WithSlot() Option {
	return func(l *Lock) { l.family.slots, l.family.permits = true, 1 }
}

// WithObserver is told of each event of the lock, in the goroutine of the event, so it should return soon. A panic in
// it is caught and logged, and changes no outcome.
func WithObserver(observer func(Event)) Option { return func(l *Lock) { l.observer = observer } }

// check finds what the server would refuse, and what is of another family of locks, before anything is sent.
func (l *Lock) check() error {
	f := &l.family
	isSemaphore := f.kind == kindSemaphore
	switch {
	case l.lease == refused:
		return usage("a lease must be greater than 0; use WithoutLease for no deadline")
	case l.wait == refused:
		return usage("a wait must be greater than 0; use TryLock not to wait")
	case l.atLeast == refused, l.poll == refused, l.replicaTimeout == refused:
		return usage("WithAtLeast, WithMixed and WithReplicas need a duration greater than 0")
	case l.replicas < 0:
		return usage("WithReplicas needs at least one replica")
	case len(f.keys) == 0 || f.keys[0] == "":
		return usage("a lock needs a name")
	case isSemaphore && (f.permits < 1 || f.permits > f.limit):
		return usage("permits must be from 1 to the limit of the semaphore")
	case !isSemaphore && (f.slots || f.permits != 0):
		return usage("only a semaphore has slots and permits")
	case l.hasToken && (l.token == "" || len(l.token) > 1024):
		return usage("a token must be 1 to 1,024 bytes long")
	case l.of != nil && !f.isAgain(&l.of.lock.family):
		return usage("only a reentrant or read/write lock of the same name can be acquired again by its owner")
	}
	return nil
}
