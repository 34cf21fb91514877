"""Executes the protocol's steps in the calling task, and the background work of a hold in separate tasks."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any, Awaitable, Callable, Coroutine, Optional, Set, TypeVar, Union

from .._steps import Background, Call, Close, Join, Notify, Pause, Send, Spawn, Steps, Unfinished

logger = logging.getLogger("redislock")

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]
# How often a session's connection is checked.
CLOSED_CHECK_S = 0.1
# Strong references, because the event loop only has weak ones.
_tasks: "Set[asyncio.Task[None]]" = set()


class Stopped(Exception):
    """Raised at a pause of steps that were stopped."""


async def run(steps: Steps[T], sleep: Sleep = asyncio.sleep) -> T:
    """Executes the steps to their end and returns their result."""
    outcome: Any = None
    error: Optional[BaseException] = None
    while True:
        try:
            step = steps.send(outcome) if error is None else steps.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        try:
            outcome = await (step.transport.send(step) if isinstance(step, Send) else _do(step, sleep))
            error = None
        except GeneratorExit:
            # This coroutine is being discarded and must not await any more.
            raise
        except BaseException as caught:
            # Including CancelledError: the protocol cleans up after the caller, then raises it again.
            outcome, error = None, caught


async def run_undoing(start: Callable[..., Steps[T]], *arguments: Any, **named: Any) -> T:
    """As `run`, but undoes what was started if the caller does not get the result for any reason."""
    unfinished = Unfinished()
    try:
        return await run(start(unfinished, *arguments, **named))
    except GeneratorExit:
        raise
    except BaseException as error:
        steps = unfinished.undone(error)
        if steps is not None:
            await run(steps)
        raise


async def _do(step: Union[Close, Pause, Spawn, Join, Notify, Call], sleep: Sleep) -> Any:
    if isinstance(step, Close):
        return await step.transport.close()
    if isinstance(step, Pause):
        return await _pause(step, sleep)
    if isinstance(step, Spawn):
        background = BackgroundTask(step.steps, step.name)
        if step.into is not None:
            step.into.append(background)
        return background
    if isinstance(step, Join):
        assert isinstance(step.background, BackgroundTask), "made by this driver"
        return await step.background.join(step.longest_s)
    if isinstance(step, Call):
        return await step.call()
    return await _notify(step)


async def _pause(step: Pause, sleep: Sleep) -> None:
    if step.until_closed is None:
        return await sleep(step.seconds)
    loop = asyncio.get_running_loop()
    until = loop.time() + step.seconds
    while loop.time() < until and not step.until_closed.is_closed():
        await sleep(min(CLOSED_CHECK_S, max(0.0, until - loop.time())))


async def _notify(step: Notify) -> None:
    try:
        said = step.call(step.argument)
        if inspect.isawaitable(said):
            await said
    except Exception:
        logger.exception("on_lost failed")


def _task(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


class BackgroundTask(Background):
    """A task. It ends with the steps, or after stop()."""

    def __init__(self, steps: Steps[None], name: str) -> None:
        self._stopped = False
        self._pausing = False
        self.task = _task(self._work(steps, name))

    def stop(self) -> None:
        self._stopped = True
        # Cancel only in a pause. Otherwise a command is in flight, and cancelling it would close its connection, which
        # ends a session before its release arrives. Or on_lost is running, which may release the lock itself.
        if self._pausing and not self.task.get_loop().is_closed():
            self.task.cancel()

    def is_over(self) -> bool:
        # We cannot wait for a task of another event loop, which may have ended and would never finish it.
        return self.task.done() or self.task.get_loop() is not asyncio.get_running_loop()

    async def join(self, longest_s: Optional[float]) -> None:
        # asyncio.wait: a cancellation ends the caller, not the task.
        if not self.is_over():
            await asyncio.wait([self.task], timeout=longest_s)

    async def _work(self, steps: Steps[None], name: str) -> None:
        try:
            await run(steps, self._sleep)
        except Stopped:
            pass
        except Exception:
            # redis-py may raise any error if a release closes a session's connection while this task reads from it.
            if not self._stopped:
                logger.exception("%s failed", name)

    async def _sleep(self, seconds: float) -> None:
        if self._stopped:
            raise Stopped
        self._pausing = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self._pausing = False
