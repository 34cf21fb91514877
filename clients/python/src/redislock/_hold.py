"""The client's view of a hold: its grant, its local deadline, and whether it was lost."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

from ._lock_types import Lease
from ._observer import Observed
from ._steps import Background
from ._tokens import shown

# Monotonic, so that a change of the system time does not move a deadline.
clock = time.monotonic
_event_mutex = threading.Lock()


def _moment(deadline: Optional[float]) -> float:
    return math.inf if deadline is None else deadline


@dataclass
class Granted:
    """A granted acquire. `deadline` is in seconds of the monotonic clock; None: no deadline."""

    fence: int
    holds: int
    deadline: Optional[float]
    # When the reply arrived. The server granted the lock at this time or earlier.
    granted_at: float
    slot: Optional[int] = None


@dataclass
class Ran:
    """The result of a request with a command: the grant, and the outcome of the command. `error` is the command's own,
    or says that the lock was lost. If `is_released` is false, the token may still hold the lock."""

    granted: Granted
    reply: Any
    error: Optional[Exception]
    is_released: bool


@dataclass(frozen=True)
class Done:
    """The result of an acquire with `coalesce` that was not granted, because another holder did the work meanwhile.

    `fence` is that of the holder. Falsy, like every result without a grant.
    """

    fence: int

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class Grant:
    """A granted lock.

    Attributes:
        fence: The fencing token. It increases with every grant: send it to the resource that the lock protects, which
            refuses older ones. `on_lost` may get 0: a lock made by `from_token` that has not asked the server yet.
        token: The owner ID.
        holds: How many times the lock was acquired and not released yet; of a semaphore, its permits.
        expires: When the lease expires, in seconds of `time.monotonic()`; infinity: never.
        slot: The number of the permit, from 0, of a semaphore with `slot=True`; otherwise None.
    """

    fence: int
    token: str
    holds: int
    expires: float
    slot: Optional[int] = None

    @property
    def remaining(self) -> float:
        """Seconds until the lease expires, 0 if it has expired. Counted from before the request was sent."""
        return max(0.0, self.expires - clock())


class Hold:
    """One owner's holds on one lock.

        held ──release──▶ ended
          └──lose──▶ lost (reported once) ──release──▶ ended
    """

    # The connection of a session. While it lives the server renews the lease, so no local deadline applies.
    session_transport: Any = None
    # 0: unknown, because the token was granted elsewhere.
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
        """When it counts as lost unless it is renewed first; None: never."""
        return self.deadline if self.session_transport is None else None

    def lose(self) -> bool:
        """Marks the hold as lost. False if it was known to be lost, or was released."""
        if self._lost or self.ended:
            return False
        self._lost = True
        self._wake()
        self._observed.notify("lost", self.token, self.fence, hold=self.age())
        return True

    def event(self) -> Any:
        """An event that is set when the hold is lost or ended after this call. Created only for a waiter, which then
        checks for both."""
        with _event_mutex:
            if self._event is None:
                self._event = self._new_event()
            return self._event

    def _wake(self) -> None:
        with _event_mutex:
            if self._event is not None:
                self._event.set()

    def granted(self, granted: Granted, mode: str) -> None:
        deadline = granted.deadline
        if self.fence == granted.fence and any(self.holds.values()):
            # An acquire never shortens the lease of its owner.
            deadline = max(deadline, self.deadline, key=_moment)
        if self.fence != granted.fence or self.granted_at is None:
            self.fence, self.granted_at = granted.fence, granted.granted_at
        self.holds[mode] = granted.holds
        self.slot = granted.slot
        self.extend(deadline)
        if self.ended:
            # Its release failed, and its owner acquires again.
            self.ended = False
            with _event_mutex:
                if self._event is not None:
                    self._event.clear()

    def extend(self, deadline: Optional[float]) -> None:
        self.deadline = deadline

    def shorten(self, deadline: Optional[float]) -> None:
        """A renewal may have set this deadline, so the earlier one applies."""
        self.deadline = min(deadline, self.deadline, key=_moment)

    def longest(self, lease: Lease) -> Lease:
        """The longer of this lease and the rest of the current one."""
        if lease.ms is None or self.deadline is None:
            return Lease(None)
        return Lease(max(lease.ms, math.ceil((self.deadline - clock()) * 1000)))

    def age(self) -> Optional[float]:
        """Seconds since the grant; None: unknown, because it was granted elsewhere."""
        return None if self.granted_at is None else clock() - self.granted_at

    def renewed(self, deadline: Optional[float]) -> None:
        self.extend(deadline)
        self._observed.notify("renewed", self.token, self.fence)

    def end(self) -> List[Background]:
        """Released or abandoned: from here on no loss is reported, and a waiter for a loss wakes up. Returns the
        background work that was stopped."""
        self.ended = True
        self._wake()
        return self.stop_background()

    @property
    def loss_reported(self) -> bool:
        """True if the loss was reported, by `on_lost` if there is one."""
        return self._lost

    def stop_background(self) -> List[Background]:
        """Returns the background work that was stopped. A command of it may still be in flight."""
        background = self.background
        for each in background:
            each.stop()
        # After the loop, because a signal may end the loop before all are stopped.
        self.background = []
        return background

    def grant(self, mode: Optional[str] = None) -> Grant:
        """The grant in `mode`; None: in all modes together."""
        expires = math.inf if self.deadline is None else self.deadline
        holds = sum(self.holds.values()) if mode is None else self.holds.get(mode, 0)
        return Grant(self.fence, shown(self.token), holds, expires, self.slot)
