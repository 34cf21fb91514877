"""The client's view of a hold: its grant, until when it is sure to last, and whether it was lost."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

from ._families import Lease
from ._observer import Observed
from ._steps import Background
from ._tokens import shown

# Monotonic: a change of the system time moves no deadline.
clock = time.monotonic
_event_mutex = threading.Lock()


@dataclass
class Granted:
    """The server's answer to an acquire; `deadline` in seconds of the monotonic clock, None: none."""

    fence: int
    holds: int
    deadline: Optional[float]
    # When the reply arrived: the grant is not later.
    granted_at: float
    slot: Optional[int] = None


@dataclass
class Ran:
    """The answer to a request with a command: granted, and what became of the command. `error`: its own, or that the
    lock was lost. `is_released`: False: the token may still hold the lock."""

    granted: Granted
    reply: Any
    error: Optional[Exception]
    is_released: bool


@dataclass(frozen=True)
class Done:
    """Not granted, because the hold with this fence did the work. Falsy, like every result without a grant."""

    fence: int

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class Grant:
    """A granted lock.

    `fence` grows with every grant: give it to the resource that the lock protects, which refuses older ones.
    `holds` is how often the lock was acquired and not released, or the permits of a semaphore.
    `expires` is when the lease ends, in seconds of `time.monotonic()`; infinity: never.
    `slot` is the number of a semaphore's permit, from 0 up to its limit, of a semaphore made with `slot=True`.

    `on_lost` may get a fence of 0: of a lock made by `from_token` that has not asked the server for its fence yet.
    """

    fence: int
    token: str
    holds: int
    expires: float
    slot: Optional[int] = None

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends, 0 if it is over; counted from before the request was sent."""
        return max(0.0, self.expires - clock())


class Hold:
    """One owner's holds on one lock.

        held ──release──▶ ended
          └──lose──▶ lost (told once) ──release──▶ ended
    """

    # Only of a session: its connection. While it lives the server renews the lease, so no local deadline applies.
    session_transport: Any = None
    # 0: unknown, as the token was granted elsewhere.
    fence = 0
    granted_at: Optional[float] = None
    slot: Optional[int] = None
    deadline: Optional[float] = None
    ended = False
    _lost = False
    _event: Any = None

    def __init__(self, token: bytes, lease: Lease, new_event: Callable[[], Any], observed: Observed) -> None:
        self.token = token
        self.lease = lease
        self.holds: Dict[str, int] = {}
        self.background: List[Background] = []
        self._observed = observed
        self._new_event = new_event

    @property
    def lost(self) -> bool:
        return self._lost or (self.local_deadline is not None and clock() >= self.local_deadline)

    @property
    def local_deadline(self) -> Optional[float]:
        """When it is lost if it is not renewed before; None: never."""
        return self.deadline if self.session_transport is None else None

    def lose(self) -> bool:
        """Marks it as lost; False if the loss is already known, or it was released."""
        if self._lost or self.ended:
            return False
        self._lost = True
        self._wake()
        self._observed.tell("lost", self.token, self.fence, hold=self.age())
        return True

    def event(self) -> Any:
        """Set when the hold is lost or ended after this call; a waiter then checks both. Made only for a waiter."""
        with _event_mutex:
            if self._event is None:
                self._event = self._new_event()
            return self._event

    def _wake(self) -> None:
        with _event_mutex:
            if self._event is not None:
                self._event.set()

    def granted(self, granted: Granted, mode: str) -> None:
        if self.fence != granted.fence or self.granted_at is None:
            self.fence, self.granted_at = granted.fence, granted.granted_at
        self.holds[mode] = granted.holds
        self.slot = granted.slot
        self.extend(granted.deadline)

    def extend(self, deadline: Optional[float]) -> None:
        self.deadline = deadline

    def age(self) -> Optional[float]:
        """Seconds since the grant; None: it was granted elsewhere."""
        return None if self.granted_at is None else clock() - self.granted_at

    def renewed(self, deadline: Optional[float]) -> None:
        self.extend(deadline)
        self._observed.tell("renewed", self.token, self.fence)

    def end(self) -> List[Background]:
        """Released or given up: no loss is reported from here on, and a waiter for a loss wakes. Returns what was
        stopped."""
        self.ended = True
        self._wake()
        return self.stop_background()

    @property
    def told(self) -> bool:
        """True if the loss was reported, by `on_lost` if there is one."""
        return self._lost

    def stop_background(self) -> List[Background]:
        """What was stopped; a command of it may still be under way."""
        background = self.background
        for each in background:
            each.stop()
        # Behind the loop: a signal may end it before all are stopped.
        self.background = []
        return background

    def grant(self, mode: Optional[str] = None) -> Grant:
        """The grant in one mode; None: in all modes together."""
        expires = math.inf if self.deadline is None else self.deadline
        holds = sum(self.holds.values()) if mode is None else self.holds.get(mode, 0)
        return Grant(self.fence, shown(self.token), holds, expires, self.slot)
