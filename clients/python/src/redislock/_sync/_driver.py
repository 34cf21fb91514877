"""Does the protocol's steps in the calling thread, and keeps holds in threads of their own."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Callable, Optional, TypeVar

from .._steps import Close, Keep, Keeper, Pause, Send, SocketTimeout, Step, Steps, Tell, Undo

logger = logging.getLogger("redislock")

T = TypeVar("T")
# How soon the end of a session's connection is noticed.
ENDED_EVERY_S = 0.1


class Stopped(Exception):
    """The steps are to end at this pause."""


def run(steps: Steps[T], sleep: Callable[[float], None] = time.sleep) -> T:
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
            outcome, error = _do(step, sleep), None
        except BaseException as caught:
            # KeyboardInterrupt too: the protocol clears up behind the caller and lets it go on.
            outcome, error = None, caught


def _do(step: Step, sleep: Callable[[float], None]) -> Any:
    if isinstance(step, Send):
        return step.line.send(step)
    if isinstance(step, SocketTimeout):
        return step.line.socket_timeout()
    if isinstance(step, Close):
        return step.line.close()
    if isinstance(step, Pause):
        return _pause(step, sleep)
    if isinstance(step, Undo):
        return run(step.steps)
    if isinstance(step, Keep):
        return ThreadKeeper(step)
    return _tell(step)


def _pause(step: Pause, sleep: Callable[[float], None]) -> None:
    if step.until_ended is None:
        return sleep(step.seconds)
    until = time.monotonic() + step.seconds
    while time.monotonic() < until and not step.until_ended.ended():
        sleep(min(ENDED_EVERY_S, max(0.0, until - time.monotonic())))


def _tell(step: Tell) -> None:
    try:
        step.call(step.argument)
    except Exception:
        logger.exception("on_lost failed")


class ThreadKeeper(Keeper):
    """A daemon thread: it ends with the steps, with stop(), or with the process."""

    def __init__(self, keep: Keep) -> None:
        self._stop = threading.Event()
        stop = self._stop

        def sleep(seconds: float) -> None:
            if stop.wait(seconds):
                raise Stopped

        def work() -> None:
            try:
                run(keep.steps, sleep)
            except Stopped:
                pass
            except Exception:
                # A release closes a session's connection while this thread reads from it: redis-py then fails anyhow.
                if not stop.is_set():
                    logger.exception("%s failed", keep.name)

        threading.Thread(target=work, name=keep.name, daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
