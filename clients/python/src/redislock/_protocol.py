"""Acquires, renews and releases a lock over connections that break, as generators of steps that do no I/O.

Three things must never happen: a second hold because of a lost reply, a lock left behind by a cancelled caller, and a
loss that is not reported.
"""

from __future__ import annotations

import functools
import logging
import math
import random
import weakref
from dataclasses import dataclass, replace
from typing import Any, Callable, NamedTuple, Optional, Sequence, Tuple, Union

from redis.exceptions import ResponseError, TimeoutError

from . import _durations as durations
from ._lock_types import LockType, Lease
from ._hold import Done, Grant, Granted, Hold, Ran, clock
from ._info import lock_info
from ._replies import (
    REDIS_ERRORS,
    at_the_end,
    code,
    described,
    is_redirection,
    is_transient,
    may_have_run,
    means_lost,
    translated,
)
from ._steps import CONNECT_S, Background, Behind, Call, Command, Join, Notify, Pause, Queued, Send, Spawn, Steps
from ._tokens import make_token, token_bytes
from .errors import LockError, LockNotOwnedError, NotReplicatedError, NotRunError, WrongTypeError, named

logger = logging.getLogger("redislock")

# BLOCK for a socket without a timeout.
SLICE_S = 5.0
# BLOCK of a request that waits for a message, in slices: if the client is paused at the end of a slice for longer than
# lock.keep-place (1 s), the request is still queued.
QUEUED_SLICES = 2
# A wait is reported as queued after this time.
QUEUED_S = 0.1
# A reply that has not come by then counts as lost: our limit for a socket without a timeout.
REPLY_MARGIN_S = 5.0
# How long an attempt may go on after the acquire timeout.
LATE_S = 1.0
# How long a request without BLOCK, or a release, is retried: long enough for a reconnect and for a slot to move.
RESEND_S = 1.0
RELEASE_S = 10.0
# How long a cancelled caller waits for its cleanup, which then goes on in the background until the lease expires.
CLEANUP_S = 1.0


# None: not granted.
Answer = Union[Granted, Done, Ran, None]


@dataclass
class Request:
    """One acquire. Retries repeat the same bytes.

    `holds`: the owner's count in this mode after the grant. `open`: the request may be queued or granted, so it is
    withdrawn if the acquire fails. `on_queued`: called if the first slice ends without a reply; that slice is short
    then. `inner`: a command to run under the grant, which is released right after it. `at_least`: the time to which the
    release will set the lease, if it is longer than the lease.
    """

    lock_type: LockType
    name: str
    token: bytes
    before: int
    holds: int
    lease: Lease
    session: bool
    coalesce: bool = False
    open: bool = False
    on_queued: Optional[Callable[[], None]] = None
    inner: Optional[Command] = None
    at_least: Optional[Lease] = None
    # The token was made for this request.
    is_new: bool = False
    # The request, or an earlier one, got no reply.
    unanswered: bool = False
    # `inner` was sent: unless its reply arrives it may have run, so it must not be sent again.
    executing: bool = False
    # The first packet was not granted. A transport that waits by messages sends the next packet only after a grant.
    tried: bool = False

    def command(self, block_ms: Optional[int]) -> Command:
        command = self.lock_type.acquire(self.token, self.holds, self.lease)
        if block_ms is not None:
            command += ("BLOCK", block_ms)
            if self.coalesce:
                command += ("COALESCE",)
        return command + ("SESSION",) if self.session else command

    def answer(self, reply: Any, sent: float) -> Answer:
        if reply is None:
            return None
        if reply[0] is None:
            return Done(int(reply[1]))
        holds = int(reply[2]) if len(reply) > 2 else 1
        slot = int(reply[3]) if len(reply) > 3 else None
        return Granted(int(reply[1]), holds, _deadline(sent, self.lease), clock(), slot)

    def is_late(self, sent: float) -> bool:
        """True if the reply came so late that the lease, which began with the grant, is clearly longer than we know."""
        return self.lease.ms is not None and clock() - sent >= self.lease.ms / 10_000

    def execution(self) -> Behind:
        assert self.inner is not None, "a request of `run`"
        return Behind(_exec(self.lock_type, self.token, self.inner), None, _reply_to(self.inner))

    def release(self) -> Behind:
        return Behind(self.lock_type.release(self.token, self.before), REPLY_MARGIN_S)


@dataclass
class Release:
    """A release: down to `holds`, or to a lease that expires at `kept_until`. `failed`: the work under the lock was not
    done. `was_lost`: the hold was known to be lost before."""

    lock_type: LockType
    token: bytes
    holds: int
    kept_until: Optional[float] = None
    failed: bool = False
    was_lost: bool = False

    def command(self) -> Tuple[Command, Callable[[Any], bool]]:
        """The command to send now, and a function that decides from its reply whether the token held the lock."""
        left_s = 0.0 if self.kept_until is None else self.kept_until - clock()
        if left_s > 0:
            return self.lock_type.renew(self.token, Lease(math.ceil(left_s * 1000))), _is_renewed
        if self.failed:
            return self.lock_type.release_failed(self.token), self.lock_type.was_held
        return self.lock_type.release(self.token, self.holds), self.lock_type.was_held


def _is_renewed(reply: Any) -> bool:
    return int(reply) == 1


class Backoff:
    """Jittered pauses, far below lock.keep-place (1 s), so that the waiter keeps its queue position."""

    FIRST_S, LAST_S = 0.01, 0.25

    def __init__(self, last_s: float = LAST_S) -> None:
        self._longest = self.FIRST_S
        self._last_s = last_s

    def next(self, until: Optional[float]) -> float:
        seconds = random.uniform(self._longest / 2, self._longest)
        self._longest = min(self._longest * 2, self._last_s)
        return seconds if until is None else max(0.0, min(seconds, until - clock()))


class Resend:
    """Resends a request for a limited time after its first failure. It is always tried twice, however late that failure
    came."""

    _until: Optional[float] = None
    _backoff: Optional[Backoff] = None

    def __init__(self, limit_s: float, last_s: float = Backoff.LAST_S) -> None:
        self._limit_s = limit_s
        self._last_s = last_s

    def expired(self) -> bool:
        if self._until is None:
            self._until = clock() + self._limit_s
            return False
        return clock() >= self._until

    def pause(self) -> Pause:
        self._backoff = self._backoff or Backoff(self._last_s)
        return Pause(self._backoff.next(self._until))


def resend_while(lease: Lease) -> Resend:
    """For background work that goes on until the lease expires."""
    return Resend(math.inf if lease.ms is None else lease.ms / 1000, last_s=1.0)


def acquire(
    transport: Any, pooled: Any, request: Request, wait_s: Optional[float], poll_s: Optional[float]
) -> Steps[Answer]:
    """Acquires the lock; None: not granted in time.

    `wait_s`: how long to wait; 0: do not wait, None: indefinitely. `poll_s`: poll at this interval instead of queueing,
    because other clients hold the key as a string. `pooled`: the transport for cleanups.

    After an error the caller withdraws the request if it is still open. The error may be any, including that of a
    signal handler, and only a Redis error can tell that nothing was sent.
    """
    ends = clock() + wait_s if wait_s else None
    until = clock() + RESEND_S if wait_s == 0 else ends
    # First wait for the cleanup of an earlier request of this owner, which could end this one.
    for background in () if request.is_new else pooled.cleanups().of(request.lock_type.names, request.token):
        yield Join(background, None if until is None else max(0.0, until - clock()))
        if not background.is_over():
            raise TimeoutError("No reply yet to the release of an earlier request with this token")
    waits = wait_s != 0 and poll_s is None
    resend = Resend(RESEND_S)
    backoff = Backoff()
    has_warned, before, failing_since = False, None, 0.0
    request.open = True
    try:
        while True:
            try:
                if request.at_least is not None:
                    yield from _prove(transport, request, request.at_least, ends)
                    request.at_least = None
                sent = clock()
                answer: Answer
                if request.inner is None:
                    answer = yield from _ask_alone(transport, request, ends, waits)
                else:
                    answer = yield from _ask_and_run(transport, request, ends, waits)
                # Granted, but the deadline may not be known yet.
                request.unanswered = isinstance(answer, Granted)
                if waits and isinstance(answer, Granted) and request.is_late(sent):
                    answer = yield from _with_deadline(transport, request, answer, ends)
            except REDIS_ERRORS as error:
                request.unanswered = request.unanswered or may_have_run(error) or transport.is_queued
                if request.executing and may_have_run(error):
                    raise
                if code(error) == "WRONGTYPE" and poll_s is None:
                    raise (yield from _wrong_type(transport, request)) from error
                if code(error) in ("WRONGTYPE", "GRACE") and not waits:
                    answer = None
                elif not is_transient(error):
                    raise translated(error, request.name)
                elif resend.expired() if wait_s == 0 else ends is not None and clock() >= ends:
                    if request.inner is not None and is_redirection(error):
                        raise _moving(request.name, error) from error
                    raise at_the_end(error, before)
                else:
                    failing_since = failing_since or clock()
                    # Every slot move causes redirections, so only one that lasts is logged as a warning.
                    is_lasting = not is_redirection(error) or clock() >= failing_since + RESEND_S
                    level = logging.WARNING if is_lasting and not has_warned else logging.DEBUG
                    logger.log(level, "%s: request not sent, retrying: %s", request.name, described(error))
                    has_warned, before = has_warned or is_lasting, error
                    yield resend.pause() if wait_s == 0 else Pause(backoff.next(ends))
                    continue
            if answer is not None or wait_s == 0:
                return answer
            if waits and request.on_queued is not None:
                request.on_queued()
                request.on_queued = None
            backoff, before, failing_since = Backoff(), None, 0.0
            if poll_s is not None:
                # Jittered, because old and new clients that poll in step would starve each other.
                pause = min(poll_s, durations.FOREVER_S) * random.uniform(0.5, 1.5)
                if ends is not None and clock() + pause > ends:
                    return None
                yield Pause(pause)
            elif ends is not None and clock() >= ends and not transport.is_queued:
                return None
    except REDIS_ERRORS:
        request.open = request.unanswered
        raise


def _prove(transport: Any, request: Request, at_least: Lease, ends: Optional[float]) -> Steps[None]:
    """Detects a time that the server will refuse because it is above lock.max-lease. Otherwise only the release would
    fail, after the work. A renewal with that time by an owner that holds nothing changes nothing."""
    command = request.lock_type.renew(token_bytes(make_token()), at_least)
    try:
        yield Send(transport, command, min(REPLY_MARGIN_S, _attempt_s(ends)))
    except ResponseError as error:
        # The acquire reports a key of another type.
        if means_lost(error):
            return
        if "invalid expire time" in str(error):
            raise named(LockError, f"the server rejected at_least: {error}", request.name) from error
        raise


def _ask_and_run(transport: Any, request: Request, ends: Optional[float], waits: bool) -> Steps[Answer]:
    """As `_ask_alone`, in one packet with the command and the release. Over a transport that waits by messages, a
    request that waits is sent alone, and the other two follow the grant."""
    request.executing = False
    answer: Answer
    if not transport.by_message:
        return (yield from _ask_in_packet(transport, request, ends, waits))
    if not request.tried:
        try:
            ran = yield from _ask_in_packet(transport, request, ends, False)
        except ResponseError as error:
            # A request that waits is queued during the grace period.
            if code(error) != "GRACE" or not waits:
                raise
            request.executing, ran = False, None
        request.tried = ran is None
        if ran is not None or not waits:
            return ran
    answer = yield from _ask_alone(transport, request, ends, waits)
    if not isinstance(answer, Granted):
        return answer
    # It is granted, so it is withdrawn if no reply arrives.
    request.unanswered = request.executing = True
    execution = request.execution()
    connect_s, behind = min(CONNECT_S, _attempt_s(ends)), (request.release(),)
    replies = yield Send(
        transport, execution.command, connect_s=connect_s, reply_to=execution.reply_to, behind=behind
    )
    return _ran(request, answer, *replies)


def _ask_in_packet(transport: Any, request: Request, ends: Optional[float], waits: bool) -> Steps[Optional[Ran]]:
    request.executing = True
    sent = clock()
    acquired, executed, released = yield from _ask_alone(
        transport, request, ends, waits, (request.execution(), request.release())
    )
    if isinstance(acquired, Exception):
        raise acquired
    answer = request.answer(acquired, sent)
    if isinstance(answer, Granted):
        return _ran(request, answer, executed, released)
    # Not granted, so the command did not run.
    request.executing = False
    return None


def _ran(request: Request, granted: Granted, executed: Any, released: Any) -> Ran:
    """Raises a connection error, and an error after which the command may be sent again because it did not run."""
    is_released = not isinstance(released, Exception)
    request.unanswered = not is_released
    if not isinstance(executed, Exception):
        return Ran(granted, executed, None, is_released)
    # WRONGTYPE may concern the lock's key, in which case the release reports it as well, or the command's own key.
    if code(executed) == "NOTHELD" or (code(executed) == "WRONGTYPE" and means_lost(released)):
        error: Exception = _not_run(request.name)
        error.__cause__ = executed
        return Ran(granted, None, error, is_released)
    if is_transient(executed):
        raise executed
    return Ran(granted, None, translated(executed, request.name), is_released)


def _ask_alone(
    transport: Any, request: Request, ends: Optional[float], waits: bool, behind: Sequence[Behind] = ()
) -> Steps[Any]:
    """Sends one request, or one slice of a wait, and returns its result; with commands behind it, all replies."""
    sent = clock()
    attempt_s = _attempt_s(ends)
    within_s = min(REPLY_MARGIN_S, attempt_s)
    block_ms, queued = None, None
    if waits:
        longest_s = slice_of(transport.socket_timeout())
        slice_s = longest_s if request.on_queued is None else min(longest_s, QUEUED_S)
        block_s = QUEUED_SLICES * longest_s if transport.by_message else slice_s
        if ends is not None:
            block_s = min(block_s, max(0.0, ends - sent))
        block_ms = max(1, round(block_s * 1000))
        within_s = min(block_s + REPLY_MARGIN_S, attempt_s)
        queued = Queued(request.lock_type.names, request.token, block_ms, slice_s, request.is_new, request.command)
    command = request.command(block_ms)
    connect_s = min(CONNECT_S, attempt_s)
    reply = yield Send(transport, command, within_s, waits=waits, connect_s=connect_s, queued=queued, behind=behind)
    return reply if behind else request.answer(reply, sent)


def _attempt_s(ends: Optional[float]) -> float:
    """How long an attempt that starts now may take."""
    return math.inf if ends is None else max(0.0, ends - clock()) + LATE_S


def _with_deadline(
    transport: Any, request: Request, granted: Granted, ends: Optional[float]
) -> Steps[Optional[Granted]]:
    """The grant with the deadline that the server reports; None if it has been lost since."""
    asked = clock()
    held = yield Send(transport, request.lock_type.held(request.token), min(REPLY_MARGIN_S, _attempt_s(ends)))
    if held is None:
        return None
    left_ms = int(held[2])
    return replace(granted, deadline=None if left_ms < 0 else asked + left_ms / 1000)


def slice_of(socket_timeout_s: Optional[float]) -> float:
    """Seconds for BLOCK, with room for the reply before the socket's timeout."""
    if socket_timeout_s is None:
        return SLICE_S
    if socket_timeout_s < 1:
        return socket_timeout_s / 2
    return min(socket_timeout_s * 3 / 4, socket_timeout_s - 0.5)


def _wrong_type(transport: Any, request: Request) -> Steps[Exception]:
    found = yield Send(transport, ("TYPE", request.lock_type.key), REPLY_MARGIN_S)
    found = found.decode() if isinstance(found, bytes) else str(found)
    hint = "; a SET NX client may hold it: mixed=True shares the lock with such clients" if found == "string" else ""
    return named(WrongTypeError, f"the key {request.name!r} is a {found}, not a lock{hint}", request.name)


# Cleanup after a caller that is gone. It is retried until it succeeds or the lease expires.


def cleanup(transport: Any, lock_type: LockType, token: bytes, steps: Steps[None]) -> Steps[Background]:
    """Runs these steps to completion in the background, even if the caller is cancelled. They end a request or hold of
    the owner, so its next acquire waits for them."""
    background: Background = yield Spawn(steps, "redislock cleanup", here_s=CLEANUP_S)
    transport.cleanups().add(lock_type.names, token, background)
    return background


def withdraw(transport: Any, request: Request, lease: Lease) -> Steps[None]:
    """Removes the request from the queue, or releases its grant. `lease`: the longest that it may have."""
    # Cancel first: a release alone could arrive just before the grant.
    yield from _sent(transport, _always(request.lock_type.cancel(request.token)), lease)
    release = Release(request.lock_type, request.token, request.before, failed=request.coalesce)
    yield from release_unchecked(transport, release, lease)


def release_unchecked(transport: Any, release: Release, lease: Lease) -> Steps[None]:
    """Ends the hold, whatever the server replies."""
    yield from _sent(transport, lambda: release.command()[0], lease)


def _release_each_unchecked(transport: Any, release: Release, lease: Lease) -> Steps[None]:
    for command in release.lock_type.release_each(release.token):
        yield from _sent(transport, _always(command), lease)


def _always(command: Command) -> Callable[[], Command]:
    return lambda: command


def _sent(transport: Any, command: Callable[[], Command], lease: Lease) -> Steps[None]:
    resend = resend_while(lease)
    while True:
        try:
            yield Send(transport, command(), CONNECT_S)
            return
        except REDIS_ERRORS as error:
            if not is_transient(error) or resend.expired():
                logger.debug("%s: not sent: %s", command()[:2], described(error))
                return
        yield resend.pause()


def replicated(transport: Any, name: str, replicas: int, timeout_ms: int) -> Steps[None]:
    """Waits until this many replicas have received the grant, which was made on this same connection."""
    until = clock() + min(durations.seconds("replica_timeout", timeout_ms) / 1000, durations.FOREVER_S)
    while True:
        longest = slice_of(transport.socket_timeout())
        wait_ms = max(1, round(min(longest, max(0.0, until - clock())) * 1000))
        within_s = wait_ms / 1000 + REPLY_MARGIN_S
        confirmed = int((yield Send(transport, ("WAIT", replicas, wait_ms), within_s, waits=True)))
        if confirmed >= replicas:
            return
        if clock() >= until:
            message = f"{confirmed} of {replicas} replicas confirmed the grant within {timeout_ms} ms: released"
            raise named(NotReplicatedError, message, name)


def join(renewals: Sequence[Background]) -> Steps[None]:
    """Waits for the renewals to end, while a reply may be in flight. They use another connection, so the server might
    read a renewal after the release has set the lease, and overwrite it."""
    until = clock() + REPLY_MARGIN_S
    for each in renewals:
        yield Join(each, max(0.0, until - clock()))


def release(
    transport: Any, ending: Release, hold: Hold, resend: Optional[Resend] = None, within_s: Optional[float] = None
) -> Steps[bool]:
    """Ends the hold; False: it was lost before. A release whose reply was lost is resent."""
    resend = resend or Resend(RELEASE_S)
    may_be_done = False
    while True:
        command, was_held = ending.command()
        try:
            reply = yield Send(transport, command, REPLY_MARGIN_S if within_s is None else within_s)
        except REDIS_ERRORS as error:
            if means_lost(error):
                if ending.lock_type.release_each(ending.token):
                    each = _release_each_unchecked(transport, ending, hold.longest(hold.lease))
                    background = yield from cleanup(transport, ending.lock_type, ending.token, each)
                    yield Join(background, CLEANUP_S)
                return False
            if not is_transient(error) or resend.expired():
                raise translated(error, "")
            may_be_done = may_be_done or may_have_run(error)
            yield resend.pause()
            continue
        if was_held is _is_renewed and not _is_renewed(reply) and len(ending.lock_type.names) > 1:
            # At least one of the keys was lost, so the renewal changed nothing: release the others.
            ending.kept_until = None
            continue
        # If this release finds nothing, an earlier one whose reply was lost has released the lock. If it finds some of
        # multiple keys, no earlier one has run. A loss that was known before remains a loss, even if the server still
        # had the lock.
        return not ending.was_lost and (was_held(reply) or (may_be_done and int(reply) <= 0))


def renew(transport: Any, lock_type: LockType, hold: Hold, lease: Lease) -> Steps[bool]:
    """Restarts the lease from now; False: lost. After an error, the hold has the earlier deadline and the shorter lease
    if the server may have run this, and otherwise its old ones."""
    resend = Resend(RESEND_S)
    # Now, so that a renewal that is in flight finds out that it may overwrite this one, and is followed by another.
    before, hold.lease = hold.lease, lease
    otherwise = before
    try:
        while True:
            sent = clock()
            try:
                reply = yield Send(transport, lock_type.renew(hold.token, lease), REPLY_MARGIN_S)
            except BaseException as error:
                if not isinstance(error, REDIS_ERRORS) or may_have_run(error):
                    hold.shorten(_deadline(sent, lease))
                    otherwise = before.shorter(lease)
                if not isinstance(error, REDIS_ERRORS):
                    raise
                if means_lost(error):
                    return False
                if not is_transient(error) or resend.expired():
                    raise translated(error, "")
                yield resend.pause()
                continue
            if not _is_renewed(reply) or hold.loss_reported:
                return False
            hold.renewed(_deadline(sent, lease))
            return True
    except BaseException:
        # Including a cancellation during the pause.
        hold.lease = otherwise
        raise


def query(transport: Any, command: Command, name: str) -> Steps[Any]:
    """Sends a read-only command, and resends it while that may help."""
    resend = Resend(RESEND_S)
    while True:
        try:
            return (yield Send(transport, command, REPLY_MARGIN_S))
        except REDIS_ERRORS as error:
            if not is_transient(error) or resend.expired():
                raise translated(error, name)
            yield resend.pause()


def same_place(
    transport: Any, client_info: Callable[[Optional[float]], Any], name: str, until: Optional[float]
) -> Steps[None]:
    """Raises LockError if the client's single connection has another database or user than the connections of the lock,
    which are opened with the client's original settings.

    `client_info` asks the single connection, for at most the given number of seconds. `until`: when to stop retrying;
    None: never.
    """
    backoff = Backoff()
    while True:
        within_s = None if until is None else max(LATE_S, until - clock())
        try:
            theirs = yield Call(functools.partial(client_info, within_s))
            reply = yield Send(transport, ("CLIENT", "INFO"), min(REPLY_MARGIN_S, _attempt_s(until)))
            break
        except REDIS_ERRORS as error:
            if not is_transient(error) or (until is not None and clock() >= until):
                raise translated(error, name)
            yield Pause(backoff.next(until))
    text = reply.decode() if isinstance(reply, bytes) else str(reply)
    ours = dict(field.partition("=")[::2] for field in text.split())
    for field, word, option in (("db", "database", "db"), ("user", "user", "username")):
        if str(theirs[field]) != ours[field]:
            message = (
                f"a command switched the client's single connection to the {word} {theirs[field]!s}, but the "
                f"connections of its locks use {ours[field]}: create the client with {option}="
            )
            raise named(LockError, message, name)


def holder(transport: Any, lock_type: LockType) -> Steps[Optional[str]]:
    """The owner ID of the holder, of multiple the one with the smallest fence; None: no holder, or unknown."""
    try:
        for command in lock_type.info():
            info = lock_info((yield Send(transport, command, LATE_S)))
            if info is not None and info.holders:
                return info.holders[0].owner
    except REDIS_ERRORS as error:
        logger.debug("the holder is unknown: %s", described(error))
    return None


class Held(NamedTuple):
    """The server's view of a hold. `holds` counts all modes. `left_ms` is -1 without a deadline."""

    fence: int
    holds: int
    left_ms: int
    deadline: Optional[float]


def held(transport: Any, lock_type: LockType, token: bytes, name: str) -> Steps[Optional[Held]]:
    """None: the token does not hold the lock."""
    asked = clock()
    try:
        reply = yield from query(transport, lock_type.held(token), name)
    except REDIS_ERRORS as error:
        if means_lost(error):
            return None
        raise
    if reply is None:
        return None
    left_ms = int(reply[2])
    return Held(int(reply[0]), int(reply[1]), left_ms, None if left_ms < 0 else asked + left_ms / 1000)


def execute(transport: Any, lock_type: LockType, hold: Hold, name: str, command: Command) -> Steps[Any]:
    """Sends LOCK.EXEC. Resends it only if the command did not run for certain."""
    if hold.lost:
        raise _not_run(name)
    resend, moving = Resend(RESEND_S), Resend(RELEASE_S)
    reply_to = _reply_to(command)
    while True:
        try:
            return (yield Send(transport, _exec(lock_type, hold.token, command), reply_to=reply_to))
        except REDIS_ERRORS as error:
            lost = code(error) == "NOTHELD"
            if code(error) == "WRONGTYPE":
                # WRONGTYPE may concern the lock's key or the command's own.
                lost = (yield from held(transport, lock_type, hold.token, name)) is None
            is_moving = is_redirection(error)
            if lost or (is_moving and hold.lost):
                raise _not_run(name) from error
            again = moving if is_moving else resend
            if not is_transient(error) or may_have_run(error) or again.expired():
                if is_moving:
                    raise _moving(name, error) from error
                raise translated(error, name)
            yield again.pause()


def _moving(name: str, error: Exception) -> NotRunError:
    return named(NotRunError, f"The slot of the command's keys is moving, so it did not run: {described(error)}", name)


def _exec(lock_type: LockType, token: bytes, command: Command) -> Command:
    return ("LOCK.EXEC", lock_type.key, token, *command)


def _reply_to(command: Command) -> str:
    first = command[0]
    return (first.decode() if isinstance(first, bytes) else str(first)).upper()


def _not_run(name: str) -> LockNotOwnedError:
    return named(LockNotOwnedError, "The lock is no longer owned, so the command did not run", name)


def release_in_background(transport: Any, lock_type: LockType, token: bytes, lease: Lease) -> Steps[None]:
    """Releases a hold whose release failed, in the background, without a caller that waits."""
    release = Release(lock_type, token, 0)
    each = _release_each_unchecked if lock_type.release_each(token) else release_unchecked
    yield from cleanup(transport, lock_type, token, each(transport, release, lease))


# Background tasks of a hold. They keep no reference to it while they pause, so that a hold that its owner drops expires
# instead of being renewed indefinitely.

OnLost = Callable[[Grant], Any]


def renewal_loop(
    transport: Any,
    name: str,
    lock_type: LockType,
    hold: "weakref.ref[Hold]",
    on_lost: Optional[OnLost],
    at_once: bool = False,
) -> Steps[None]:
    """Renews after each third of the lease, and so reports a loss within a third. `at_once`: renews at once as well."""
    yield from _check_loop(transport, name, hold, on_lost, lock_type.renew, None, at_once)


def session_loop(
    transport: Any, name: str, lock_type: LockType, hold: "weakref.ref[Hold]", on_lost: Optional[OnLost]
) -> Steps[None]:
    """Checks a session, whose lease the server renews: the lock is lost when the connection ends, or when the check
    after each third of the lease says so."""
    yield from _check_loop(transport, name, hold, on_lost, lambda token, _: lock_type.held(token), transport)


def _check_loop(
    transport: Any,
    name: str,
    hold: "weakref.ref[Hold]",
    on_lost: Optional[OnLost],
    command: Callable[[bytes, Lease], Command],
    until_closed: Any,
    failed: bool = False,
) -> Steps[None]:
    backoff = Backoff()
    overtaken = False
    while True:
        kept = hold()
        if kept is None or kept.ended:
            return
        assert kept.lease.ms is not None, "auto_renew and session need a lease"
        third_s = kept.lease.ms / 3000
        del kept
        # These steps may have been stopped, and would end at a pause.
        if not overtaken:
            yield Pause(min(third_s, backoff.next(None)) if failed else third_s, until_closed)
        kept = hold()
        if kept is None or kept.ended:
            return
        sent, lease = clock(), kept.lease
        # Not until the deadline, because a retry may have a new connection. A session has no local deadline, so a late
        # reply must not end it.
        left_s = REPLY_MARGIN_S if until_closed is not None or kept.deadline is None else kept.deadline - sent
        try:
            reply = yield Send(transport, command(kept.token, lease), max(0.05, min(REPLY_MARGIN_S, left_s)))
            is_held = reply is not None and reply != 0
        except Exception as error:
            # A session has no local deadline, so if its check fails for any reason, nothing else reports the loss.
            if until_closed is None:
                if not isinstance(error, REDIS_ERRORS):
                    raise
                if not means_lost(error) and not kept.lost:
                    overtaken = kept.lease is not lease
                    if overtaken:
                        kept.shorten(_deadline(sent, lease))
                    level = logging.DEBUG if failed else logging.WARNING
                    logger.log(level, "%s: not renewed, retrying until the lease expires: %s", name, described(error))
                    failed = True
                    continue
            is_held = False
        if not is_held or kept.loss_reported:
            yield from lose(kept, on_lost)
            return
        overtaken = until_closed is None and kept.lease is not lease
        if overtaken:
            # The caller renewed meanwhile, and the server may have read that request first: renew again.
            kept.shorten(_deadline(sent, lease))
        elif until_closed is None:
            kept.renewed(_deadline(sent, lease))
        else:
            kept.extend(_deadline(sent, lease))
        failed, backoff = False, Backoff()
        del kept


def deadline_loop(hold: "weakref.ref[Hold]", on_lost: OnLost) -> Steps[None]:
    """Reports the loss when the lease expires by the local clock, even if renewals cannot reach the server."""
    while True:
        kept = hold()
        if kept is None or kept.ended:
            return
        # reacquire may add a deadline later, so check again every minute.
        left_s = 60.0 if kept.deadline is None else kept.deadline - clock()
        del kept
        yield Pause(max(0.0, left_s))
        kept = hold()
        if kept is not None and not kept.ended and kept.lost:
            yield from lose(kept, on_lost)
            return


def lose(hold: Hold, on_lost: Optional[OnLost]) -> Steps[None]:
    grant = hold.grant()
    if hold.lose() and on_lost is not None:
        yield Notify(on_lost, grant)


def _deadline(sent: float, lease: Lease) -> Optional[float]:
    return None if lease.ms is None else sent + lease.ms / 1000
