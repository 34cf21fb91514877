"""What the sync and asyncio locks share: the arguments, the holds, and each method as a generator of steps.

The public classes only add the driver and `await`. All decisions are made here.
"""

from __future__ import annotations

import inspect
import logging
import math
import threading
import weakref
from contextvars import ContextVar
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generic,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    TypedDict,
    Union,
)

from . import _durations as durations
from . import _protocol as protocol
from ._connections import is_asyncio, is_cluster, is_single
from ._lock_types import LockType, Lease, MultiMutex, Mutex, Permits, ReadWrite, Reentrant, Slot
from ._hold import Done, Grant, Granted, Hold, Ran, clock
from ._info import LockInfo, lock_info
from ._observer import Observed
from ._overrides import Overridable
from ._protocol import Release
from ._replies import REDIS_ERRORS, described
from ._steps import CONNECT_S, Background, Close, Command, Join, Notify, Spawn, Step, Steps, Unfinished
from ._tokens import make_token, token_bytes
from .errors import HeldError, LockError, LockNotOwnedError, named

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger("redislock")

Number = Union[int, float]
Token = Union[str, bytes]
Name = Union[str, bytes, memoryview]
DEFAULT_LEASE_S = 30.0
OnLost = Callable[[Grant], Any]
E = TypeVar("E", bound=LockError)
L = TypeVar("L", bound="LockBase")
C = TypeVar("C")
NOT_RELEASED = "%s: not released, so it stays held until its lease expires: %s"
TOKEN_AND_AT_LEAST = "at_least cannot be combined with token: its owner would be granted the lock again in that time"


# The lock whose `with` block is ending, and the exception of its body. A context variable, not an argument of
# `release`: a subclass may override that method.
body_raised: "ContextVar[Tuple[Any, Optional[BaseException]]]" = ContextVar("body_raised", default=(None, None))


class Names(Protocol):
    """Any collection of names, except str and bytes: iterating over one of those would yield its characters."""

    def __contains__(self, name: object, /) -> bool: ...

    def __iter__(self) -> Iterator[Name]: ...


class ThreadLocal(threading.local):
    """The hold of the current thread."""

    token: Optional[bytes] = None
    hold: Optional[Hold] = None
    holder: Optional[str] = None


class Shared:
    """The one hold that all users of the object share."""

    token: Optional[bytes] = None
    hold: Optional[Hold] = None
    holder: Optional[str] = None


class Ending(NamedTuple):
    """A release in progress. `last`: it ends the hold. `renewals`: they must end before it is sent."""

    hold: Hold
    release: Release
    last: bool
    renewals: Sequence[Background]


class Options(TypedDict, total=False):
    """The keyword arguments of every lock type. Times are in seconds, except `replica_timeout`."""

    blocking: bool
    """Whether to wait in the server's queue. Default True"""
    blocking_timeout: Optional[Number]
    """How long to wait, in seconds; None: indefinitely. Default None"""
    thread_local: bool
    """Whether the hold belongs to the thread that acquired it (in asyncio, for lock types that count holds: to the
    task). False: to the object, which two threads or tasks must not use at once. Default True"""
    raise_on_release_error: bool
    """Whether the end of a `with` block raises if the lock was lost. Default True"""
    auto_renew: bool
    """Renew the lease after each third of it, until the release. Default False"""
    session: bool
    """Bind the lock to a dedicated connection: the server renews the lease, and releases the lock when the connection
    ends. Default False"""
    on_lost: Optional[OnLost]
    """Called once, with the `Grant`, if the lock is lost, in a thread or task of the client. Default None"""
    replicas: int
    """How many replicas must confirm the grant in time; otherwise it is released and acquire raises. Default 0"""
    replica_timeout: int
    """How long to wait for the confirmations, in milliseconds. Default 1000"""
    token: Optional[Token]
    """The owner ID, 1 to 1,024 bytes; None: a new one for each hold. Default None"""
    shared: bool
    """Only in redislock.asyncio: wait over one connection with all other such locks of the client, instead of one
    connection for each waiting task. Default False"""
    tell_holder: bool
    """Ask for the holder if the lock is not granted: `holder` of the lock, and of the error of `with`. Default False"""
    at_least: Optional[Number]
    """Minimum time in seconds from the grant until the lock is free: an earlier release only sets the lease to the rest
    of it. Needs a timeout. Excludes session, and token, because its owner would be granted the lock again. Default None
    """


class LockBase(Overridable):
    """The state of a lock object, and its methods as steps. `Options` documents the arguments.

    `timeout`: the lease in seconds; None: no deadline (PERSIST).
    `mixed`: other clients hold the key as a string (SET NX), so poll every 0.5 to 1.5 times `sleep` seconds, and never
    wait in the queue.
    """

    lock_type: LockType
    local: Any
    _add = 1
    _for_asyncio = False

    def __init__(
        self,
        redis: Any,
        name: Name,
        lock_type: LockType,
        timeout: Optional[Number],
        *,
        sleep: Number = 0.1,
        blocking: bool = True,
        blocking_timeout: Optional[Number] = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        auto_renew: bool = False,
        session: bool = False,
        on_lost: Optional[OnLost] = None,
        replicas: int = 0,
        replica_timeout: int = 1000,
        mixed: bool = False,
        token: Optional[Token] = None,
        at_least: Optional[Number] = None,
        shared: bool = False,
        tell_holder: bool = False,
    ) -> None:
        if is_asyncio(redis) is (not self._for_asyncio):
            other = "redislock" if self._for_asyncio else "redislock.asyncio"
            raise TypeError(f"for {type(redis).__module__}.{type(redis).__name__} use the class from {other}")
        if shared and not self._for_asyncio:
            raise ValueError("shared needs redislock.asyncio: a waiting thread has its own connection")
        if shared and is_cluster(redis):
            raise ValueError("shared does not support clusters")
        # As in redis-py, a timeout of 0 means no lease.
        if timeout is not None and timeout != 0:
            durations.positive("timeout", timeout)
        if blocking_timeout is not None:
            durations.wait("blocking_timeout", blocking_timeout)
        if at_least is not None:
            durations.positive("at_least", at_least)
        if mixed:
            durations.positive("sleep", sleep)
        if replicas:
            durations.positive("replica_timeout", replica_timeout)
        if not timeout and (session or auto_renew):
            raise ValueError("session and auto_renew need a timeout: it is the lease that they renew")
        if session and auto_renew:
            raise ValueError("with session, the server renews the lease: omit auto_renew")
        if mixed and session:
            raise ValueError("mixed polls, but a session is bound while waiting: use only one of them")
        if at_least is not None and (session or not timeout):
            raise ValueError(
                "at_least needs a timeout and no session: a released lock stays held until its lease expires"
            )
        if at_least is not None and token is not None:
            raise ValueError(TOKEN_AND_AT_LEAST)
        self.redis = redis
        self._name = name
        self.lock_type = lock_type
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.auto_renew = auto_renew
        self.session = session
        self.on_lost = on_lost
        self.replicas = replicas
        self.replica_timeout = replica_timeout
        self.mixed = mixed
        self.owner = token
        self.at_least = at_least
        self.shared = shared
        self.tell_holder = tell_holder
        self._single = is_single(redis)
        self._observed = Observed(redis, lock_type.kind, lock_type.names)
        self.local = self._new_local() if self.thread_local else Shared()

    @classmethod
    def from_token(cls: Type[L], redis: Any, name: Any, token: Token, *args: Any, **options: Any) -> L:
        """A lock that another object or process acquired, to use and release here.

        Nothing is sent, so the lease is unknown at first: `grant` is None and `lost` is false until `owned`, `extend`
        or `reacquire` has asked the server. `auto_renew` and `on_lost` take effect with the first `extend` or
        `reacquire`. The first `release` returns everything that the token holds here; after an `acquire`, each
        `release` returns one hold.

        Args:
            redis: The client, as for the class.
            name: The key, or the names of a MultiLock.
            token: The owner ID of the hold, as `grant.token` of the lock that acquired it.
            *args: Further positional arguments of the class.
            **options: Options of the class, except `session` and `at_least`. `thread_local` is False unless given:
                the hold belongs to the object.

        Raises:
            ValueError: `session` or `at_least` was given.
        """
        lock = cls(redis, name, *args, **{"thread_local": False, **options})
        lock._adopt_token(token)
        return lock

    def _adopt_token(self, token: Token) -> None:
        if self.session or self.at_least is not None:
            raise ValueError("from_token cannot be combined with session or at_least, which start at the grant")
        hold = self._new_hold(token, self._lease())
        hold.holds[self.lock_type.mode] = self._add
        self.local.hold, self.local.token = hold, hold.token

    # For the driver.

    def _new_local(self) -> Any:
        return ThreadLocal()

    # Static, because a hold that refers to its lock would form a reference cycle and outlive its owner.
    @staticmethod
    def _new_event() -> Any:
        raise NotImplementedError

    def _transport(self, own: bool = False) -> Any:
        raise NotImplementedError

    def _client_info(self, within_s: Optional[float]) -> Any:
        """The reply of the client's single connection to CLIENT INFO. Raises TimeoutError if it stays busy."""
        raise NotImplementedError

    def _may_wait_after(self, error: BaseException) -> bool:
        """False: the release after the body raised this error must not wait, so it is only started."""
        return True

    # For the caller.

    @property
    def name(self) -> Name:
        """The key; of a MultiLock all keys, for display. Read-only: for another key, create another lock."""
        return self._name

    @property
    def grant(self) -> Optional[Grant]:
        """The current `Grant`: fence, token, holds and remaining time. None if nothing is held, or if the lock was made
        by `from_token` and has not asked the server yet."""
        hold: Optional[Hold] = self.local.hold
        if hold is None or not hold.fence or not hold.holds.get(self.lock_type.mode):
            return None
        return hold.grant(self.lock_type.mode)

    @property
    def fence(self) -> int:
        """The fencing token of the current grant. Raises LockError if nothing is held."""
        grant, hold = self.grant, self.local.hold
        if grant is None and hold is not None and not hold.fence:
            raise self._error(LockError, "Cannot return the fence of a token before owned() was called")
        if grant is None:
            raise self._error(LockError, "Cannot return the fence of an unlocked lock")
        return grant.fence

    @property
    def holder(self) -> Optional[str]:
        """With `tell_holder`: the owner ID of the holder if the last acquire was not granted. None if it was granted,
        or if the holder is unknown."""
        holder: Optional[str] = self.local.holder
        return holder

    @property
    def lost(self) -> bool:
        """True if the hold is known to be lost: at the latest when the lease has expired by the local clock."""
        hold: Optional[Hold] = self.local.hold
        return hold is not None and hold.lost

    # The methods, as steps.

    def _acquiring(
        self,
        unfinished: Unfinished,
        add: int,
        blocking: Optional[bool],
        blocking_timeout: Optional[Number],
        sleep: Optional[Number],
        token: Optional[Token],
        coalesce: bool = False,
    ) -> Steps[Union[bool, Done]]:
        if coalesce and (self.mixed or self.at_least is not None):
            raise ValueError("coalesce cannot be combined with mixed, which polls, or at_least, which does not release")
        if token is not None and self.at_least is not None:
            raise ValueError(TOKEN_AND_AT_LEAST)
        began = clock()
        self.local.holder = None
        wait_s = self._wait_s(blocking, blocking_timeout)
        yield from self._in_place(wait_s=None if wait_s is None else wait_s or protocol.RESEND_S)
        hold: Optional[Hold] = self.local.hold if self.lock_type.counts else None
        if hold is not None and hold.lost:
            raise self._error(LockNotOwnedError, "Cannot acquire again: the current hold was lost, release it first")
        if hold is not None and hold.granted_at is None:
            # The token was granted elsewhere: only the server knows how often it holds the lock.
            held = yield from self._asked(hold)
            if held is None:
                yield from self._lost_while(hold, "acquire")
            else:
                hold.holds = {mode: held.holds for mode, holds in hold.holds.items() if holds}
        nested, is_new = hold is not None, False
        lease = self._lease()
        if hold is None:
            given = token if token is not None else self.owner
            is_new = given is None
            hold = self._new_hold(make_token() if given is None else given, lease)
        before = hold.holds.get(self.lock_type.mode, 0)
        if self.lock_type.is_slot and (before or add != 1):
            raise self._error(LockError, "Cannot acquire a second slot: an owner holds one at most, use another object")
        session = self.session and not nested
        request = protocol.Request(
            self.lock_type, str(self.name), hold.token, before, before + add, lease, session, coalesce, is_new=is_new
        )
        if self.at_least is not None:
            at_least_ms = durations.milliseconds(durations.positive("at_least", self.at_least))
            request.at_least = Lease(at_least_ms) if lease.ms is not None and at_least_ms > lease.ms else None
        if self._observed.by_observer():
            request.on_queued = lambda: self._observed.notify("queued", request.token)
        own = request.session or self.replicas > 0
        pooled = self._transport()
        transport = self._transport(own=True) if own else pooled
        if wait_s:
            # Above 0: a wait of 0 would mean not to wait at all.
            wait_s = max(0.001, began + wait_s - clock())
        poll_s = durations.positive("sleep", self.sleep if sleep is None else sleep) if self.mixed else None
        closed = transport if own else None
        unfinished.undo = (self._withdrawing, hold, request, pooled, closed, began)
        answer = yield from protocol.acquire(transport, pooled, request, wait_s, poll_s)
        if isinstance(answer, Granted):
            yield from self._accept(hold, request, answer, transport, pooled)
            if own and not request.session:
                yield Close(transport)
            self._observed.notify("granted", request.token, answer.fence, wait=clock() - began)
            return True
        if own:
            yield Close(transport)
        unfinished.undo = None
        self._observed.notify("not_granted", request.token, wait=clock() - began)
        if isinstance(answer, Done):
            return answer
        if self.tell_holder:
            self.local.holder = yield from protocol.holder(pooled, self.lock_type)
        return False

    def _accept(
        self, hold: Hold, request: protocol.Request, granted: Granted, transport: Any, pooled: Any
    ) -> Steps[None]:
        """Records the grant as the hold of this thread or task, or releases it."""
        if hold.holds and (yield from self._lost_before(hold, request, granted)):
            release, lease = Release(self.lock_type, request.token, 0), hold.longest(request.lease)
            releasing = protocol.release_unchecked(pooled, release, lease)
            background = yield from protocol.cleanup(pooled, self.lock_type, request.token, releasing)
            request.open = False
            yield Join(background, protocol.CLEANUP_S)
            yield from protocol.lose(hold, self.on_lost)
            message = "The lock was lost before it was acquired again, so the new hold was released"
            raise self._error(LockNotOwnedError, message)
        if self.replicas:
            transport.pin()
            yield from protocol.replicated(transport, request.name, self.replicas, self.replica_timeout)
        old: Optional[Hold] = self.local.hold
        if old is not None and old is not hold:
            yield from self._forget(old)
        hold.granted(granted, self.lock_type.mode)
        self.local.hold, self.local.token = hold, hold.token
        if not hold.background:
            if request.session:
                hold.session_transport = transport
                transport.pin()
            for spawn in self._background_of(hold, hold.background):
                yield spawn

    def _withdrawing(
        self,
        unfinished: Unfinished,
        hold: Optional[Hold],
        request: protocol.Request,
        pooled: Any,
        own: Any,
        began: float,
        error: BaseException,
    ) -> Steps[None]:
        """Withdraws the request and releases its grant. Earlier holds of the owner stay. `hold` is None for `run`;
        `own` is a connection to close."""
        self._observed.notify("not_granted", request.token, wait=clock() - began, error=error)
        background: Optional[Background] = None
        if request.open:
            steps = protocol.withdraw(pooled, request, request.lease)
            if hold is not None:
                hold.holds[self.lock_type.mode] = request.before
                steps = self._withdrawn(hold, request, pooled)
                if not any(hold.holds.values()):
                    self._forget(hold)
            background = yield from protocol.cleanup(pooled, self.lock_type, request.token, steps)
        unfinished.undo = None
        if own is not None:
            yield Close(own)
        if background is not None:
            yield Join(background, protocol.CLEANUP_S)

    def _withdrawn(self, hold: Hold, request: protocol.Request, pooled: Any) -> Steps[None]:
        lease = hold.longest(request.lease) if any(hold.holds.values()) else request.lease
        yield from protocol.withdraw(pooled, request, lease)
        if request.before or not any(hold.holds.values()):
            return
        # If the token still holds the lock, it is in the other mode, which keeps the fence of the withdrawn upgrade.
        try:
            held = yield from protocol.held(pooled, self.lock_type, hold.token, str(self.name))
        except REDIS_ERRORS as error:
            logger.debug("%s: the fence after a withdrawn upgrade is unknown: %s", self.name, described(error))
            return
        if held is None:
            yield from protocol.lose(hold, self.on_lost)
        else:
            hold.fence = held.fence
            hold.extend(held.deadline)

    def _lost_before(self, hold: Hold, request: protocol.Request, granted: Granted) -> Steps[bool]:
        """True if the owner's earlier hold was lost before this grant."""
        if hold.loss_reported:
            return True
        if granted.fence == hold.fence or not any(hold.holds.values()):
            return False
        if request.before:
            return True
        # An upgrade to WRITE always has a new fence, so ask. LOCK.HELD counts the holds of both modes.
        held = yield from self._asked(hold)
        return held is None or held.holds <= granted.holds

    def _background_of(self, hold: Hold, into: List[Background], renew_at_once: bool = False) -> Sequence[Spawn]:
        kept, session, spawns = weakref.ref(hold), hold.session_transport, []
        if session is not None:
            steps = protocol.session_loop(session, str(self.name), self.lock_type, kept, self.on_lost)
            spawns.append(Spawn(steps, f"redislock session {self.name!s}", into=into))
        if self.auto_renew:
            steps = protocol.renewal_loop(
                self._transport(), str(self.name), self.lock_type, kept, self.on_lost, renew_at_once
            )
            spawns.append(Spawn(steps, f"redislock renew {self.name!s}", into=into, pauses=True))
        if self.on_lost is not None and session is None:
            steps = protocol.deadline_loop(kept, self.on_lost)
            spawns.append(Spawn(steps, f"redislock deadline {self.name!s}", into=into, pauses=True))
        return spawns

    def _renewing(self, hold: Hold, lease: Lease, doing: str) -> Steps[None]:
        """Renews on request. Later renewals use this length, and their interval restarts, because a shorter lease could
        expire before a third of the old one."""
        yield from self._in_place(hold)
        # A hold made for a token that the caller assigned to `local` lasts only for this call.
        kept = self.local.hold is hold
        if kept and not hold.fence and (yield from self._asked(hold)) is None:
            yield from self._lost_while(hold, doing)
        before = hold.lease
        try:
            is_held = yield from protocol.renew(self._transport(), self.lock_type, hold, lease)
        except GeneratorExit:
            raise
        except BaseException:
            if hold.background and hold.lease is not before:
                yield from self._restart_background(hold, renew_at_once=True)
            raise
        if not is_held:
            yield from self._lost_while(hold, doing)
        if kept:
            yield from self._restart_background(hold)

    def _restart_background(self, hold: Hold, renew_at_once: bool = False) -> Steps[None]:
        # Start the new ones before stopping the old: if that fails, the old ones keep the hold.
        old = list(hold.background)
        try:
            for spawn in self._background_of(hold, hold.background, renew_at_once):
                yield spawn
        except BaseException:
            for each in hold.background[len(old) :]:
                each.stop()
            del hold.background[len(old) :]
            raise
        for each in old:
            each.stop()
        # A release with `at_least` waits for a renewal that is in flight.
        hold.background[: len(old)] = [each for each in old if not each.is_over()]

    def _ending(self, drop: int, failed: bool) -> Ending:
        """Begins a release: from here on the hold that it ends is no longer renewed."""
        hold = self._held("Cannot release a lock that's not owned or is already unlocked.")
        before = hold.holds.get(self.lock_type.mode, 0)
        if self.lock_type.counts and drop > before:
            raise self._error(LockError, f"Cannot release {drop} holds: {before} are held")
        left = max(0, before - drop)
        last = not left and sum(hold.holds.values()) == before
        release = Release(self.lock_type, hold.token, left, failed=failed, was_lost=hold.lost)
        renewals: Sequence[Background] = ()
        if last:
            stopped = hold.end()
            if self.at_least is not None and hold.granted_at is not None and not failed:
                release.kept_until = hold.granted_at + durations.positive("at_least", self.at_least)
                # Do not join them after a loss: on_lost may be running there, and may have called this release.
                renewals = () if hold.loss_reported else stopped
        return Ending(hold, release, last, renewals)

    def _releasing(self, unfinished: Unfinished, drop: int, failed: bool = False) -> Steps[None]:
        exiting, error = body_raised.get()
        if exiting is self and error is not None:
            # Tasks that start here copy the context, and would keep the error alive as long as they run.
            body_raised.set((None, None))
            yield from self._releasing_after(unfinished, drop, failed, True, self._may_wait_after(error), error)
            return
        if self.local.hold is not None:
            yield from self._in_place(self.local.hold)
        # This release may have run already, so a repeated one that finds no hold does not prove a loss.
        unfinished.undo = (self._releasing_after, drop, failed, False, True)
        ending = self._ending(drop, failed)
        unfinished.undo = (self._releasing_behind, ending, False, True)
        hold, last = ending.hold, ending.last
        try:
            yield from protocol.join(ending.renewals)
            was_held = yield from protocol.release(self._transport(), ending.release, hold)
        except REDIS_ERRORS as error:
            unfinished.undo = None
            self._report_end(hold, True, error)
            # Keep the token, so that the caller may try again. Renewal has stopped, and a session ends here.
            if last and hold.session_transport is not None:
                yield Close(hold.session_transport)
            raise
        hold.holds[self.lock_type.mode] = ending.release.holds
        closes = self._forget(hold) if last or not was_held else ()
        unfinished.undo = None
        self._report_end(hold, was_held)
        yield from closes
        if not was_held:
            raise self._error(LockNotOwnedError, "Cannot release a lock that's no longer owned")

    def _releasing_after(
        self, unfinished: Unfinished, drop: int, failed: bool, report: bool, waits: bool, error: BaseException
    ) -> Steps[None]:
        """A release after an error. The caller gets that error, whatever becomes of the release."""
        unfinished.undo = (self._releasing_after, drop, failed, report, waits)
        try:
            ending = self._ending(drop, failed)
        except LockError as refused:
            unfinished.undo = None
            if report:
                logger.warning("%s: not released after an error: %s", self.name, refused)
            return
        yield from self._releasing_behind(unfinished, ending, report, waits, error)

    def _releasing_behind(
        self, unfinished: Unfinished, ending: Ending, report: bool, waits: bool, error: BaseException
    ) -> Steps[None]:
        """Ends the hold in the background, a session by closing its connection first. `report`: report a loss."""
        unfinished.undo = (self._releasing_behind, ending, report, waits)
        hold = ending.hold
        # Not over the pool: it may have no connection yet, and would open one under the client's own `retry`.
        own = hold.session_transport is not None or self.replicas > 0
        hold.holds[self.lock_type.mode] = ending.release.holds
        if ending.last:
            yield from self._forget(hold)
        transport = self._transport(own)
        steps = self._released_behind(transport, ending, report)
        background = yield from protocol.cleanup(transport, self.lock_type, ending.release.token, steps)
        unfinished.undo = None
        if waits:
            yield Join(background, protocol.CLEANUP_S)

    def _released_behind(self, transport: Any, ending: Ending, report: bool) -> Steps[None]:
        hold = ending.hold
        grant = hold.grant()
        # The session's connection was closed first, so the server may have released the lock already.
        report = report and not (ending.last and hold.session_transport is not None)
        resend = protocol.resend_while(hold.longest(hold.lease))
        try:
            yield from protocol.join(ending.renewals)
            was_held = yield from protocol.release(transport, ending.release, hold, resend, CONNECT_S)
            if not ending.last and (hold.ended or hold.holds[self.lock_type.mode] < ending.release.holds):
                # A later release has ended what this one was to leave, and reported its outcome.
                report = False
            self._report_end(hold, was_held or not report)
            if not was_held and report:
                logger.warning("%s: lost before it was released", self.name)
                if self.on_lost is not None and not hold.loss_reported:
                    yield Notify(self.on_lost, grant)
        except REDIS_ERRORS as error:
            self._report_end(hold, True, error)
            logger.warning(NOT_RELEASED, self.name, described(error))
        yield Close(transport)

    def _report_end(self, hold: Hold, was_held: bool, error: Optional[BaseException] = None) -> None:
        """Reports the end of a hold once: a loss may have been reported before."""
        if not hold.loss_reported:
            event = "released" if was_held else "lost"
            self._observed.notify(event, hold.token, hold.fence, hold=hold.age(), error=error)

    def _forget(self, hold: Hold) -> Sequence[Close]:
        if not hold.ended:
            hold.end()
        if self.local.token == hold.token:
            self.local.hold = self.local.token = None
        return () if hold.session_transport is None else (Close(hold.session_transport),)

    def _releasing_done(self, unfinished: Unfinished) -> Steps[bool]:
        """A release after the work was done. A loss or a failure is logged, not raised to the caller. False: the lock
        was lost, which `on_lost` reports as well."""
        hold: Hold = self.local.hold
        grant = hold.grant()
        try:
            yield from self._releasing(unfinished, 1)
        except LockNotOwnedError:
            logger.warning("%s: lost during the work: another caller may have done it as well", self.name)
            if self.on_lost is not None and not hold.loss_reported:
                yield Notify(self.on_lost, grant)
            return False
        except REDIS_ERRORS as error:
            # The work is done, so return its result. The lease ends the hold.
            logger.warning(NOT_RELEASED, self.name, described(error))
        return True

    def _extending(self, additional_time: Number, replace_ttl: bool) -> Steps[bool]:
        hold = self._held("Cannot extend an unlocked lock")
        if self.timeout is None:
            raise self._error(LockError, "Cannot extend a lock with no timeout")
        if additional_time in (math.inf, -math.inf):
            raise ValueError("additional_time must be finite")
        ms = durations.milliseconds(durations.seconds("additional_time", additional_time))
        if hold.lost:
            yield from self._lost_while(hold, "extend")
        if not replace_ttl:
            held = yield from self._asked(hold)
            if held is None:
                yield from self._lost_while(hold, "extend")
            elif held.left_ms < 0:
                raise self._error(LockError, "Cannot extend a lock with no timeout")
            else:
                ms = min(ms + held.left_ms, durations.LONGEST_MS)
        if ms < 1:
            raise self._error(LockError, "Cannot extend a lock to a time in the past: release it instead")
        yield from self._renewing(hold, Lease(ms), "extend")
        return True

    def _reacquiring(self) -> Steps[bool]:
        hold = self._held("Cannot reacquire an unlocked lock")
        if self.timeout is None:
            raise self._error(LockError, "Cannot reacquire a lock with no timeout")
        if hold.lost:
            yield from self._lost_while(hold, "reacquire")
        yield from self._renewing(hold, self._lease(), "reacquire")
        return True

    def _executing(self, command: Command) -> Steps[Any]:
        hold = self._held("Cannot execute a command under an unlocked lock")
        if not command:
            raise ValueError("a command is required")
        yield from self._in_place()
        try:
            return (yield from protocol.execute(self._transport(), self.lock_type, hold, str(self.name), command))
        except LockNotOwnedError:
            yield from protocol.lose(hold, self.on_lost)
            raise

    def _running(
        self,
        unfinished: Unfinished,
        command: Command,
        blocking: Optional[bool],
        blocking_timeout: Optional[Number],
    ) -> Steps[Any]:
        """Acquires the lock as a separate owner, runs the command and releases the lock: in one packet, unless it has
        to wait for a message."""
        self._check_run(command)
        began = clock()
        self.local.holder = None
        wait_s = self._wait_s(blocking, blocking_timeout)
        yield from self._in_place(wait_s=None if wait_s is None else wait_s or protocol.RESEND_S)
        # A lock without a deadline gets one here: a process that dies meanwhile would leave it behind.
        lease = self._lease() if self.timeout else Lease(int(DEFAULT_LEASE_S * 1000))
        token = token_bytes(make_token())
        request = protocol.Request(
            self.lock_type, str(self.name), token, 0, self._add, lease, self.session, inner=command, is_new=True
        )
        if self._observed.by_observer():
            request.on_queued = lambda: self._observed.notify("queued", token)
        pooled = self._transport()
        # A session is bound to the connection that waits.
        own = self.session and pooled.by_message
        transport = self._transport(own=True) if own else pooled
        if wait_s:
            wait_s = max(0.001, began + wait_s - clock())
        poll_s = durations.positive("sleep", self.sleep) if self.mixed else None
        closed = transport if own else None
        unfinished.undo = (self._withdrawing, None, request, pooled, closed, began)
        ran = yield from protocol.acquire(transport, pooled, request, wait_s, poll_s)
        if own:
            yield Close(transport)
        if isinstance(ran, Ran) and not ran.is_released:
            yield from protocol.release_in_background(pooled, self.lock_type, token, lease)
        unfinished.undo = None
        if ran is None:
            self._observed.notify("not_granted", token, wait=clock() - began)
            if self.tell_holder:
                self.local.holder = yield from protocol.holder(pooled, self.lock_type)
            raise self._not_acquired()
        assert isinstance(ran, Ran), "it has a command and no coalesce"
        fence, granted_at = ran.granted.fence, ran.granted.granted_at
        self._observed.notify("granted", token, fence, wait=granted_at - began)
        event = "lost" if isinstance(ran.error, LockNotOwnedError) else "released"
        self._observed.notify(event, token, fence, hold=clock() - granted_at)
        if ran.error is not None:
            raise ran.error
        return ran.reply

    def _check_run(self, command: Command) -> None:
        if not command:
            raise ValueError("a command is required")
        if self.owner is not None or self.at_least is not None or self.replicas or self.lock_type.is_slot:
            raise ValueError(
                "run cannot be combined with token, at_least, replicas or slot: its owner holds for one command only"
            )
        if self.lock_type.counts and self.local.hold is not None:
            raise self._error(LockError, "Cannot run as another owner under a lock that is held here: use exec")

    def _info(self) -> Steps[Optional[LockInfo]]:
        yield from self._in_place()
        for command in self.lock_type.info():
            info = lock_info((yield from protocol.query(self._transport(), command, str(self.name))))
            if info is not None:
                return info
        return None

    def _locked(self) -> Steps[bool]:
        yield from self._in_place()
        return bool((yield from protocol.query(self._transport(), self.lock_type.exists(), str(self.name))))

    def _owned(self) -> Steps[bool]:
        if self.local.token is None:
            return False
        hold = self._held("")
        yield from self._in_place(hold)
        return (yield from self._asked(hold)) is not None

    def _exit_error(self, error: LockError) -> None:
        """Handles an error of the release at the end of `with`."""
        if self.raise_on_release_error:
            raise error
        logger.warning("Lock was unlocked or no longer owned when exiting context manager.")

    def _not_acquired(self) -> LockError:
        message = "Unable to acquire lock within the time specified"
        if self.holder is None:
            return self._error(LockError, message)
        error = self._error(HeldError, f"{message}: held by {self.holder}")
        error.holder = self.holder
        return error

    # Helpers.

    def _in_place(
        self, hold: Optional[Hold] = None, wait_s: Optional[float] = protocol.REPLY_MARGIN_S
    ) -> Iterable[Step]:
        """Raises if the single connection of the client was moved to another database or user than our connections use.
        A hold that was acquired here needs no check: it is where our connections are."""
        if not self._single or (hold is not None and hold.granted_at is not None):
            return ()
        until = None if wait_s is None else clock() + wait_s
        return protocol.same_place(self._transport(), self._client_info, str(self.name), until)

    def _asked(self, hold: Hold) -> Steps[Optional[protocol.Held]]:
        """The server's view of the hold; None: lost. For a token granted elsewhere it is the only source."""
        held = yield from protocol.held(self._transport(), self.lock_type, hold.token, str(self.name))
        if held is not None and not hold.fence:
            hold.fence = held.fence
            hold.extend(held.deadline)
        return held

    def _lost_while(self, hold: Hold, doing: str) -> Steps[None]:
        yield from protocol.lose(hold, self.on_lost)
        raise self._error(LockNotOwnedError, f"Cannot {doing} a lock that's no longer owned")

    def _held(self, otherwise: str) -> Hold:
        """The hold of this thread or task. A token that the caller assigned to `local` is a hold too."""
        token: Optional[bytes] = self.local.token
        if token is None:
            raise self._error(LockError, otherwise)
        hold: Optional[Hold] = self.local.hold
        if hold is None or hold.token != token_bytes(token):
            hold = self._new_hold(token, self._lease())
            hold.holds[self.lock_type.mode] = 1
        return hold

    def _recorded(self) -> Optional[Tuple[bytes, int]]:
        """What this thread or task holds: its token, and the number of holds."""
        hold: Optional[Hold] = self.local.hold
        return None if hold is None or hold.ended else (hold.token, hold.holds.get(self.lock_type.mode, 0))

    def _lease(self) -> Lease:
        if not self.timeout:
            return Lease(None)
        return Lease(max(1, durations.milliseconds(durations.positive("timeout", self.timeout))))

    def _wait_s(self, blocking: Optional[bool], blocking_timeout: Optional[Number]) -> Optional[float]:
        if not (self.blocking if blocking is None else blocking):
            return 0
        timeout = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        return None if timeout is None else durations.wait("blocking_timeout", timeout)

    def _new_hold(self, token: Token, lease: Lease) -> Hold:
        return Hold(token_bytes(token), lease, self._new_event, self._observed)

    def _error(self, kind: Type[E], message: str) -> E:
        return named(kind, message, str(self.name))


# The defaults of a client.

# The options that each option excludes.
_EXCLUDED = {
    "session": ("auto_renew", "mixed", "at_least"),
    "auto_renew": ("session",),
    "mixed": ("session",),
    "at_least": ("session", "token"),
    "token": ("at_least",),
}
_OF_A_LEASE = ("session", "auto_renew", "at_least")


UNSET: Any = object()


def with_defaults(defaults: Mapping[str, Any], **options: Any) -> Dict[str, Any]:
    """The options of a lock. Each of its own options also removes the defaults that it excludes."""
    own = {name: value for name, value in options.items() if value is not UNSET}
    excluded = {name for option, value in own.items() if value for name in _EXCLUDED.get(option, ())}
    if "timeout" in own and not own["timeout"]:
        excluded.update(_OF_A_LEASE)
    return {**{name: value for name, value in defaults.items() if name not in excluded}, **own}


# The arguments of each lock type.

# The options of every class, for the docstrings of those that take them as `**options`. `Lock` lists its own.
_SHARED_OPTIONS = """
    blocking: Whether to wait in the server's queue. Default True.
    blocking_timeout: How long to wait, in seconds. Default None: indefinitely.
    thread_local: True: each thread (in `redislock.asyncio`, each task; of a MultiLock, each thread) that uses this
        object has its own hold. False: all of them share one hold, and the object must not be used by two threads
        or tasks at once. Default True.
    raise_on_release_error: Whether the end of a `with` block raises if the lock was lost. False: the loss is only
        logged. Default True.
    auto_renew: Renew the lease after each third of it, in a daemon thread or a task, until the release. Needs a
        `timeout`. Default False.
    session: Bind the lock to a dedicated connection. The server renews the lease while that connection lives, and
        releases the lock when it ends. Needs a `timeout`, and excludes `auto_renew` and `at_least`. Default False.
    on_lost: Called once, with the `Grant`, if the lock is lost, in a thread or task of the client. In asyncio it
        may be a coroutine function. Default None.
    replicas: How many replicas must confirm the grant within `replica_timeout`. If fewer do, the lock is released
        and `acquire` raises NotReplicatedError. Default 0.
    replica_timeout: How long to wait for these confirmations, in milliseconds. Default 1000.
    token: The owner ID, from 1 to 1,024 bytes. Default None: a new one for each hold.
    at_least: Minimum time in seconds from the grant until the lock is free. An earlier release only sets the lease
        to the rest of that time. Needs a `timeout`, and excludes `session` and `token`. Default None.
    shared: Only in `redislock.asyncio`, and not with a cluster: wait over one connection that all such locks of
        the client share, instead of one connection for each waiting task. Default False.
    tell_holder: If the lock is not granted, ask the server who holds it. `holder`, and the HeldError that `with`
        raises, then name the owner. Default False.

Raises:
    ValueError: A duration is out of range, or two options exclude each other.
    TypeError: The client is an asyncio client and the class is not, or the reverse, or a duration is no number.
"""


def with_options(doc: Optional[str]) -> Optional[str]:
    """A docstring that ends with its arguments, continued by the shared ones. None: `python -OO` has removed it."""
    return None if doc is None else inspect.cleandoc(doc) + _SHARED_OPTIONS


READ_WRITE_DOC = with_options(
    """A read/write lock: any number of readers, or one writer.

    `read()` and `write()` return one lock for each mode, to use in `with`. The writer may also acquire READ, and keeps
    it after it releases WRITE. A reader may acquire WRITE, which is granted once it is the only reader.

    Args:
        redis: The client, as for `Lock`.
        name: The key of the lock.
        timeout: Length of the lease in seconds, of both modes. None or 0: no deadline. Default 30.
"""
)


class MutexBase(LockBase, Generic[C]):
    """A distributed mutex: a drop-in replacement for redis-py's `Lock`, with its arguments, methods and exceptions.

    Waiting requests queue in the server and are granted first come, first served. The client does not poll, unless
    `mixed` is set. In `redislock.asyncio` every method that sends a command is a coroutine.

        with redislock.Lock(client, "report", timeout=30, blocking_timeout=5) as lock:
            write(report, fence=lock.fence)

    All times are in seconds, except `replica_timeout`, which is in milliseconds as in WAIT.

    Args:
        redis: The client: `redis.Redis` or `redis.RedisCluster`; for `redislock.asyncio`, their counterparts of
            `redis.asyncio`.
        name: The key of the lock.
        timeout: Length of the lease in seconds. The server frees the lock when the lease expires, unless it is renewed
            first. Default None, as in redis-py, which means no deadline: if the process dies, the lock stays held
            until `LOCK.BREAK`. 0 means None.
        sleep: Polling interval in seconds, used only with `mixed`. Each pause is a random time between 0.5 and 1.5
            times this. Default 0.1.
        blocking: Whether to wait in the server's queue. Default True.
        blocking_timeout: How long to wait, in seconds. Default None: indefinitely.
        thread_local: True: each thread that uses this object has its own hold. False: all of them share one hold, and
            the object must not be used by two threads or tasks at once. Default True.
        raise_on_release_error: Whether the end of a `with` block raises if the lock was lost. False: the loss is only
            logged. Default True.
        auto_renew: Renew the lease after each third of it, in a daemon thread or a task, until the release. Needs a
            `timeout`. Default False.
        session: Bind the lock to a dedicated connection. The server renews the lease while that connection lives, and
            releases the lock when it ends. Needs a `timeout`, and excludes `auto_renew`, `mixed` and `at_least`.
            Default False.
        on_lost: Called once, with the `Grant`, if the lock is lost, in a thread or task of the client. In asyncio it
            may be a coroutine function. Default None.
        replicas: How many replicas must confirm the grant within `replica_timeout`. If fewer do, the lock is released
            and `acquire` raises NotReplicatedError. Default 0.
        replica_timeout: How long to wait for these confirmations, in milliseconds. Default 1000.
        mixed: Share the key with clients that hold it as a string (`SET NX`): poll every `sleep` seconds instead of
            waiting in the queue. Default False.
        token: The owner ID, from 1 to 1,024 bytes. Default None: a new one for each hold.
        at_least: Minimum time in seconds from the grant until the lock is free. An earlier release only sets the lease
            to the rest of that time. Needs a `timeout`, and excludes `session` and `token`. Default None.
        shared: Only in `redislock.asyncio`, and not with a cluster: wait over one connection that all such locks of
            the client share, instead of one connection for each waiting task. Default False.
        tell_holder: If the lock is not granted, ask the server who holds it. `holder`, and the HeldError that `with`
            raises, then name the owner. Default False.

    Raises:
        ValueError: A duration is out of range, or two options exclude each other.
        TypeError: The client is an asyncio client and the class is not, or the reverse, or a duration is no number.
    """

    def __init__(
        self,
        redis: C,
        name: Name,
        timeout: Optional[Number] = None,
        sleep: Number = 0.1,
        blocking: bool = True,
        blocking_timeout: Optional[Number] = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        auto_renew: bool = False,
        session: bool = False,
        on_lost: Optional[OnLost] = None,
        replicas: int = 0,
        replica_timeout: int = 1000,
        mixed: bool = False,
        token: Optional[Token] = None,
        at_least: Optional[Number] = None,
        shared: bool = False,
        tell_holder: bool = False,
    ) -> None:
        super().__init__(
            redis,
            name,
            Mutex(name),
            timeout,
            sleep=sleep,
            blocking=blocking,
            blocking_timeout=blocking_timeout,
            thread_local=thread_local,
            raise_on_release_error=raise_on_release_error,
            auto_renew=auto_renew,
            session=session,
            on_lost=on_lost,
            replicas=replicas,
            replica_timeout=replica_timeout,
            mixed=mixed,
            token=token,
            at_least=at_least,
            shared=shared,
            tell_holder=tell_holder,
        )


class ReentrantBase(LockBase, Generic[C]):
    """A reentrant mutex: its holder may acquire it again, and it is free after as many releases.

    The hold belongs to the thread (in `redislock.asyncio`, to the task) that acquired the lock, so one object serves
    any number of them.

    Args:
        redis: The client, as for `Lock`.
        name: The key of the lock.
        timeout: Length of the lease in seconds. None or 0: no deadline. Default 30.
    """

    def __init__(
        self, redis: C, name: Name, timeout: Optional[Number] = DEFAULT_LEASE_S, **options: Unpack[Options]
    ) -> None:
        super().__init__(redis, name, Reentrant(name), timeout, **options)


class SemaphoreBase(LockBase, Generic[C]):
    """A semaphore: at most `limit` permits are held at once, over all processes.

    All users of a name pass the same `limit` and the same `slot`.

    Args:
        redis: The client, as for `Lock`.
        name: The key of the semaphore.
        limit: How many permits there are. If it differs from the limit on the server, the latest request decides.
        timeout: Length of the lease in seconds. None or 0: no deadline. Default 30.
        permits: How many permits an `acquire` or `release` without an argument takes or returns, from 1 to `limit`.
            Default 1.
        slot: Each holder gets one numbered permit; the property `slot` is its number, the smallest from 0 that no
            other holder has. Default False.
    """

    def __init__(
        self,
        redis: C,
        name: Name,
        limit: int,
        timeout: Optional[Number] = DEFAULT_LEASE_S,
        *,
        permits: int = 1,
        slot: bool = False,
        **options: Unpack[Options],
    ) -> None:
        if not 1 <= permits <= limit:
            raise ValueError("permits must be from 1 to limit")
        if slot and permits != 1:
            raise ValueError("a slot is one permit")
        super().__init__(redis, name, Slot(name, limit) if slot else Permits(name, limit), timeout, **options)
        self._limit = limit
        self._add = permits

    @property
    def limit(self) -> int:
        """How many permits may be held at once. Read-only: for another limit, create another semaphore."""
        return self._limit

    @property
    def slot(self) -> int:
        """The number of the slot that this object holds, from 0. Raises LockError if it holds none."""
        grant = self.grant
        if grant is None or grant.slot is None:
            raise self._error(LockError, "Cannot return the slot: this object holds none")
        return grant.slot


class MultiBase(LockBase, Generic[C]):
    """Multiple mutexes acquired together, all or none, with one fencing token.

    Two such requests cannot deadlock, whatever the order of their names.

    Args:
        redis: The client, as for `Lock`.
        names: The keys: any collection of names, but not a single string. In a cluster all of them must hash to one
            slot.
        timeout: Length of the lease in seconds. None or 0: no deadline. Default 30.
    """

    def __init__(
        self,
        redis: C,
        names: Names,
        timeout: Optional[Number] = DEFAULT_LEASE_S,
        **options: Unpack[Options],
    ) -> None:
        if isinstance(names, (str, bytes, memoryview)):
            raise TypeError(f"the names of a MultiLock must be a sequence: [{names!r}] for one")
        all_names = tuple(names)
        super().__init__(redis, ", ".join(map(str, all_names)), MultiMutex(all_names), timeout, **options)


class ViewBase(LockBase, Generic[C]):
    """One mode of a read/write lock, as `RWLock.read` and `RWLock.write` return it. Both modes have the same owner."""

    def __init__(
        self, redis: C, name: Name, mode: str, timeout: Optional[Number], **options: Unpack[Options]
    ) -> None:
        super().__init__(redis, name, ReadWrite(name, mode), timeout, **options)
