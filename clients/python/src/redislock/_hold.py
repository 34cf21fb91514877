"""A hold as its client knows it: what was granted, until when it surely lasts, and whether it was lost."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

from ._families import Lease
from ._steps import Background

# Monotonic: no clock that somebody sets moves a deadline.
clock = time.monotonic
_event_mutex = threading.Lock()


@dataclass(frozen=True)
class Granted:
    """The server's answer to an acquire; `deadline` in seconds of the monotonic clock, None: none."""

    fence: int
    holds: int
    deadline: Optional[float]
    # When the reply was here: the grant is not later.
    granted_at: float
    slot: Optional[int] = None


@dataclass(frozen=True)
class Done:
    """Not granted, because the work was done: by the hold with this fence. False, as whatever is not granted."""

    fence: int

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class Grant:
    """What the caller holds.

    `fence` grows with every grant: give it to whatever the lock protects, which refuses older ones.
    `holds` is how often the lock was taken and not given back, or the permits of a semaphore.
    `expires` is when the lease ends, in seconds of `time.monotonic()`; infinity: never.
    `slot` is which of a semaphore's permits it is, from 0 up to its limit, of a semaphore made with `slot=True`.

    `on_lost` may be given a fence of 0: of a lock made by `from_token`, which has not asked the server for it yet.
    """

    fence: int
    token: bytes
    holds: int
    expires: float
    slot: Optional[int] = None

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends, 0 when it is over; counted from before the request was sent."""
        return max(0.0, self.expires - clock())


class Hold:
    """One owner's holds on one lock.

        held ──release──▶ ended
          └──lose──▶ lost (told once) ──release──▶ ended
    """

    def __init__(self, token: bytes, lease: Lease, new_event: Callable[[], Any]) -> None:
        self.token = token
        self.lease = lease
        # Of a session: its connection. The server renews the lease while it lives, so that no local deadline counts.
        self.session_transport: Any = None
        self._new_event = new_event
        self._event: Any = None
        # 0: not known, of a token that was granted elsewhere.
        self.fence = 0
        self.granted_at: Optional[float] = None
        self.slot: Optional[int] = None
        self.deadline: Optional[float] = None
        self.holds: Dict[str, int] = {}
        self.background: List[Background] = []
        self.ended = False
        self._lost = False

    @property
    def lost(self) -> bool:
        return self._lost or (self.local_deadline is not None and clock() >= self.local_deadline)

    @property
    def local_deadline(self) -> Optional[float]:
        """When it is lost if nobody says anything before; None: never."""
        return self.deadline if self.session_transport is None else None

    def lose(self) -> bool:
        """Mark it as lost; False when that is known already, or it was released."""
        if self._lost or self.ended:
            return False
        self._lost = True
        self._wake()
        return True

    def event(self) -> Any:
        """Set when it is lost or ended after this call: look at both then. Made only when somebody waits."""
        with _event_mutex:
            if self._event is None:
                self._event = self._new_event()
            return self._event

    def _wake(self) -> None:
        with _event_mutex:
            if self._event is not None:
                self._event.set()

    def granted(self, granted: Granted, mode: str) -> None:
        if self.fence != granted.fence:
            self.fence, self.granted_at = granted.fence, granted.granted_at
        self.holds[mode] = granted.holds
        self.slot = granted.slot
        self.extend(granted.deadline)

    def extend(self, deadline: Optional[float]) -> None:
        self.deadline = deadline

    def end(self) -> None:
        """Given back, or given up: nobody is told of a loss from here on, and who waits for one wakes."""
        self.ended = True
        self.stop_background()
        self._wake()

    @property
    def told(self) -> bool:
        """Whether the loss was told, by `on_lost` where there is one."""
        return self._lost

    def stop_background(self) -> None:
        background, self.background = self.background, []
        for each in background:
            each.stop()

    def grant(self, mode: Optional[str] = None) -> Grant:
        """What is held of one mode, None: of all."""
        expires = math.inf if self.deadline is None else self.deadline
        holds = sum(self.holds.values()) if mode is None else self.holds.get(mode, 0)
        return Grant(self.fence, self.token, holds, expires, self.slot)
