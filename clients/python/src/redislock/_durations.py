"""Validates and converts durations: none is shortened, none overflows, and anything else is refused. No I/O."""

from __future__ import annotations

import math
from typing import Any, Optional

# A wait this long counts as unlimited: the timeouts of the operating system allow no more.
FOREVER_S = 1e9
# The maximum of PX. The server refuses it, because it is above any lock.max-lease.
LONGEST_MS = 2**63 - 1


def seconds(what: str, value: Any) -> float:
    """Infinite where it is too large for a float. Raises TypeError, and ValueError for NaN."""
    try:
        # float() would accept a string of digits.
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
    """Raises ValueError as well if the value is zero, negative or infinite."""
    found = seconds(what, value)
    if found <= 0 or value == math.inf:
        raise ValueError(f"{what} must be above 0 and finite, not {value!r}")
    return found


def milliseconds(of_s: float) -> int:
    """Rounded up, so that a lease does not expire early: 30.1 s are 30,100 ms, and 0.0015 s are 2 ms."""
    of_ms = of_s * 1000
    return math.ceil(of_ms - 1e-6) if abs(of_ms) < LONGEST_MS else int(math.copysign(1, of_ms)) * LONGEST_MS


def wait(what: str, value: Any) -> Optional[float]:
    """How long to wait: a negative value does not wait, and a very long one waits indefinitely (None)."""
    found = seconds(what, value)
    return None if found >= FOREVER_S else max(0.0, found)
