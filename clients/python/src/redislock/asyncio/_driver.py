"""Does the protocol's steps in the calling task, and runs what accompanies a hold in tasks of its own."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any, Optional, Set, TypeVar, Union

from .._steps import Background, Cleanup, Close, Notify, Pause, Send, Spawn, Steps

logger = logging.getLogger("redislock")

T = TypeVar("T")
# How soon the end of a session's connection is noticed.
CLOSED_CHECK_S = 0.1
# The event loop refers to its tasks weakly.
_tasks: "Set[asyncio.Task[None]]" = set()


async def run(steps: Steps[T]) -> T:
    """Do the steps to their end and give back what they return."""
    outcome: Any = None
    error: Optional[BaseException] = None
    while True:
        try:
            step = steps.send(outcome) if error is None else steps.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        try:
            outcome = await (step.transport.send(step) if isinstance(step, Send) else _do(step))
            error = None
        except GeneratorExit:
            # This coroutine is thrown away, and may not await any more.
            raise
        except BaseException as caught:
            # CancelledError too: the protocol clears up behind the caller and lets it go on.
            outcome, error = None, caught


async def _do(step: Union[Close, Pause, Cleanup, Spawn, Notify]) -> Any:
    if isinstance(step, Close):
        return await step.transport.close()
    if isinstance(step, Pause):
        return await _pause(step)
    if isinstance(step, Cleanup):
        # A second cancellation ends the caller, not the clearing up.
        return await asyncio.shield(_task(step.steps))
    if isinstance(step, Spawn):
        return BackgroundTask(step)
    return await _notify(step)


async def _pause(step: Pause) -> None:
    if step.until_closed is None:
        return await asyncio.sleep(step.seconds)
    loop = asyncio.get_running_loop()
    until = loop.time() + step.seconds
    while loop.time() < until and not step.until_closed.is_closed():
        await asyncio.sleep(min(CLOSED_CHECK_S, max(0.0, until - loop.time())))


async def _notify(step: Notify) -> None:
    try:
        said = step.call(step.argument)
        if inspect.isawaitable(said):
            await said
    except Exception:
        logger.exception("on_lost failed")


def _task(steps: Steps[None]) -> "asyncio.Task[None]":
    task = asyncio.get_running_loop().create_task(run(steps))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


class BackgroundTask(Background):
    """A task: it ends with the steps, or with stop()."""

    def __init__(self, spawn: Spawn) -> None:
        self._task = _task(spawn.steps)
        self._task.add_done_callback(lambda task: _log_failure(task, spawn.name))

    def stop(self) -> None:
        # A loss that is being told, by on_lost, may release the lock itself: it goes on.
        if not self._task.get_loop().is_closed() and self._task is not _current_task():
            self._task.cancel()


def _current_task() -> Optional["asyncio.Task[Any]"]:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _log_failure(task: "asyncio.Task[None]", name: str) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("%s failed", name, exc_info=task.exception())
