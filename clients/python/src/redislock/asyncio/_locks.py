"""The locks for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Optional, Type, TypeVar, Union, cast, overload

from redis.exceptions import TimeoutError

from .. import _durations as durations
from .._connections import AsyncioClient
from .._hold import Done, Hold, clock
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
    ThreadLocal,
    Token,
    ViewBase,
    body_raised,
)
from .._steps import Argument
from ..errors import LockError
from ._driver import run, run_undoing
from ._shared import SharedTransport
from ._transport import Transport

if TYPE_CHECKING:
    from typing_extensions import Unpack

A = TypeVar("A", bound="AsyncLock")


class TaskLocal:
    """The hold of the running task: the tasks of one thread are several lines of execution. A callback of the event
    loop has no task, and holds nothing."""

    def __init__(self) -> None:
        self._by_task: "weakref.WeakKeyDictionary[Any, ThreadLocal]" = weakref.WeakKeyDictionary()

    def _mine(self) -> ThreadLocal:
        task = asyncio.current_task()
        if task is None:
            return ThreadLocal()
        mine = self._by_task.get(task)
        if mine is None:
            mine = self._by_task[task] = ThreadLocal()
        return mine

    @property
    def token(self) -> Optional[bytes]:
        return self._mine().token

    @token.setter
    def token(self, token: Optional[bytes]) -> None:
        self._mine().token = token

    @property
    def holder(self) -> Optional[str]:
        return self._mine().holder

    @holder.setter
    def holder(self, holder: Optional[str]) -> None:
        self._mine().holder = holder

    @property
    def hold(self) -> Optional[Hold]:
        return self._mine().hold

    @hold.setter
    def hold(self, hold: Optional[Hold]) -> None:
        self._mine().hold = hold


class AsyncLock(LockBase):
    """The methods of all families. Times are in seconds."""

    _for_asyncio = True

    async def __aenter__(self: A) -> A:
        # A subclass may override it, as in redis-py.
        if await cast(Any, self).acquire():
            return self
        raise self._not_acquired()

    async def __aexit__(
        self,
        exc_type: Optional[Type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        outer = body_raised.get()
        try:
            body_raised.set((self, exc_value))
            await self.release()
        except LockError as error:
            self._exit_error(error)
        finally:
            body_raised.set(outer)

    async def release(self) -> None:
        """Gives one hold back. Raises LockNotOwnedError if the lock was lost, LockError if nothing is held."""
        await run_undoing(self._releasing, self._add)

    async def extend(self, additional_time: Number, replace_ttl: bool = False) -> bool:
        """Adds seconds to the rest of the lease; `replace_ttl`: restarts it with that length.

        Raises LockNotOwnedError if the lock was lost, LockError if nothing is held, if it has no timeout, or if no
        lease would be left.
        """
        return await run(self._extending(additional_time, replace_ttl))

    async def reacquire(self) -> bool:
        """Restarts the lease with `timeout`. Raises as extend."""
        return await run(self._reacquiring())

    async def exec(self, *command: Argument) -> Any:
        """Runs a command on the server only while holding, atomically (LOCK.EXEC); its reply as the client decodes it.

        Raises LockNotOwnedError if the lock was lost, and NotRunError if the slot of the keys was moving for ten
        seconds: the command did not run. If the reply is lost, redis-py's ConnectionError or TimeoutError: the command
        may have run.
        """
        return await run(self._executing(command))

    async def run(
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
        return await run_undoing(self._running, command, blocking, blocking_timeout)

    async def info(self) -> Optional[LockInfo]:
        """Its holders, and how many wait; None: it is free, and no request waits. Of a MultiLock: of the first key
        that is not free."""
        return await run(self._info())

    async def locked(self) -> bool:
        """True if any owner holds it."""
        return await run(self._locked())

    async def owned(self) -> bool:
        """True if the server says that this hold is there."""
        return await run(self._owned())

    async def wait_lost(self, timeout: Optional[Number] = None) -> bool:
        """Waits until the hold is lost: True; False after `timeout` seconds or a release."""
        hold: Optional[Hold] = self.local.hold
        longest_s = None if timeout is None else durations.wait("timeout", timeout)
        until = None if longest_s is None else clock() + longest_s
        if hold is None:
            return False
        event = hold.event()
        while not hold.ended:
            if hold.lost:
                return True
            if until is not None and clock() >= until:
                return False
            ends = [moment for moment in (until, hold.local_deadline) if moment is not None]
            waiting = asyncio.ensure_future(event.wait())
            try:
                await asyncio.wait([waiting], timeout=max(0.0, min(ends) - clock()) if ends else None)
            finally:
                waiting.cancel()
        return False

    def _new_local(self) -> Any:
        return TaskLocal() if self.family.counts else ThreadLocal()

    @staticmethod
    def _new_event() -> asyncio.Event:
        return asyncio.Event()

    async def _client_info(self, within_s: Optional[float]) -> Any:
        asking = asyncio.ensure_future(self.redis.execute_command("CLIENT INFO"))
        asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        # Not cancelled: in the middle of a reply that would end the connection, and the place where it was moved to.
        await asyncio.wait([asking], timeout=within_s)
        if not asking.done():
            raise TimeoutError("the client's single connection is busy")
        return asking.result()

    def _may_wait_after(self, error: BaseException) -> bool:
        # An async generator that is closed may wait; a coroutine that is being discarded may not.
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        of_generator = traceback is not None and traceback.tb_frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR
        return not isinstance(error, GeneratorExit) or bool(of_generator)

    def _transport(self, own: bool = False) -> Union[Transport, SharedTransport]:
        if self.shared and not own:
            return SharedTransport(self.redis, self.family.key)
        return Transport(self.redis, self.family.key, own)


class Lock(MutexBase[AsyncioClient], AsyncLock):
    __doc__ = MutexBase.__doc__

    @overload
    async def acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Token] = None,
        *,
        coalesce: Literal[False] = False,
    ) -> bool: ...

    @overload
    async def acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Token] = None,
        *,
        coalesce: bool,
    ) -> Union[bool, Done]: ...

    async def acquire(
        self,
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
        return await run_undoing(self._acquiring, 1, blocking, blocking_timeout, None, token, coalesce)

    async def release(self, failed: bool = False) -> None:
        """Gives the lock back. `failed`: the work was not done: the next waiter is granted the lock even if it waits
        with `coalesce`, and `at_least` does not keep it.

        Raises LockNotOwnedError if the lock was lost, LockError if nothing is held.
        """
        await run_undoing(self._releasing, 1, failed)


class PlainAcquire(AsyncLock):
    """The methods of families whose acquire takes no other arguments."""

    async def acquire(self, blocking: Optional[bool] = None, blocking_timeout: Optional[Number] = None) -> bool:
        """Acquires it once more; False: not in time. Raises as `Lock.acquire`, and LockNotOwnedError if the current
        hold was lost."""
        # Not by bool(): a signal may raise between the two calls.
        return await run_undoing(self._acquiring, self._add, blocking, blocking_timeout, None, None) is True


class RLock(ReentrantBase[AsyncioClient], PlainAcquire):
    __doc__ = ReentrantBase.__doc__


class Semaphore(SemaphoreBase[AsyncioClient], AsyncLock):
    __doc__ = SemaphoreBase.__doc__

    async def acquire(
        self,
        permits: Optional[int] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
    ) -> bool:
        """Acquires permits, None: as many as the semaphore was made with. Otherwise as `RLock.acquire`."""
        add = self._add if permits is None else permits
        # Not by bool(): a signal may raise between the two calls.
        return await run_undoing(self._acquiring, add, blocking, blocking_timeout, None, None) is True

    async def release(self, permits: Optional[int] = None) -> None:
        """Gives permits back, None: as many as the semaphore was made with. Raises as `Lock.release`."""
        await run_undoing(self._releasing, self._add if permits is None else permits)


class MultiLock(MultiBase[AsyncioClient], PlainAcquire):
    __doc__ = MultiBase.__doc__


class View(ViewBase[AsyncioClient], PlainAcquire):
    __doc__ = ViewBase.__doc__


class RWLock:
    """Many readers or one writer. The writer may also read, and keep READ after it releases WRITE; the only reader may
    acquire WRITE. `read()` and `write()` are locks for `async with`."""

    def __init__(
        self, redis: AsyncioClient, name: Name, timeout: Optional[Number] = DEFAULT_LEASE_S, **options: Unpack[Options]
    ) -> None:
        self._read = View(redis, name, "READ", timeout, **options)
        self._write = View(redis, name, "WRITE", timeout, **options)
        self._write.local = self._read.local

    @classmethod
    def from_token(
        cls,
        redis: AsyncioClient,
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
