"""Runs the renewals of all holds, and the checks of their local deadlines. One thread of the process serves them, so an
acquire starts none: that took as long as the rest of an acquire and a release.

The threads take turns (leader and followers). One waits for the steps that are due. Before it runs them it makes sure
that another thread waits in its place, which takes over what else is due if that takes long. So a server that does not
reply, or an `on_lost` that blocks, delays no other hold.

The callers never wait for a lock of these threads: a signal handler may acquire or release a lock as well, in the
middle of the code that it interrupts.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

from .._hold import clock
from .._steps import Background, Pause, Spawn, Step
from . import _threads

logger = logging.getLogger("redislock")

NAME = "redislock renewals"
# How long a thread stays if nothing is paused, and how often it looks.
IDLE_S = 0.5
# The next steps that are due wait this long for a thread that runs others; if several threads do, for that part of it.
SLOW_S = 0.02
# Steps are run up to this part of their pause early, together with others that are due.
EARLY = 0.1


class Renewer:
    """The paused steps, and the threads that wait for them.

    add ──pause ends──▶ due ──▶ run ──next pause──▶ add
    """

    def __init__(self) -> None:
        self._paused: Dict[Renewal, None] = {}
        self._due: Deque[Renewal] = deque()
        # When a thread has last begun to run steps.
        self._began = 0.0
        # These two count threads. Lists, because appending to one and taking from it are atomic.
        self._threads: List[None] = []
        self._followers: List[None] = []
        self._leading = threading.Lock()
        # Released to wake the leader up before `_wakes_at`.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._wakes_at = math.inf

    def add(self, renewal: Renewal) -> None:
        """Raises RuntimeError if a thread is needed and none can be started."""
        self._paused[renewal] = None
        if not self._threads:
            try:
                self._start()
            except BaseException:
                self.remove(renewal)
                raise
        elif renewal.due < self._wakes_at:
            try:
                self._bell.release()
            except RuntimeError:
                # Released already.
                pass

    def remove(self, renewal: Renewal) -> bool:
        """False: it is not paused."""
        return self._paused.pop(renewal, self) is None

    def _start(self) -> None:
        _threads.start(threading.Thread(target=self._work, name=NAME, daemon=True))

    def _work(self) -> None:
        while True:
            self._threads.append(None)
            try:
                while self._take_turn():
                    pass
            finally:
                self._threads.pop()
            # After that: an `add` meanwhile has seen this thread, or is seen here.
            if self._followers or not self._paused:
                return

    def _take_turn(self) -> bool:
        """Waits as a follower and then as the leader, and runs what is due. False: this thread is not needed."""
        self._followers.append(None)
        try:
            self._leading.acquire()
        finally:
            self._followers.pop()
        try:
            renewal = self._next()
            self._began = clock()
            needs_follower = renewal is not None and not self._followers
        finally:
            self._leading.release()
        if renewal is None:
            return False
        if needs_follower:
            try:
                self._start()
            except RuntimeError as error:
                logger.debug("renewals may be late: %s", error)
        while renewal is not None:
            renewal.run()
            self._began = clock()
            renewal = self._pop_due()
        return not self._followers

    def _next(self) -> Optional[Renewal]:
        """Waits for the next steps; None: nothing was paused for a while."""
        idle_until = clock() + IDLE_S
        while True:
            # An `add` from here on rings.
            self._wakes_at = math.inf
            now = clock()
            wakes_at = self._collect(now)
            if self._due:
                running = len(self._threads) - len(self._followers) - 1
                wakes_at = self._began + SLOW_S / running if running > 0 else now
                if wakes_at <= now:
                    renewal = self._pop_due()
                    if renewal is not None:
                        return renewal
            if wakes_at is not None:
                idle_until = now + IDLE_S
            elif now >= idle_until:
                return None
            self._wakes_at = idle_until if wakes_at is None else min(wakes_at, idle_until)
            self._bell.acquire(timeout=max(0.0, self._wakes_at - now))

    def _pop_due(self) -> Optional[Renewal]:
        try:
            return self._due.popleft()
        except IndexError:
            return None

    def _collect(self, now: float) -> Optional[float]:
        """Moves what is due, and returns when the next of the others is; None: there is none."""
        first = None
        for renewal in list(self._paused):
            if renewal.early > now:
                first = renewal.due if first is None else min(first, renewal.due)
            elif self.remove(renewal):
                self._due.append(renewal)
        return first


class Renewal(Background):
    """The background steps of one hold. They begin with a pause; `execute` runs any other step."""

    due = 0.0
    early = 0.0

    def __init__(self, spawn: Spawn, execute: Callable[[Step], Any]) -> None:
        self._steps = spawn.steps
        self._name = spawn.name
        self._execute = execute
        self._renewer = _renewer
        # Held while the steps run.
        self._running = threading.Lock()
        self._is_stopped = False
        self._is_over = False
        if spawn.into is not None:
            spawn.into.append(self)
        try:
            self._run()
        except StopIteration:
            self._is_over = True

    def stop(self) -> None:
        self._is_stopped = True
        if self._renewer.remove(self):
            self._is_over = True

    def is_over(self) -> bool:
        # The threads of the parent do not run in a forked child.
        return (self._is_over and not self._running.locked()) or self._renewer is not _renewer

    def join(self, longest_s: Optional[float]) -> None:
        """Waits for a command in flight; after stop() no other follows."""
        timeout_s = -1 if longest_s is None else min(longest_s, threading.TIMEOUT_MAX)
        if self._renewer is _renewer and self._running.acquire(timeout=timeout_s):
            self._running.release()

    def run(self) -> None:
        """Runs the steps from the end of a pause."""
        with self._running:
            self._is_over = True
            try:
                if not self._is_stopped:
                    self._run()
            except (StopIteration, SystemExit):
                # on_lost may raise SystemExit, which would end a separate thread silently.
                pass
            except BaseException as error:
                if sys.is_finalizing():
                    logger.warning("%s failed because the interpreter is shutting down: %r", self._name, error)
                elif not self._is_stopped:
                    logger.exception("%s failed", self._name)

    def _run(self) -> None:
        """Runs the steps to their next pause, or their end (StopIteration)."""
        step = self._steps.send(None)
        while not isinstance(step, Pause):
            try:
                outcome = self._execute(step)
            except BaseException as caught:
                step = self._steps.throw(caught)
            else:
                step = self._steps.send(outcome)
        now = clock()
        self.due, self.early = now + step.seconds, now + step.seconds * (1 - EARLY)
        self._is_over = False
        self._renewer.add(self)
        if self._is_stopped:
            # stop() may have come before add().
            self.stop()


_renewer = Renewer()


def _new_renewer() -> None:
    global _renewer
    _renewer = Renewer()


os.register_at_fork(after_in_child=_new_renewer)
