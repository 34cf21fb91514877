"""LOCK.INFO, typed. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from ._tokens import shown


@dataclass(frozen=True)
class Holder:
    """A holder of a lock, or of one mode of it. Times are in seconds."""

    owner: str
    """Its owner ID"""
    mode: str
    """exclusive, read, write or permits"""
    holds: int
    """How many times it holds the lock; of a semaphore, its permits"""
    fence: int
    ttl: Optional[float]
    """Time until its lease expires; None: it has no deadline"""
    lease: Optional[float]
    """Length of its lease; None: it has none"""
    age: float
    """Time since its grant"""
    session: Optional[int]
    """Client ID of the connection that its session is bound to; None: no session"""
    slot: Optional[int]
    """Number of its permit, of a semaphore with slots; None: it has none"""


@dataclass(frozen=True)
class LockInfo:
    """The state of a lock that is held or has waiters, as `Lock.info` returns it."""

    kind: str
    """mutex, reentrant, rw or semaphore"""
    limit: int
    """Number of permits of a semaphore; 0 of a read/write lock, 1 of the others"""
    fence: int
    """Fencing token of the latest grant"""
    ttl: Optional[float]
    """Seconds until the key expires; None: it has no deadline; 0: the lock is free"""
    holders: Tuple[Holder, ...]
    """The hundred oldest holders"""
    waiters: int
    """Number of waiting requests"""
    holding: int
    """Number of owners that hold the lock"""


def lock_info(reply: Any) -> Optional[LockInfo]:
    if reply is None:
        return None
    lock = _fields(reply)
    return LockInfo(
        shown(lock["kind"]),
        int(lock["limit"]),
        int(lock["fence"]),
        # -2: free.
        0.0 if int(lock["ttl"]) == -2 else _seconds(lock["ttl"]),
        tuple(_holder(_fields(holder)) for holder in lock["holders"]),
        int(lock["waiters"]),
        int(lock["holding"]),
    )


def _holder(holder: Dict[str, Any]) -> Holder:
    slot = int(holder.get("slot", -1))
    return Holder(
        shown(holder["owner"]),
        shown(holder["mode"]),
        int(holder["holds"]),
        int(holder["fence"]),
        _seconds(holder["ttl"]),
        _seconds(holder["lease"]),
        int(holder["age"]) / 1000,
        int(holder["session"]) or None,
        None if slot < 0 else slot,
    )


def _seconds(ms: Any) -> Optional[float]:
    return None if int(ms) < 0 else int(ms) / 1000


def _fields(reply: Any) -> Dict[str, Any]:
    """The fields of a map, which RESP2 sends as a flat array."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {shown(name): value for name, value in pairs}
