"""The locks for threads."""

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
    """The methods of all families. Times are in seconds."""

    def __enter__(self: S) -> S:
        before = self._recorded()
        try:
            # A subclass may override it, as in redis-py.
            if cast(Any, self).acquire():
                return self
        except BaseException as error:
            # After the end of acquire, a signal: the end of `with` will not come.
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
            # Before the beginning of release, a signal.
            if before is None or self._recorded() == before:
                self._release_behind(error)
            raise
        finally:
            if outer is not None:
                body_raised.set(outer)

    def _release_behind(self, error: BaseException) -> None:
        run_undoing(self._releasing_after, self._add, False, False, True, error)

    def release(self) -> None:
        """Gives one hold back. Raises LockNotOwnedError if the lock was lost, LockError if nothing is held."""
        run_undoing(self._releasing, self._add)

    def extend(self, additional_time: Number, replace_ttl: bool = False) -> bool:
        """Adds seconds to the rest of the lease; `replace_ttl`: restarts it with that length.

        Raises LockNotOwnedError if the lock was lost, LockError if nothing is held, if it has no timeout, or if no
        lease would be left.
        """
        return run(self._extending(additional_time, replace_ttl))

    def reacquire(self) -> bool:
        """Restarts the lease with `timeout`. Raises as extend."""
        return run(self._reacquiring())

    def exec(self, *command: Argument) -> Any:
        """Runs a command on the server only while holding, atomically (LOCK.EXEC); its reply as the client decodes it.

        Raises LockNotOwnedError if the lock was lost, and NotRunError if the slot of the keys was moving for ten
        seconds: the command did not run. If the reply is lost, redis-py's ConnectionError or TimeoutError: the command
        may have run.
        """
        return run(self._executing(command))

    def run(
        self, *command: Argument, blocking: Optional[bool] = None, blocking_timeout: Optional[Number] = None
    ) -> Any:
        """Acquires the lock, runs one command on the server, and releases the lock: in one packet, as an owner of its
        own. The command's reply, as the client decodes it. The arguments override those of the lock.

        Raises LockError (HeldError with `tell_holder`) if it was not granted in time: the command did not run;
        LockNotOwnedError if the lock was lost before the command, and NotRunError if its slot was moving for all of the
        time: it did not run; the command's own error. If the
        connection ends before the command's reply, also while it waits, redis-py's ConnectionError or TimeoutError: the
        command may have run, and is not sent again. Otherwise raises as `acquire`. ValueError with `token`, `at_least`,
        `replicas` and `slot`; LockError if a family that counts is held here already.
        """
        return run_undoing(self._running, command, blocking, blocking_timeout)

    def info(self) -> Optional[LockInfo]:
        """Its holders, and how many wait; None: it is free, and no request waits. Of a MultiLock: of the first key
        that is not free."""
        return run(self._info())

    def locked(self) -> bool:
        """True if any owner holds it."""
        return run(self._locked())

    def owned(self) -> bool:
        """True if the server says that this hold is there."""
        return run(self._owned())

    def wait_lost(self, timeout: Optional[Number] = None) -> bool:
        """Waits until the hold is lost: True; False after `timeout` seconds or a release."""
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
        # Another thread's command may block. redis-py 5.0 has no lock.
        busy = getattr(self.redis, "single_connection_lock", None)
        if busy is not None:
            if not busy.acquire(timeout=-1 if within_s is None else min(within_s, threading.TIMEOUT_MAX)):
                raise TimeoutError("the client's single connection is busy")
            busy.release()
        return self.redis.execute_command("CLIENT INFO")

    def _transport(self, own: bool = False) -> Transport:
        return Transport(self.redis, self.family.key, own)


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
        """Acquires the lock; False: not in time. The arguments override those of the lock.

        `coalesce`: for a result that all callers can share. If the holder does the work and releases while this request
        waits, the result is `Done` with the holder's fence: it is falsy, and nothing is held. Look for the shared
        result in any case: a release just before the request is not reported. A holder whose work was not done releases
        with `failed=True`. It needs the wait in the queue: without `blocking` it has no effect.

        Raises LockError if waiting cannot help (a deadlock, a key of another type, too many waiters), and redis-py's
        errors if the server could not be asked. ValueError with coalesce and `mixed` or `at_least`.
        """
        return run_undoing(self._acquiring, 1, blocking, blocking_timeout, sleep, token, coalesce)

    def release(self, failed: bool = False) -> None:
        """Gives the lock back. `failed`: the work was not done: the next waiter is granted the lock even if it waits
        with `coalesce`, and `at_least` does not keep it.

        Raises LockNotOwnedError if the lock was lost, LockError if nothing is held.
        """
        run_undoing(self._releasing, 1, failed)


class PlainAcquire(SyncLock):
    """The methods of families that a holder may acquire again."""

    def acquire(self, blocking: Optional[bool] = None, blocking_timeout: Optional[Number] = None) -> bool:
        """Acquires it once more; False: not in time. Raises as `Lock.acquire`, and LockNotOwnedError if the current
        hold was lost."""
        # Not by bool(): a signal may raise between the two calls.
        return run_undoing(self._acquiring, self._add, blocking, blocking_timeout, None, None) is True


class RLock(ReentrantBase[SyncClient], PlainAcquire):
    __doc__ = ReentrantBase.__doc__


class Semaphore(SemaphoreBase[SyncClient], SyncLock):
    __doc__ = SemaphoreBase.__doc__

    def acquire(
        self,
        permits: Optional[int] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
    ) -> bool:
        """Acquires permits, None: as many as the semaphore was made with. Otherwise as `RLock.acquire`."""
        add = self._add if permits is None else permits
        # Not by bool(): a signal may raise between the two calls.
        return run_undoing(self._acquiring, add, blocking, blocking_timeout, None, None) is True

    def release(self, permits: Optional[int] = None) -> None:
        """Gives permits back, None: as many as the semaphore was made with. Raises as `Lock.release`."""
        run_undoing(self._releasing, self._add if permits is None else permits)


class MultiLock(MultiBase[SyncClient], PlainAcquire):
    __doc__ = MultiBase.__doc__


class View(ViewBase[SyncClient], PlainAcquire):
    __doc__ = ViewBase.__doc__


class RWLock:
    """Many readers or one writer. The writer may also read, and keep READ after it releases WRITE; the only reader may
    acquire WRITE. `read()` and `write()` are locks for `with`."""

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
        """A read/write lock that the token holds in this mode: what `Lock.from_token` says is true of that mode."""
        lock = cls(redis, name, timeout, **{"thread_local": False, **options})
        (lock._read if mode == "READ" else lock._write)._take_over(token)
        return lock

    def read(self) -> View:
        return self._read

    def write(self) -> View:
        return self._write
