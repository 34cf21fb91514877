"""Executes the protocol's steps in the calling task, and the tasks of a hold in tasks of their own."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any, Awaitable, Callable, Coroutine, Optional, Set, TypeVar, Union

from .._steps import Background, Call, Close, Join, Notify, Pause, Send, Spawn, Steps, Unfinished

logger = logging.getLogger("redislock")

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]
# How soon the end of a session's connection is noticed.
CLOSED_CHECK_S = 0.1
# Strong references: the event loop refers to its tasks weakly.
_tasks: "Set[asyncio.Task[None]]" = set()


class Stopped(Exception):
    """Raised in the steps that are to end at this pause."""


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
            # This coroutine is being discarded, and may not await any more.
            raise
        except BaseException as caught:
            # CancelledError too: the protocol cleans up behind the caller, and then raises it again.
            outcome, error = None, caught


async def run_undoing(start: Callable[..., Steps[T]], *arguments: Any, **named: Any) -> T:
    """As `run`; if the caller does not get the result, whatever the reason, what was begun is undone."""
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
    """A task: it ends with the steps, or with stop()."""

    def __init__(self, steps: Steps[None], name: str) -> None:
        self._stopped = False
        self._pausing = False
        self.task = _task(self._work(steps, name))

    def stop(self) -> None:
        self._stopped = True
        # Only in a pause. Otherwise a command is under way, and cancelling it would end its connection: a session would
        # be over before its release arrives. Or on_lost runs, which may release the lock itself.
        if self._pausing and not self.task.get_loop().is_closed():
            self.task.cancel()

    def is_over(self) -> bool:
        # A task of another event loop cannot be waited for here: a loop that has ended runs it no more.
        return self.task.done() or self.task.get_loop() is not asyncio.get_running_loop()

    async def join(self, longest_s: Optional[float]) -> None:
        # A cancellation ends the caller, not the task.
        if not self.is_over():
            await asyncio.wait([self.task], timeout=longest_s)

    async def _work(self, steps: Steps[None], name: str) -> None:
        try:
            await run(steps, self._sleep)
        except Stopped:
            pass
        except Exception:
            # A release closes a session's connection while this task reads from it: then redis-py may raise any error.
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
