"""Durations as callers give them: none is shortened, none wraps, and what is no duration is refused. No I/O."""

from __future__ import annotations

import math
from typing import Any, Optional

# So long is without an end: the time limits of the system take no more.
FOREVER_S = 1e9
# As PX takes it. The server refuses it, as it is above any lock.max-lease.
LONGEST_MS = 2**63 - 1


def seconds(what: str, value: Any) -> float:
    """Infinite where it is too large for a float. Raises TypeError, and ValueError for NaN."""
    try:
        # A string would be taken for the number that it spells.
        found = None if isinstance(value, (str, bytes)) else float(value)
    except TypeError:
        found = None
    except OverflowError:
        found = math.inf if value > 0 else -math.inf
    if found is None:
        raise TypeError(f"{what} must be a number of seconds, not {value!r}")
    if math.isnan(found):
        raise ValueError(f"{what} must be a number of seconds, not NaN")
    return found


def positive(what: str, value: Any) -> float:
    """Raises ValueError also for what is not above zero or is infinite."""
    found = seconds(what, value)
    if found <= 0 or value == math.inf:
        raise ValueError(f"{what} must be above 0 and finite, not {value!r}")
    return found


def milliseconds(of_s: float) -> int:
    """Rounded up, as a lease must not end before its time: 30.1 s are 30,100 ms, and 0.0015 s are 2 ms."""
    of_ms = of_s * 1000
    return math.ceil(of_ms - 1e-6) if abs(of_ms) < LONGEST_MS else int(math.copysign(1, of_ms)) * LONGEST_MS


def wait(what: str, value: Any) -> Optional[float]:
    """How long to wait: what is below zero is no wait, and what is very long has no end (None)."""
    found = seconds(what, value)
    return None if found >= FOREVER_S else max(0.0, found)
