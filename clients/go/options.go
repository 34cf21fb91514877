package redislock

import "time"

const defaultLease = 30 * time.Second

// Option is a setting of a lock, given to [New] for all locks or to one of them.
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
	of             *hold
	observer       func(Event)
	misuse         error
}

// WithLease sets how long the lock is held without a renewal: 1 ms to lock.max-lease. Default: 30 s.
func WithLease(lease time.Duration) Option {
	return func(l *Lock) {
		l.lease = lease
		if lease <= 0 {
			l.misuse = usage("a lease is longer than 0; WithoutLease has no deadline")
		}
	}
}

// WithoutLease holds the lock without a deadline (PERSIST): only Unlock, an operator or Redis's own commands end it.
// Not with [WithAutoRenew], [WithSession] and [WithAtLeast].
func WithoutLease() Option { return func(l *Lock) { l.lease = 0 } }

// WithWait limits the wait, whatever the context's time is: then [Lock.Lock] fails with [ErrNotAcquired].
func WithWait(wait time.Duration) Option { return func(l *Lock) { l.wait = max(wait, 1) } }

// WithAutoRenew renews the lease after each third of it, in a goroutine that ends with the hold. A hold that the
// program forgets without Unlock is not renewed any more once the garbage collector has found it.
func WithAutoRenew() Option { return func(l *Lock) { l.isRenewed = true } }

// WithSession binds the lock to a connection of its own: the server renews the lease while that lives, and releases the
// lock when it ends. A program that stands still for longer than its lease keeps the lock.
func WithSession() Option { return func(l *Lock) { l.isSession = true } }

// WithAtLeast is for work at most once per interval: an Unlock within this time of the grant does not free the lock,
// but sets its lease to the rest of that time. So a job that takes a second does not run again on a host whose clock
// differs. A process that dies leaves the lock to its lease. Not with [WithSession] and [WithToken].
func WithAtLeast(time time.Duration) Option { return func(l *Lock) { l.atLeast = time } }

// WithReplicas asks for a grant that this many replicas confirm within this time; otherwise it is given back, and Lock
// fails with [ErrNotReplicated]. This narrows what a failover can lose, and is no consensus.
func WithReplicas(replicas int, within time.Duration) Option {
	return func(l *Lock) { l.replicas, l.replicaTimeout = replicas, within }
}

// WithMixed is for a fleet that moves over: other clients hold the key as a string (SET key … NX). Lock polls at this
// interval, half of it more or less, and never waits in the server's queue, so that both sides progress. Grants are not
// in the order of arrival: remove this option when the last old client is gone. Not with [WithSession].
func WithMixed(poll time.Duration) Option { return func(l *Lock) { l.poll = poll } }

// WithTellHolder names the holder in a [NotAcquiredError], by one LOCK.INFO then.
func WithTellHolder() Option { return func(l *Lock) { l.tellsHolder = true } }

// WithToken sets the owner, in place of a new one for each Lock (host:pid:random): 1 to 1,024 bytes, any bytes. One
// owner is one line of execution: a mutex is granted again to the token that holds it.
func WithToken(token string) Option {
	return func(l *Lock) {
		l.token = token
		if token == "" || len(token) > 1024 {
			l.misuse = usage("a token has 1 to 1,024 bytes")
		}
	}
}

// AsOwnerOf takes the lock as the owner of a hold of the same name, which keeps its token: of [Client.Reentrant] again,
// of [Client.RW] also the other side.
func AsOwnerOf(h *Hold) Option {
	return func(l *Lock) {
		l.of = h.hold
		isOfReentrant := h.family.kind == kindReentrant
		if h.family.key() != l.family.key() || !l.family.isReentrant() || !h.family.isReentrant() ||
			isOfReentrant != (l.family.kind == kindReentrant) {
			l.misuse = usage("only a reentrant or read/write lock of the same name is taken again by its owner")
		}
	}
}

// WithPermits sets the permits of one hold of a semaphore: 1 to its limit. Default: 1.
func WithPermits(permits int) Option { return func(l *Lock) { l.family.permits = permits } }

// WithSlot gives each hold of a semaphore a number, from 0 and below the limit, that no other holder has: a worker's
// number, a port, a GPU. See [Hold.Slot].
func WithSlot() Option { return func(l *Lock) { l.family.slots = true } }

// WithObserver is told of each event of the lock, in the goroutine of the event, so it should return soon. A panic in
// it is caught and logged, and changes no outcome.
func WithObserver(observer func(Event)) Option { return func(l *Lock) { l.observer = observer } }

// check finds options that exclude each other before anything is sent.
func (l *Lock) check() error {
	f := &l.family
	isSemaphore := f.kind == kindSemaphore
	switch {
	case l.misuse != nil:
		return l.misuse
	case len(f.keys) == 0 || f.keys[0] == "":
		return usage("a lock has a name")
	case isSemaphore && (f.permits < 1 || f.permits > f.limit):
		return usage("permits are from 1 to the semaphore's limit")
	case isSemaphore && f.slots && f.permits != 1:
		return usage("a hold has one slot, or permits without")
	case !isSemaphore && (f.slots || f.permits != 0):
		return usage("only a semaphore has slots and permits")
	case l.isRenewed && l.isSession:
		return usage("with a session the server renews: leave WithAutoRenew out")
	case (l.isRenewed || l.isSession) && l.lease == 0:
		return usage("a session and auto renewal need a lease: it is what is renewed")
	case l.atLeast > 0 && (l.isSession || l.lease == 0):
		return usage("WithAtLeast leaves the lock to its lease: it needs one, and no session")
	case l.atLeast > 0 && l.token != "":
		return usage("WithAtLeast goes without a token: its owner would be granted the lock again")
	case l.isSession && l.poll > 0:
		return usage("WithMixed polls, and a session is bound while it waits: use one of them")
	case l.of != nil && l.token != "":
		return usage("AsOwnerOf has a token")
	}
	return nil
}
