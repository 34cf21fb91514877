"""Executes the protocol's steps in the calling thread, and the background tasks of a hold in separate threads."""

from __future__ import annotations

import inspect
import logging
import sys
import threading
import time
from typing import Any, Callable, Optional, TypeVar, Union

from .._steps import Background, Call, Close, Join, Notify, Pause, Send, Spawn, Step, Steps, Unfinished
from . import _threads
from ._renewer import Renewal

logger = logging.getLogger("redislock")

T = TypeVar("T")
# How often a session's connection is checked.
CLOSED_CHECK_S = 0.1


class Stopped(Exception):
    """Raised at a pause of steps that were stopped."""


def run(steps: Steps[T], sleep: Callable[[float], None] = time.sleep) -> T:
    """Executes the steps to their end and returns their result."""
    outcome: Any = None
    error: Optional[BaseException] = None
    while True:
        try:
            # The loop is inside the `try`, because a signal handler may raise between two iterations as well.
            while True:
                step = steps.send(outcome) if error is None else steps.throw(error)
                outcome = error = None
                outcome = _execute(step, sleep)
        except BaseException as caught:
            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                if isinstance(caught, StopIteration):
                    result: T = caught.value
                    return result
                raise
            # Including KeyboardInterrupt, wherever in this frame it comes: the protocol cleans up after the caller.
            outcome, error = None, caught


def run_undoing(start: Callable[..., Steps[T]], *arguments: Any, **named: Any) -> T:
    """As `run`, but undoes what was started if the caller does not get the result for any reason."""
    unfinished = Unfinished()
    try:
        return run(start(unfinished, *arguments, **named))
    except BaseException as error:
        try:
            _undo(unfinished, error)
        except BaseException:
            # Another signal, which may have come before the background work was started.
            _undo(unfinished, error)
            raise
        raise


def _undo(unfinished: Unfinished, error: BaseException) -> None:
    steps = unfinished.undone(error)
    if steps is not None:
        run(steps)


def _execute(step: Step, sleep: Callable[[float], None] = time.sleep) -> Any:
    return step.transport.send(step) if isinstance(step, Send) else _do(step, sleep)


def _do(step: Union[Close, Pause, Spawn, Join, Notify, Call], sleep: Callable[[float], None]) -> Any:
    if isinstance(step, Close):
        return step.transport.close()
    if isinstance(step, Pause):
        return _pause(step, sleep)
    if isinstance(step, Spawn):
        return Renewal(step, _execute) if step.pauses else BackgroundThread(step)
    if isinstance(step, Join):
        assert isinstance(step.background, (BackgroundThread, Renewal)), "made by this driver"
        return step.background.join(step.longest_s)
    if isinstance(step, Call):
        return step.call()
    return _notify(step)


def _pause(step: Pause, sleep: Callable[[float], None]) -> None:
    if step.until_closed is None:
        return sleep(step.seconds)
    until = time.monotonic() + step.seconds
    while time.monotonic() < until and not step.until_closed.is_closed():
        sleep(min(CLOSED_CHECK_S, max(0.0, until - time.monotonic())))


def _notify(step: Notify) -> None:
    try:
        step.call(step.argument)
    except Exception:
        logger.exception("on_lost failed")


class BackgroundThread(Background):
    """A daemon thread. It ends with the steps, after stop(), or with the process."""

    def __init__(self, spawn: Spawn) -> None:
        steps, name, here_s = spawn.steps, spawn.name, spawn.here_s
        # Released by stop(). Not an Event: a signal handler that raises in its Python code may leave it locked.
        self._running = running = threading.Lock()
        running.acquire()
        self._stopped = False
        until: Optional[float] = None

        def sleep(seconds: float) -> None:
            is_stopped = running.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
            if is_stopped or (until is not None and time.monotonic() >= until):
                raise Stopped

        def work() -> None:
            try:
                run(steps, sleep)
            except Stopped:
                pass
            except Exception as error:
                # redis-py may raise any error if a release closes a session's connection while this thread reads from
                # it.
                if sys.is_finalizing():
                    logger.warning("%s failed because the interpreter is shutting down: %r", name, error)
                elif not self._stopped:
                    logger.exception("%s failed", name)

        self._thread = threading.Thread(target=work, name=name, daemon=True)
        if spawn.into is not None:
            spawn.into.append(self)
        try:
            _threads.start(self._thread)
        except RuntimeError:
            # A limit of threads or processes is reached, or the interpreter is shutting down.
            if here_s is None:
                raise
            until = time.monotonic() + here_s
            work()

    def stop(self) -> None:
        self._stopped = True
        try:
            self._running.release()
        except RuntimeError:
            # Already stopped.
            pass

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def join(self, longest_s: Optional[float]) -> None:
        # A thread that never started cannot be joined.
        if self._thread.is_alive():
            self._thread.join(longest_s)
