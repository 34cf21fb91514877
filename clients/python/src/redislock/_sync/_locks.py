"""The locks for synchronous code."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Optional, Type, TypeVar, Union, cast, overload

from redis.exceptions import TimeoutError

from .. import _durations as durations
from .._connections import SyncClient
from .._durations import FOREVER_S
from .._hold import Done
from .._info import LockInfo
from .._locks import (
    DEFAULT_LEASE_S,
    READ_WRITE_DOC,
    LockBase,
    MultiBase,
    MutexBase,
    Name,
    Number,
    Options,
    ReentrantBase,
    SemaphoreBase,
    Token,
    ViewBase,
    body_raised,
    with_options,
)
from .._replies import REDIS_ERRORS
from .._steps import Argument
from ..errors import LockError
from ._driver import run, run_undoing
from ._transport import Transport

if TYPE_CHECKING:
    from typing_extensions import Unpack

S = TypeVar("S", bound="SyncLock")


class SyncLock(LockBase):
    """The methods of all lock types. Times are in seconds."""

    def __enter__(self: S) -> S:
        before = self._recorded()
        try:
            # A subclass may override it, as in redis-py.
            if cast(Any, self).acquire():
                return self
        except BaseException as error:
            # A signal handler raised after acquire had returned, so `__exit__` will not run.
            if self._recorded() not in (before, None):
                self._release_behind(error)
            raise
        raise self._not_acquired()

    def __exit__(
        self,
        exc_type: Optional[Type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        before, outer = None, None
        try:
            before, outer = self._recorded(), body_raised.get()
            body_raised.set((self, exc_value))
            self.release()
        except LockError as error:
            self._exit_error(error)
        except REDIS_ERRORS:
            raise
        except BaseException as error:
            # A signal handler raised before release began.
            if before is None or self._recorded() == before:
                self._release_behind(error)
            raise
        finally:
            if outer is not None:
                body_raised.set(outer)

    def _release_behind(self, error: BaseException) -> None:
        run_undoing(self._releasing_after, self._add, False, False, True, error)

    def release(self) -> None:
        """Releases one hold; a Semaphore returns as many permits as it was created with.

        Raises LockNotOwnedError if the lock was lost, and LockError if nothing is held.
        """
        run_undoing(self._releasing, self._add)

    def extend(self, additional_time: Number, replace_ttl: bool = False) -> bool:
        """Adds `additional_time` seconds to what is left of the lease. Returns True.

        With `replace_ttl=True` it restarts the lease instead: it then expires `additional_time` seconds from now. The
        resulting length is that of all later renewals by `auto_renew`.

        Note: `extend` of the clients for Node and Java always restarts the lease, like `replace_ttl=True`.

        Raises LockNotOwnedError if the lock was lost, and LockError if nothing is held, if the lock has no `timeout`,
        or if no lease would be left.
        """
        return run(self._extending(additional_time, replace_ttl))

    def reacquire(self) -> bool:
        """Restarts the lease: it expires `timeout` seconds from now. Returns True. Raises the errors of `extend`."""
        return run(self._reacquiring())

    def exec(self, *command: Argument) -> Any:
        """Runs a command on the server only while this lock is held, atomically (LOCK.EXEC).

        Returns the command's reply, decoded as the client decodes it.

        Raises LockNotOwnedError if the lock was lost, and NotRunError if the slot of the keys was moving for ten
        seconds: in both cases the command did not run. If the reply is lost, raises redis-py's ConnectionError or
        TimeoutError: the command may have run.
        """
        return run(self._executing(command))

    def run(
        self, *command: Argument, blocking: Optional[bool] = None, blocking_timeout: Optional[Number] = None
    ) -> Any:
        """Acquires the lock, runs one command on the server and releases the lock, all in one packet.

        The owner is a new one, separate from that of this object's hold. Returns the command's reply, decoded as the
        client decodes it. `blocking` and `blocking_timeout` (in seconds) override those of the lock.

        Raises, and the command did not run:
            LockError: The lock was not granted in time (HeldError with `tell_holder`), or this object already holds a
                lock of a type that counts holds.
            LockNotOwnedError: The lock was lost before the command.
            NotRunError: The slot of the keys was moving for the whole time.
            ValueError: The lock has `token`, `at_least`, `replicas` or `slot`.

        Raises the command's own error if it ran and failed. If the connection ends before the command's reply, even
        while the request waits, raises redis-py's ConnectionError or TimeoutError: the command may have run, and is not
        sent again. Otherwise raises the errors of `acquire`.
        """
        return run_undoing(self._running, command, blocking, blocking_timeout)

    def info(self) -> Optional[LockInfo]:
        """Asks the server for the holders and the number of waiters (LOCK.INFO).

        Returns None if the lock is free and no request waits. A MultiLock reports the first of its keys that is not
        free.
        """
        return run(self._info())

    def locked(self) -> bool:
        """Asks the server whether any owner holds the lock."""
        return run(self._locked())

    def owned(self) -> bool:
        """Asks the server whether this object still holds the lock."""
        return run(self._owned())

    def wait_lost(self, timeout: Optional[Number] = None) -> bool:
        """Waits until the hold is lost, and returns True then.

        Returns False after `timeout` seconds (None: no limit), after a release, or if nothing is held.
        """
        hold = self.local.hold
        longest_s = None if timeout is None else durations.wait("timeout", timeout)
        until = None if longest_s is None else time.monotonic() + longest_s
        if hold is None:
            return False
        event = hold.event()
        while not hold.ended:
            if hold.lost:
                return True
            ends = [moment for moment in (until, hold.local_deadline) if moment is not None]
            if until is not None and time.monotonic() >= until:
                return False
            event.wait(min(FOREVER_S, max(0.0, min(ends) - time.monotonic())) if ends else None)
        return False

    @staticmethod
    def _new_event() -> threading.Event:
        return threading.Event()

    def _client_info(self, within_s: Optional[float]) -> Any:
        # Another thread's command may block. redis-py 5.0 has no such lock.
        busy = getattr(self.redis, "single_connection_lock", None)
        if busy is not None:
            if not busy.acquire(timeout=-1 if within_s is None else min(within_s, threading.TIMEOUT_MAX)):
                raise TimeoutError("the client's single connection is busy")
            busy.release()
        return self.redis.execute_command("CLIENT INFO")

    def _transport(self, own: bool = False) -> Transport:
        return Transport(self.redis, self.lock_type.key, own)


class Lock(MutexBase[SyncClient], SyncLock):
    __doc__ = MutexBase.__doc__

    @overload
    def acquire(
        self,
        sleep: Optional[Number] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Token] = None,
        *,
        coalesce: Literal[False] = False,
    ) -> bool: ...

    @overload
    def acquire(
        self,
        sleep: Optional[Number] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Token] = None,
        *,
        coalesce: bool,
    ) -> Union[bool, Done]: ...

    def acquire(
        self,
        sleep: Optional[Number] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Token] = None,
        *,
        coalesce: bool = False,
    ) -> Union[bool, Done]:
        """Acquires the lock. Returns True if it was granted, False if it was not granted in time.

        Args:
            sleep: Polling interval in seconds, only with `mixed`.
            blocking: Whether to wait.
            blocking_timeout: How long to wait, in seconds.
            token: The owner ID of this hold.
            coalesce: The caller only needs the shared result of the work (single-flight, request coalescing). If the
                holder releases while this request waits, the result is `Done` with the holder's fence: it is falsy, and
                nothing is held. Look for the shared result even after True, because a release just before the request
                is not reported. A holder whose work failed releases with `failed=True`. Has no effect without
                `blocking`. Default False.

        Each of the others defaults to the value that the lock was created with.

        Raises LockError if waiting cannot help (a deadlock, a key of another type, too many waiters), redis-py's errors
        if the server could not be reached in time, and ValueError for `coalesce` together with `mixed` or `at_least`.
        """
        return run_undoing(self._acquiring, 1, blocking, blocking_timeout, sleep, token, coalesce)

    def release(self, failed: bool = False) -> None:
        """Releases the lock.

        `failed=True` says that the work was not done: the next waiter is granted the lock even if it waits with
        `coalesce`, and the lock is free at once despite `at_least`. Default False.

        Raises LockNotOwnedError if the lock was lost, and LockError if nothing is held.
        """
        run_undoing(self._releasing, 1, failed)


class PlainAcquire(SyncLock):
    """The methods of lock types whose acquire takes no other arguments."""

    def acquire(self, blocking: Optional[bool] = None, blocking_timeout: Optional[Number] = None) -> bool:
        """Acquires the lock. Returns True if it was granted, False if it was not granted in time.

        `blocking` and `blocking_timeout` (in seconds) default to those of the lock. A thread or task that holds an
        RLock or a mode of an RWLock already is granted it again.

        Raises the errors of `Lock.acquire`, and LockNotOwnedError if the current hold was lost.
        """
        # Not bool(…): a signal handler may raise between the two calls.
        return run_undoing(self._acquiring, self._add, blocking, blocking_timeout, None, None) is True


class RLock(ReentrantBase[SyncClient], PlainAcquire):
    __doc__ = with_options(ReentrantBase.__doc__)


class Semaphore(SemaphoreBase[SyncClient], SyncLock):
    __doc__ = with_options(SemaphoreBase.__doc__)

    def acquire(
        self,
        permits: Optional[int] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
    ) -> bool:
        """Acquires `permits` more permits; None: as many as the semaphore was created with. Returns True if they were
        granted, False if not in time.

        `blocking` and `blocking_timeout` (in seconds) default to those of the semaphore. Raises the errors of
        `RLock.acquire`.
        """
        add = self._add if permits is None else permits
        # Not bool(…): a signal handler may raise between the two calls.
        return run_undoing(self._acquiring, add, blocking, blocking_timeout, None, None) is True

    def release(self, permits: Optional[int] = None) -> None:
        """Returns `permits` permits; None: as many as the semaphore was created with.

        Raises the errors of `Lock.release`, and LockError if fewer are held.
        """
        run_undoing(self._releasing, self._add if permits is None else permits)


class MultiLock(MultiBase[SyncClient], PlainAcquire):
    __doc__ = with_options(MultiBase.__doc__)


class View(ViewBase[SyncClient], PlainAcquire):
    __doc__ = ViewBase.__doc__


class RWLock:
    __doc__ = READ_WRITE_DOC

    def __init__(
        self, redis: SyncClient, name: Name, timeout: Optional[Number] = DEFAULT_LEASE_S, **options: Unpack[Options]
    ) -> None:
        self._read = View(redis, name, "READ", timeout, **options)
        self._write = View(redis, name, "WRITE", timeout, **options)
        self._write.local = self._read.local

    @classmethod
    def from_token(
        cls,
        redis: SyncClient,
        name: Name,
        token: Token,
        mode: Literal["READ", "WRITE"],
        timeout: Optional[Number] = DEFAULT_LEASE_S,
        **options: Any,
    ) -> RWLock:
        """A read/write lock that the token already holds in `mode`, acquired by another object or process.

        `read()` or `write()` of that mode behaves as a lock of `Lock.from_token`.
        """
        lock = cls(redis, name, timeout, **{"thread_local": False, **options})
        (lock._read if mode == "READ" else lock._write)._adopt_token(token)
        return lock

    def read(self) -> View:
        """The lock for readers: any number of owners hold it at once."""
        return self._read

    def write(self) -> View:
        """The lock for the writer: no other owner holds either mode meanwhile."""
        return self._write
