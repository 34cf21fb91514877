"""How a lock is acquired, kept and released over connections that break. Generators of steps: no I/O here.

Must never happen: a second hold because of a lost reply, a lock left behind by a caller that gave up, an unreported
loss.
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
from ._families import Family, Lease
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

# BLOCK of a socket without a time-out.
SLICE_S = 5.0
# A wait is told as queued after this time.
QUEUED_S = 0.1
# Later than this no reply will come: our limit for a socket without a time-out.
REPLY_MARGIN_S = 5.0
# How late an attempt may end, counted from the end of the caller's time.
LATE_S = 1.0
# How long a request without BLOCK, or a release, is resent: long enough for a reconnect and a slot's move.
RESEND_S = 1.0
RELEASE_S = 10.0
# How long a caller that gives up waits for its cleanup; the cleanup goes on in the background until the lease is over.
CLEANUP_S = 1.0


# None: not granted.
Answer = Union[Granted, Done, Ran, None]


@dataclass
class Request:
    """One acquire; retries repeat the same bytes. `holds`: the owner's count in this mode after the grant. `open`: the
    request may be queued or granted, so it is withdrawn if the acquire fails. `on_queued`: called if the first slice,
    which is short then, ends without an answer. `inner`: a command to run under the grant, which is given back behind
    it. `at_least`: the time to which the release will set the lease, if it is longer than the lease."""

    family: Family
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
    # The request, or an earlier one, has no answer.
    unanswered: bool = False
    # `inner` was sent: without a reply it may have run, and must not be sent again.
    executing: bool = False
    # Not granted by the first packet: over a transport that waits by messages, the next packet comes after a grant.
    tried: bool = False

    def command(self, block_ms: Optional[int]) -> Command:
        command = self.family.acquire(self.token, self.holds, self.lease)
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
        """The lease began with the grant, which may be a slice later than the request: True if that matters."""
        return self.lease.ms is not None and clock() - sent >= self.lease.ms / 10_000

    def execution(self) -> Behind:
        assert self.inner is not None, "a request of `run`"
        return Behind(_exec(self.family, self.token, self.inner), None, _reply_to(self.inner))

    def release(self) -> Behind:
        return Behind(self.family.release(self.token, self.before), REPLY_MARGIN_S)


@dataclass
class Release:
    """The end of a hold: released down to `holds`, or left to a lease that ends at `kept_until`. `failed`: the work
    under the lock was not done. `was_lost`: the hold was known to be lost before."""

    family: Family
    token: bytes
    holds: int
    kept_until: Optional[float] = None
    failed: bool = False
    was_lost: bool = False

    def command(self) -> Tuple[Command, Callable[[Any], bool]]:
        """The command to send now, and how to read from its reply whether the token held the lock."""
        left_s = 0.0 if self.kept_until is None else self.kept_until - clock()
        if left_s > 0:
            return self.family.renew(self.token, Lease(math.ceil(left_s * 1000))), _is_renewed
        if self.failed:
            return self.family.release_failed(self.token), self.family.was_held
        return self.family.release(self.token, self.holds), self.family.was_held


def _is_renewed(reply: Any) -> bool:
    return int(reply) == 1


class Backoff:
    """Jittered pauses, far below lock.keep-place (1 s): the waiter keeps its place in the queue."""

    FIRST_S, LAST_S = 0.01, 0.25

    def __init__(self, last_s: float = LAST_S) -> None:
        self._longest = self.FIRST_S
        self._last_s = last_s

    def next(self, until: Optional[float]) -> float:
        seconds = random.uniform(self._longest / 2, self._longest)
        self._longest = min(self._longest * 2, self._last_s)
        return seconds if until is None else max(0.0, min(seconds, until - clock()))


class Resend:
    """Resends a request for this long after its first failure. There is a second try, however late that failure
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
    """For what goes on in the background until the lease is over."""
    return Resend(math.inf if lease.ms is None else lease.ms / 1000, last_s=1.0)


def acquire(
    transport: Any, pooled: Any, request: Request, wait_s: Optional[float], poll_s: Optional[float]
) -> Steps[Answer]:
    """Acquires the lock; None: not granted in time.

    `wait_s`: how long to wait, 0: not at all, None: for ever. `poll_s`: poll at this interval and do not queue, beside
    clients that hold the key as a string. `pooled`: the transport of the cleanups. After an error the caller withdraws
    the request if it is open: any error may come here, a signal handler's too, and only Redis errors can tell that
    nothing was sent."""
    ends = clock() + wait_s if wait_s else None
    until = clock() + RESEND_S if wait_s == 0 else ends
    # Not before the cleanup of an earlier request of the owner, which could end this one.
    for background in pooled.cleanups().of(request.family.names, request.token):
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
                # It may have been granted without a deadline yet.
                request.unanswered = isinstance(answer, Granted)
                if waits and isinstance(answer, Granted) and request.is_late(sent):
                    answer = yield from _with_deadline(transport, request, answer, ends)
            except REDIS_ERRORS as error:
                request.unanswered = request.unanswered or may_have_run(error)
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
                    # A redirection is part of every slot's move, so only one that lasts is told.
                    is_told = not is_redirection(error) or clock() >= failing_since + RESEND_S
                    level = logging.WARNING if is_told and not has_warned else logging.DEBUG
                    logger.log(level, "%s: request not sent, retrying: %s", request.name, described(error))
                    has_warned, before = has_warned or is_told, error
                    yield resend.pause() if wait_s == 0 else Pause(backoff.next(ends))
                    continue
            if answer is not None or wait_s == 0:
                return answer
            if waits and request.on_queued is not None:
                request.on_queued()
                request.on_queued = None
            backoff, before, failing_since = Backoff(), None, 0.0
            if poll_s is not None:
                # Half to one and a half of the interval: old and new clients that poll in step would starve each other.
                pause = min(poll_s, durations.FOREVER_S) * random.uniform(0.5, 1.5)
                if ends is not None and clock() + pause > ends:
                    return None
                yield Pause(pause)
            elif ends is not None and clock() >= ends:
                return None
    except REDIS_ERRORS:
        request.open = request.unanswered
        raise


def _prove(transport: Any, request: Request, at_least: Lease, ends: Optional[float]) -> Steps[None]:
    """Finds a time that the server will refuse, as it is above lock.max-lease: otherwise only the release would find
    it, behind the work. A renewal with that time by an owner that holds nothing changes nothing."""
    command = request.family.renew(token_bytes(make_token()), at_least)
    try:
        yield Send(transport, command, min(REPLY_MARGIN_S, _attempt_s(ends)))
    except ResponseError as error:
        # The acquire tells of a key that is something else.
        if means_lost(error):
            return
        if "invalid expire time" in str(error):
            raise named(LockError, f"the server rejected at_least: {error}", request.name) from error
        raise


def _ask_and_run(transport: Any, request: Request, ends: Optional[float], waits: bool) -> Steps[Answer]:
    """As `_ask_alone`, in one packet with the command and the release; where waits are answered by messages, a request
    that waits has none behind it: they follow the grant."""
    request.executing = False
    answer: Answer
    if not transport.by_message:
        return (yield from _ask_in_packet(transport, request, ends, waits))
    if not request.tried:
        try:
            ran = yield from _ask_in_packet(transport, request, ends, False)
        except ResponseError as error:
            # A request that waits is queued meanwhile.
            if code(error) != "GRACE" or not waits:
                raise
            request.executing, ran = False, None
        request.tried = ran is None
        if ran is not None or not waits:
            return ran
    answer = yield from _ask_alone(transport, request, ends, waits)
    if not isinstance(answer, Granted):
        return answer
    # Withdrawn, if there is no answer: it is granted.
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
    # Nor was the command run.
    request.executing = False
    return None


def _ran(request: Request, granted: Granted, executed: Any, released: Any) -> Ran:
    """Raises an error of the connection, and one after which the command, which did not run, may be sent again."""
    is_released = not isinstance(released, Exception)
    request.unanswered = not is_released
    if not isinstance(executed, Exception):
        return Ran(granted, executed, None, is_released)
    # WRONGTYPE of the lock's key, which the release reports too, or of the command's own.
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
    """One request, or one slice of a wait: the answer; with commands behind the request, all replies."""
    sent = clock()
    attempt_s = _attempt_s(ends)
    within_s = min(REPLY_MARGIN_S, attempt_s)
    block_ms = None
    if waits:
        slice_s = slice_of(transport.socket_timeout())
        if request.on_queued is not None:
            slice_s = min(slice_s, QUEUED_S)
        block_s = slice_s if ends is None else min(slice_s, max(0.0, ends - sent))
        block_ms = max(1, round(block_s * 1000))
        within_s = min(block_s + REPLY_MARGIN_S, attempt_s)
    command = request.command(block_ms)
    queued = None if block_ms is None else Queued(request.family.names, request.token, block_ms)
    connect_s = min(CONNECT_S, attempt_s)
    reply = yield Send(transport, command, within_s, waits=waits, connect_s=connect_s, queued=queued, behind=behind)
    return reply if behind else request.answer(reply, sent)


def _attempt_s(ends: Optional[float]) -> float:
    """How long an attempt that begins now may last."""
    return math.inf if ends is None else max(0.0, ends - clock()) + LATE_S


def _with_deadline(
    transport: Any, request: Request, granted: Granted, ends: Optional[float]
) -> Steps[Optional[Granted]]:
    """The grant with the deadline that the server tells; None: it was lost meanwhile."""
    asked = clock()
    held = yield Send(transport, request.family.held(request.token), min(REPLY_MARGIN_S, _attempt_s(ends)))
    if held is None:
        return None
    left_ms = int(held[2])
    return replace(granted, deadline=None if left_ms < 0 else asked + left_ms / 1000)


def slice_of(socket_timeout_s: Optional[float]) -> float:
    """Seconds for BLOCK, with room for the reply before the socket's time-out."""
    if socket_timeout_s is None:
        return SLICE_S
    if socket_timeout_s < 1:
        return socket_timeout_s / 2
    return min(socket_timeout_s * 3 / 4, socket_timeout_s - 0.5)


def _wrong_type(transport: Any, request: Request) -> Steps[Exception]:
    found = yield Send(transport, ("TYPE", request.family.key), REPLY_MARGIN_S)
    found = found.decode() if isinstance(found, bytes) else str(found)
    hint = "; a SET NX client may hold it: mixed=True shares the lock with such clients" if found == "string" else ""
    return named(WrongTypeError, f"the key {request.name!r} is a {found}, not a lock{hint}", request.name)


# Cleanup after a caller that has gone. It goes on until it succeeds, or until the lease is over.


def cleanup(transport: Any, family: Family, token: bytes, steps: Steps[None]) -> Steps[Background]:
    """Runs these steps to their end in the background, even if the caller is cancelled: they end something of the
    owner. The owner's next acquire waits for their end."""
    background: Background = yield Spawn(steps, "redislock cleanup", here_s=CLEANUP_S)
    transport.cleanups().add(family.names, token, background)
    return background


def withdraw(transport: Any, request: Request) -> Steps[None]:
    """Leave neither a queued request nor a hold of it behind."""
    # In this order: a release alone could arrive just before the grant.
    yield from _sent(transport, _always(request.family.cancel(request.token)), request.lease)
    release = Release(request.family, request.token, request.before, failed=request.coalesce)
    yield from give_back(transport, release, request.lease)


def give_back(transport: Any, release: Release, lease: Lease) -> Steps[None]:
    """Ends the hold, whatever the server replies."""
    yield from _sent(transport, lambda: release.command()[0], lease)


def _give_back_each(transport: Any, release: Release, lease: Lease) -> Steps[None]:
    for command in release.family.release_each(release.token):
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
    """Waits until they have ended, as long as a reply may be under way. A renewal that the server reads later than a
    shorter or longer lease would overwrite it: they come over different connections."""
    until = clock() + REPLY_MARGIN_S
    for each in renewals:
        yield Join(each, max(0.0, until - clock()))


def release(
    transport: Any, ending: Release, hold: Hold, resend: Optional[Resend] = None, within_s: Optional[float] = None
) -> Steps[bool]:
    """Ends the hold; False: lost before. A release whose reply was lost is resent."""
    resend = resend or Resend(RELEASE_S)
    may_be_done = False
    while True:
        command, was_held = ending.command()
        try:
            reply = yield Send(transport, command, REPLY_MARGIN_S if within_s is None else within_s)
        except REDIS_ERRORS as error:
            if means_lost(error):
                if ending.family.release_each(ending.token):
                    each = _give_back_each(transport, ending, hold.lease)
                    background = yield from cleanup(transport, ending.family, ending.token, each)
                    yield Join(background, CLEANUP_S)
                return False
            if not is_transient(error) or resend.expired():
                raise translated(error, "")
            may_be_done = may_be_done or may_have_run(error)
            yield resend.pause()
            continue
        if was_held is _is_renewed and not _is_renewed(reply) and len(ending.family.names) > 1:
            # At least one of the keys was lost: release the others, which the renewal did not change.
            ending.kept_until = None
            continue
        # If this release finds nothing, an earlier one has released the lock, and its reply was lost. If this release
        # finds some of several keys, no earlier one has run. A loss that was known before stays one, whatever the
        # server still had.
        return not ending.was_lost and (was_held(reply) or (may_be_done and int(reply) <= 0))


def renew(transport: Any, family: Family, hold: Hold, lease: Lease) -> Steps[bool]:
    """Restarts the lease from now; False: lost."""
    resend = Resend(RESEND_S)
    while True:
        sent = clock()
        try:
            reply = yield Send(transport, family.renew(hold.token, lease), REPLY_MARGIN_S)
        except REDIS_ERRORS as error:
            if means_lost(error):
                return False
            if not is_transient(error) or resend.expired():
                raise translated(error, "")
            yield resend.pause()
            continue
        if not _is_renewed(reply):
            return False
        hold.renewed(_deadline(sent, lease))
        return True


def query(transport: Any, command: Command, name: str) -> Steps[Any]:
    """A command that only reads, resent while that may help."""
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
    """Raises LockError if the client's single connection is in another database, or of another user, than the
    connections that the lock makes: those are made as the client was. `client_info` asks it, for at most so many
    seconds. `until`: how long to ask again; None: for ever."""
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


def holder(transport: Any, family: Family) -> Steps[Optional[str]]:
    """The owner that holds it, the one with the smallest fence; None: none, or it is not known."""
    try:
        for command in family.info():
            info = lock_info((yield Send(transport, command, LATE_S)))
            if info is not None and info.holders:
                return info.holders[0].owner
    except REDIS_ERRORS as error:
        logger.debug("the holder is unknown: %s", described(error))
    return None


class Held(NamedTuple):
    """The server's view of a hold. `holds`: in all modes together. `left_ms`: -1: no deadline."""

    fence: int
    holds: int
    left_ms: int
    deadline: Optional[float]


def held(transport: Any, family: Family, token: bytes, name: str) -> Steps[Optional[Held]]:
    """None: the token does not hold the lock."""
    asked = clock()
    try:
        reply = yield from query(transport, family.held(token), name)
    except REDIS_ERRORS as error:
        if means_lost(error):
            return None
        raise
    if reply is None:
        return None
    left_ms = int(reply[2])
    return Held(int(reply[0]), int(reply[1]), left_ms, None if left_ms < 0 else asked + left_ms / 1000)


def execute(transport: Any, family: Family, hold: Hold, name: str, command: Command) -> Steps[Any]:
    """LOCK.EXEC. Resent only if it certainly did not run."""
    resend, moving = Resend(RESEND_S), Resend(RELEASE_S)
    reply_to = _reply_to(command)
    while True:
        try:
            return (yield Send(transport, _exec(family, hold.token, command), reply_to=reply_to))
        except REDIS_ERRORS as error:
            lost = code(error) == "NOTHELD"
            if code(error) == "WRONGTYPE":
                # WRONGTYPE of the lock's key, or of the command's own.
                lost = (yield from held(transport, family, hold.token, name)) is None
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


def _exec(family: Family, token: bytes, command: Command) -> Command:
    return ("LOCK.EXEC", family.key, token, *command)


def _reply_to(command: Command) -> str:
    first = command[0]
    return (first.decode() if isinstance(first, bytes) else str(first)).upper()


def _not_run(name: str) -> LockNotOwnedError:
    return named(LockNotOwnedError, "The lock is no longer owned, so the command did not run", name)


def given_back(transport: Any, family: Family, token: bytes, lease: Lease) -> Steps[None]:
    """Ends a hold whose release failed, in the background: no caller waits for it."""
    release = Release(family, token, 0)
    each = _give_back_each if family.release_each(token) else give_back
    yield from cleanup(transport, family, token, each(transport, release, lease))


# Tasks beside a hold. They keep no reference to it while they pause: a hold that its owner drops ends with its lease,
# and is not renewed for ever.

OnLost = Callable[[Grant], Any]


def renewal_loop(transport: Any, family: Family, hold: "weakref.ref[Hold]", on_lost: Optional[OnLost]) -> Steps[None]:
    """Renews after each third of the lease; a loss is reported within a third."""
    yield from _check_loop(transport, hold, on_lost, lambda kept: family.renew(kept.token, kept.lease), None)


def session_loop(transport: Any, family: Family, hold: "weakref.ref[Hold]", on_lost: Optional[OnLost]) -> Steps[None]:
    """The server renews. The lock is lost when the connection ends, or when it says so after a third of the lease."""
    yield from _check_loop(transport, hold, on_lost, lambda kept: family.held(kept.token), transport)


def _check_loop(
    transport: Any,
    hold: "weakref.ref[Hold]",
    on_lost: Optional[OnLost],
    command: Callable[[Hold], Command],
    until_closed: Any,
) -> Steps[None]:
    backoff = Backoff()
    failed = False
    while True:
        kept = hold()
        if kept is None or kept.ended:
            return
        assert kept.lease.ms is not None, "auto_renew and session need a lease"
        third_s = kept.lease.ms / 3000
        del kept
        yield Pause(min(third_s, backoff.next(None)) if failed else third_s, until_closed)
        kept = hold()
        if kept is None or kept.ended:
            return
        sent = clock()
        # A session lives as long as its connection: a late reply must not end it.
        ends_s = REPLY_MARGIN_S if until_closed is not None or kept.deadline is None else kept.deadline - sent
        try:
            reply = yield Send(transport, command(kept), max(0.05, ends_s))
            is_held = reply is not None and reply != 0
        except Exception as error:
            # A session has no local deadline: if its check fails, for any reason, only this line reports the loss.
            if until_closed is None:
                if not isinstance(error, REDIS_ERRORS):
                    raise
                if not means_lost(error) and not kept.lost:
                    level = logging.DEBUG if failed else logging.WARNING
                    logger.log(level, "not renewed, retrying until the lease expires: %s", described(error))
                    failed = True
                    continue
            is_held = False
        if not is_held:
            yield from lose(kept, on_lost)
            return
        if until_closed is None:
            kept.renewed(_deadline(sent, kept.lease))
        else:
            kept.extend(_deadline(sent, kept.lease))
        failed, backoff = False, Backoff()
        del kept


def deadline_loop(hold: "weakref.ref[Hold]", on_lost: OnLost) -> Steps[None]:
    """Reports the loss when the lease is over by the local clock, even if renewals cannot reach the server."""
    while True:
        kept = hold()
        if kept is None or kept.ended:
            return
        if kept.lost:
            yield from lose(kept, on_lost)
            return
        # reacquire may still add a deadline: check again now and then.
        left_s = 60.0 if kept.deadline is None else kept.deadline - clock()
        del kept
        yield Pause(max(0.0, left_s))


def lose(hold: Hold, on_lost: Optional[OnLost]) -> Steps[None]:
    grant = hold.grant()
    if hold.lose() and on_lost is not None:
        yield Notify(on_lost, grant)


def _deadline(sent: float, lease: Lease) -> Optional[float]:
    return None if lease.ms is None else sent + lease.ms / 1000
