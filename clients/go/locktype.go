package redislock

import "time"

// The lock types, by the names that [Event] and messages use.
const (
	kindMutex     = "mutex"
	kindReentrant = "reentrant"
	kindRead      = "read"
	kindWrite     = "write"
	kindSemaphore = "semaphore"
	kindMulti     = "multi"
)

// lockType is a lock type with its keys. It builds the commands, does no I/O and has no state.
type lockType struct {
	kind    string
	keys    []string
	limit   int
	permits int
	slots   bool
}

// The holds of the two modes of a read/write lock are counted separately.
const (
	modeExclusive = iota
	modeRead
)

// work is what a release reports to the requests that wait with COALESCE.
type work bool

const (
	workDone   work = true
	workFailed work = false
)

// key is the key by which a request is routed.
func (t *lockType) key() string { return t.keys[0] }

func (t *lockType) mode() int {
	if t.kind == kindRead {
		return modeRead
	}
	return modeExclusive
}

// isReentrant reports whether an owner may acquire the lock again.
func (t *lockType) isReentrant() bool {
	return t.kind == kindReentrant || t.kind == kindRead || t.kind == kindWrite
}

// isAgain reports whether the owner of a hold of the other lock may acquire this one as the same owner.
func (t *lockType) isAgain(other *lockType) bool {
	return t.key() == other.key() && t.isReentrant() && other.isReentrant() &&
		(t.kind == kindReentrant) == (other.kind == kindReentrant)
}

// counts reports whether the acquires of one owner add up.
func (t *lockType) counts() bool { return t.isReentrant() || t.kind == kindSemaphore }

// step is the number of holds that one acquire adds.
func (t *lockType) step() int {
	if t.kind == kindSemaphore {
		return t.permits
	}
	return 1
}

// names are the commands, as appendCommand takes them: made once, a request does not allocate them. modes are the
// argument after the owner.
var (
	names = map[string]verbs{kindMutex: verbsOf("LOCK"), kindReentrant: verbsOf("RLOCK"), kindRead: verbsOf("RWLOCK"),
		kindWrite: verbsOf("RWLOCK"), kindSemaphore: verbsOf("SEM"), kindMulti: verbsOf("MLOCK")}
	modes = map[string]string{kindRead: "READ", kindWrite: "WRITE"}
)

type verbs struct{ acquire, release, renew any }

func verbsOf(prefix string) verbs {
	return verbs{prefix + ".ACQUIRE", prefix + ".RELEASE", prefix + ".RENEW"}
}

func (t *lockType) command(name any, token string) []any {
	words := append(make([]any, 0, 12), name)
	if t.kind == kindMulti {
		words = append(words, len(t.keys))
	}
	for _, key := range t.keys {
		words = append(words, key)
	}
	return append(words, token)
}

// inMode is a command that has the mode of a read/write lock.
func (t *lockType) inMode(name any, token string) []any {
	words := t.command(name, token)
	if mode := modes[t.kind]; mode != "" {
		words = append(words, mode)
	}
	return words
}

// acquire returns the command. holds is the owner's count in this mode after the grant, so that the same bytes can be
// sent again.
func (t *lockType) acquire(token string, holds int, lease time.Duration) []any {
	words := t.inMode(names[t.kind].acquire, token)
	if t.kind == kindSemaphore {
		words = append(words, "LIMIT", t.limit)
	}
	switch {
	case t.slots:
		words = append(words, "SLOT")
	case t.counts():
		words = append(words, "HOLDS", holds)
	}
	return withLease(words, lease)
}

// release returns the command. holds is the owner's count in this mode after it. Only requests for a mutex can wait for
// the work to be done.
func (t *lockType) release(token string, holds int, done work) []any {
	words := t.inMode(names[t.kind].release, token)
	if t.counts() {
		return append(words, "HOLDS", holds)
	}
	if t.kind == kindMutex && done == workFailed {
		return append(words, "FAILED")
	}
	return words
}

func (t *lockType) renew(token string, lease time.Duration) []any {
	return withLease(t.command(names[t.kind].renew, token), lease)
}

func (t *lockType) held(token string) []any { return []any{"LOCK.HELD", t.key(), token} }

func (t *lockType) exec(token string, args []any) []any {
	return append([]any{"LOCK.EXEC", t.key(), token}, args...)
}

// cancel returns the command that removes a request from the queue, by one of its keys.
func (t *lockType) cancel(token string) []any { return []any{"LOCK.CANCEL", t.key(), token} }

// wasHeld reports whether the release found the hold.
func (t *lockType) wasHeld(reply int64) bool {
	switch t.kind {
	case kindMutex:
		return reply == 1
	case kindMulti:
		return reply == int64(len(t.keys))
	}
	return reply >= 0
}

// withLease appends the lease; 0 means no deadline.
func withLease(words []any, lease time.Duration) []any {
	if lease == 0 {
		return append(words, "PERSIST")
	}
	return append(words, "PX", milliseconds(lease))
}

// outcome of one request.
type outcome int

const (
	notGranted outcome = iota
	isGranted
	isQueued
	isDone
)

// answer is the reply to an acquire.
type answer struct {
	outcome outcome
	fence   uint64
	slot    int // -1: none
	holds   int // the owner's holds in both modes, by LOCK.HELD; -1: not asked
	// deadline is counted from before the request was sent; zero: none.
	deadline time.Time
	// received is when the reply arrived, so the grant was not later.
	received time.Time
}

// numbersOf returns the numbers of an array after its first elements.
func numbersOf(reply any, first int) []int64 {
	items, _ := reply.([]any)
	var numbers []int64
	for _, item := range items[min(first, len(items)):] {
		number, isNumber := item.(int64)
		if !isNumber {
			return nil
		}
		numbers = append(numbers, number)
	}
	return numbers
}

// answerOf reads [token, fence], [token, fence, holds], [token, fence, 1, slot]; [nil, fence]; nil.
func answerOf(reply any) (answer, *failure) {
	if reply == nil {
		return answer{outcome: notGranted}, nil
	}
	numbers := numbersOf(reply, 1)
	if len(numbers) == 0 || numbers[0] < 0 {
		return answer{}, unexpected(reply)
	}
	found := answer{outcome: isGranted, fence: uint64(numbers[0]), slot: -1, holds: -1, received: time.Now()}
	switch {
	case reply.([]any)[0] == nil:
		found.outcome = isDone
	case found.fence == 0:
		found.outcome = isQueued
	case len(numbers) == 3:
		found.slot = int(numbers[2])
	}
	return found, nil
}

// heldReply is LOCK.HELD's [fence, holds, ttl]; nil if the token does not hold the lock.
type heldReply struct {
	fence uint64
	holds int // both modes together
	left  time.Duration
	ends  bool
}

func heldOf(reply any) (*heldReply, *failure) {
	if reply == nil {
		return nil, nil
	}
	n := numbersOf(reply, 0)
	if len(n) < 3 {
		return nil, unexpected(reply)
	}
	return &heldReply{uint64(n[0]), int(n[1]), durationOf(n[2]), n[2] >= 0}, nil
}
