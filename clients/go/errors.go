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

// The errors of a lock. Test for them with errors.Is. Other errors are those of go-redis and of the context.
var (
	// ErrNotAcquired means that another owner holds the lock, and the call did not wait or its [WithWait] has passed. See
	// [NotAcquiredError].
	ErrNotAcquired = errors.New("redislock: not acquired")
	// ErrLost means that the lock is no longer owned: its lease expired, an operator broke it, or its key was overwritten.
	ErrLost = errors.New("redislock: the lock is no longer owned")
	// ErrUnlocked means that the hold was unlocked before. Nothing was sent.
	ErrUnlocked = errors.New("redislock: the hold is already unlocked")
	// ErrDeadlock means that the request would deadlock, so it was not queued. The message lists the owners in the cycle.
	// Each Lock is a new owner, so the server detects a deadlock only if all locks of a goroutine use the same
	// [WithToken].
	ErrDeadlock = errors.New("redislock: deadlock")
	// ErrWrongType means that the key holds a value that is not a lock, such as the string of a SET NX client.
	ErrWrongType = errors.New("redislock: not a lock")
	// ErrWrongKind means that the key is a lock of another type.
	ErrWrongKind = errors.New("redislock: lock of another type")
	// ErrTooManyWaiters means that as many requests wait as lock.max-waiters or lock.max-waiters-per-key allows.
	ErrTooManyWaiters = errors.New("redislock: too many waiters")
	// ErrCancelled means that an operator (LOCK.CANCEL, CLIENT UNBLOCK … ERROR) or a newer request with the same token
	// ended the wait. If the caller's context ends, the error is the context's instead.
	ErrCancelled = errors.New("redislock: the wait was cancelled")
	// ErrNotRun means that the command of an Exec did not run. The error also wraps the reason, such as [ErrNotAcquired],
	// [ErrLost] or the context's error.
	ErrNotRun = errors.New("redislock: the command did not run")
	// ErrNotReplicated means that fewer replicas than [WithReplicas] requires confirmed the grant in time, so the lock was
	// released again.
	ErrNotReplicated = errors.New("redislock: too few replicas confirmed the grant: released")
	// ErrNotMade means that the wait of [Once] timed out while another caller was still computing the value.
	ErrNotMade = errors.New("redislock: no value in time: another caller holds the lock")
	// ErrNoModule means that the server has not loaded the module.
	ErrNoModule = errors.New("redislock: this server has no redis-lock module: put `loadmodule " +
		"/path/to/libredis_lock.so` into redis.conf and restart it, or send MODULE LOAD /path/to/libredis_lock.so " +
		"where enable-module-command allows it")
	// ErrUsage means that an argument is invalid, an option does not fit the lock, or the go-redis client does not fit the
	// server. Nothing was granted or run.
	ErrUsage = errors.New("redislock: invalid use")
	// ErrClosed means that the [Client] was closed.
	ErrClosed = errors.New("redislock: the client is closed")
)

// NotAcquiredError is an [ErrNotAcquired] with the keys, and with the holder if [WithTellHolder] is set.
type NotAcquiredError struct {
	Keys []string
	// Holder is the owner ID of the oldest holder. It is empty without [WithTellHolder], if the lock has become free, or
	// if the user lacks the permission for LOCK.INFO.
	Holder string
}

// Error returns the message, with the keys and the holder.
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

// failure is a command that failed. isSent: the server may have run it, and only the reply is missing. isFinal: it must
// not be sent again. left: its caller's context has ended, and its reply may still come.
type failure struct {
	err             error
	isSent, isFinal bool
	left            *call
}

var errNoReply = errors.New("redislock: no reply in time")

// failureOf classifies the error of a command that was sent.
func failureOf(err error) *failure {
	if err == nil || errors.Is(err, redis.Nil) {
		return nil
	}
	return &failure{err: err, isSent: !isReply(err)}
}

// isReply reports whether the error is an error reply of the server.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// words splits an error reply into its code, which is the first word, and the rest. It unwraps errors, because go-redis
// wraps those of its handshake.
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

// isRedirection reports whether the request belongs to another node, or to none while its slot moves. Nothing was run.
func (f *failure) isRedirection() bool {
	switch f.code() {
	case "ASK", "MOVED", "TRYAGAIN":
		return true
	}
	return false
}

// ofClusterNode replaces the error if a client for a single server is connected to a node of a cluster, which it would
// not follow to the other nodes.
func (f *failure) ofClusterNode() *failure {
	switch f.code() {
	case "ASK", "CROSSSLOT", "MOVED":
		return &failure{err: usage("the server is a node of a cluster: create the client with redis.NewClusterClient (%v)",
			f.err)}
	}
	return f
}

// isTransient reports whether the same request may succeed in a moment, on another connection, node or primary.
func (f *failure) isTransient() bool {
	code, rest := f.words()
	switch code {
	case "ASK", "BUSY", "CLUSTERDOWN", "GRACE", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOREPLICAS", "READONLY",
		"TRYAGAIN":
		return true
	case "UNBLOCKED":
		// Redis's message when the server became a replica.
		return strings.Contains(rest, "instance state changed")
	case "ERR":
		return strings.HasPrefix(rest, "max number of clients reached")
	case "":
		return !f.isFinal && !isPermanent(f.err)
	}
	return false
}

// isPermanent reports whether each new connection would fail in the same way: a certificate, an unknown primary, a
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

// isRefusedBySentinels reports whether the sentinels do not know the primary, are not sentinels, or refuse the user.
// go-redis reports that only as text.
func isRefusedBySentinels(err error) bool {
	_, words, found := strings.Cut(err.Error(), "all sentinels specified in configuration are unreachable")
	return found && refusals.MatchString(words)
}

var refusals = regexp.MustCompile("redis: nil|unknown command|NOAUTH|WRONGPASS|NOPERM")

// meansLost reports whether the error of a release, renewal or exec means that the lock is no longer ours.
func (f *failure) meansLost() bool {
	code := f.code()
	return code == "WRONGTYPE" || code == "WRONGKIND" || code == "NOTHELD"
}

// meanings maps codes of error replies to their errors.
var meanings = map[string]error{"DEADLOCK": ErrDeadlock, "WRONGTYPE": ErrWrongType, "WRONGKIND": ErrWrongKind,
	"MAXWAITERS": ErrTooManyWaiters, "UNBLOCKED": ErrCancelled, "NOTHELD": ErrLost}

// error returns the error for the caller.
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
	if f.isRedirection() { // Not wrapped: a caller of Exec would take it for the command's own error.
		return fmt.Errorf("redislock: the slot of the key is moving: %v", f.err)
	}
	return f.err
}

// unknownCommand matches the error of a server that does not know a command of the module.
var unknownCommand = regexp.MustCompile("unknown command ['`](LOCK|RLOCK|RWLOCK|SEM|MLOCK)\\.")

// unexpected is the failure for a reply that no version of the module sends.
func unexpected(reply any) *failure {
	return &failure{err: fmt.Errorf("redislock: not a reply from the lock module: %v", reply), isSent: false}
}
