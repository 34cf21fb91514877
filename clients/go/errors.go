package redislock

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The errors of a lock, for errors.Is. Other errors are those of go-redis and of the context.
var (
	// ErrNotAcquired: another owner holds the lock, and the call does not wait (any longer). See [NotAcquiredError].
	ErrNotAcquired = errors.New("redislock: not acquired")
	// ErrLost: the lock is no longer owned. Its lease has ended, an operator broke it, or its key became something else.
	ErrLost = errors.New("redislock: the lock is no longer owned")
	// ErrUnlocked: the hold was unlocked before. Nothing was sent.
	ErrUnlocked = errors.New("redislock: the hold is already unlocked")
	// ErrDeadlock: the wait would have closed a cycle of owners, which the server's message names. It was not queued. Each
	// Lock is a new owner: only locks with the same [WithToken] tell the server what one goroutine holds and waits for.
	ErrDeadlock = errors.New("redislock: deadlock")
	// ErrWrongType: the key holds something that is no lock, such as the string of a SET NX client.
	ErrWrongType = errors.New("redislock: not a lock")
	// ErrWrongKind: the key is a lock of another family.
	ErrWrongKind = errors.New("redislock: lock of another type")
	// ErrTooManyWaiters: as many requests wait as lock.max-waiters or lock.max-waiters-per-key allow.
	ErrTooManyWaiters = errors.New("redislock: too many waiters")
	// ErrCancelled: an operator ended the wait (LOCK.CANCEL, CLIENT UNBLOCK … ERROR), or a newer request of the same
	// token did. A context that ends gives the context's error instead.
	ErrCancelled = errors.New("redislock: the wait was cancelled")
	// ErrNotRun: the command of an Exec certainly did not run. The error says why, too: it is also [ErrNotAcquired],
	// [ErrLost] or the context's, for example.
	ErrNotRun = errors.New("redislock: the command did not run")
	// ErrNotReplicated: fewer replicas than [WithReplicas] asks for confirmed the grant; it was released again.
	ErrNotReplicated = errors.New("redislock: too few replicas confirmed the grant: released")
	// ErrNotMade: [Once] waited for its time, and the value that another caller makes was not there yet.
	ErrNotMade = errors.New("redislock: no value in time: another caller holds the lock")
	// ErrNoModule: the server does not know the commands of the module.
	ErrNoModule = errors.New("redislock: this server has no redis-lock module: put `loadmodule " +
		"/path/to/libredis_lock.so` into redis.conf and restart it, or send MODULE LOAD /path/to/libredis_lock.so " +
		"where enable-module-command allows it")
	// ErrUsage: a value that the server refuses, an option that does not fit the lock, or a client that does not fit the
	// server. Nothing was granted or run.
	ErrUsage = errors.New("redislock: invalid use")
	// ErrClosed: the [Client] was closed.
	ErrClosed = errors.New("redislock: the client is closed")
)

// NotAcquiredError is ErrNotAcquired with the keys, and with the holder where [WithTellHolder] asks for it.
type NotAcquiredError struct {
	Keys []string
	// Holder is the token of the first holder; empty: not asked for, free by now, or the caller may not ask.
	Holder string
}

func (e *NotAcquiredError) Error() string {
	message := fmt.Sprintf("%v: %q", ErrNotAcquired, strings.Join(e.Keys, ", "))
	if e.Holder != "" {
		message += fmt.Sprintf(" is held by %q", e.Holder)
	}
	return message
}

// Is makes errors.Is(err, ErrNotAcquired) true.
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

func usage(format string, values ...any) error {
	return fmt.Errorf("%w: %s", ErrUsage, fmt.Sprintf(format, values...))
}

// failure is a command that failed. isSent: the server may have run it, and only the reply is missing. isFinal: then it
// must not be sent again.
type failure struct {
	err             error
	isSent, isFinal bool
}

var errNoReply = errors.New("redislock: no reply in time")

// failureOf tells what the error of a command that was sent means.
func failureOf(err error) *failure {
	if err == nil || errors.Is(err, redis.Nil) {
		return nil
	}
	return &failure{err: err, isSent: !isReply(err)}
}

// isReply is true for an error that the server answered.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// words are the code of an error reply, its first word, and what follows. go-redis wraps those of its handshake.
func (f *failure) words() (code, rest string) {
	var reply redis.Error
	if !errors.As(f.err, &reply) {
		return "", ""
	}
	code, rest, _ = strings.Cut(reply.Error(), " ")
	return code, rest
}

func (f *failure) code() string {
	code, _ := f.words()
	return code
}

// isRedirection is true if the request belongs to another node, or to none while its slot moves. Nothing was run.
func (f *failure) isRedirection() bool {
	switch f.code() {
	case "ASK", "MOVED", "TRYAGAIN":
		return true
	}
	return false
}

// ofClusterNode: a client of one server has met a node of a cluster, and does not follow it to the others.
func (f *failure) ofClusterNode() *failure {
	switch f.code() {
	case "ASK", "CROSSSLOT", "MOVED":
		return &failure{err: usage("the server is a node of a cluster: create the client with redis.NewClusterClient (%v)",
			f.err)}
	}
	return f
}

// isTransient is true if the same request may succeed in a moment: on another connection, node or primary.
func (f *failure) isTransient() bool {
	code, rest := f.words()
	switch code {
	case "ASK", "BUSY", "CLUSTERDOWN", "GRACE", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOREPLICAS", "READONLY",
		"TRYAGAIN":
		return true
	case "UNBLOCKED":
		// Redis's words when the server has become a replica.
		return strings.Contains(rest, "instance state changed")
	case "ERR":
		return strings.HasPrefix(rest, "max number of clients reached")
	case "":
		return !f.isFinal && !isPermanent(f.err)
	}
	return false
}

// isPermanent is true for failures of a connection that come again with each: certificates, an unknown primary, a
// sentinel that refuses the password, a closed client.
func isPermanent(err error) bool {
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	return errors.As(err, &certificate) || errors.As(err, &authority) || errors.As(err, &host) ||
		errors.As(err, &record) || errors.Is(err, ErrClosed) || errors.Is(err, ErrUsage) ||
		errors.Is(err, ErrCancelled) || isRefusedBySentinels(err)
}

// isRefusedBySentinels: they know no primary of this name, are none, or refuse the user. go-redis has no error for it,
// but words.
func isRefusedBySentinels(err error) bool {
	_, words, found := strings.Cut(err.Error(), "all sentinels specified in configuration are unreachable")
	return found && refusals.MatchString(words)
}

var refusals = regexp.MustCompile("redis: nil|unknown command|NOAUTH|WRONGPASS|NOPERM")

// meansLost is true if a release, renewal or exec says that the lock is no longer ours.
func (f *failure) meansLost() bool {
	code := f.code()
	return code == "WRONGTYPE" || code == "WRONGKIND" || code == "NOTHELD"
}

// meanings are the codes of error replies that have an error of their own.
var meanings = map[string]error{"DEADLOCK": ErrDeadlock, "WRONGTYPE": ErrWrongType, "WRONGKIND": ErrWrongKind,
	"MAXWAITERS": ErrTooManyWaiters, "UNBLOCKED": ErrCancelled, "NOTHELD": ErrLost}

// error is what the caller is told.
func (f *failure) error() error {
	code, rest := f.words()
	switch {
	case code == "ERR" && unknownCommand.MatchString(rest):
		return ErrNoModule
	case code == "ERR" && strings.HasPrefix(rest, "invalid expire time"):
		return usage("%s", rest)
	}
	if meaning := meanings[code]; meaning != nil {
		return fmt.Errorf("%w: %s", meaning, rest)
	}
	if f.isRedirection() { // Not the reply: a caller of Exec would take it for the command's own.
		return fmt.Errorf("redislock: the slot of the key is moving: %v", f.err)
	}
	return f.err
}

// unknownCommand: the server does not know a command of the module.
var unknownCommand = regexp.MustCompile("unknown command ['`](LOCK|RLOCK|RWLOCK|SEM|MLOCK)\\.")

// unexpected is a reply that no version of the module gives.
func unexpected(reply any) *failure {
	return &failure{err: fmt.Errorf("redislock: not a reply from the lock module: %v", reply), isSent: false}
}
