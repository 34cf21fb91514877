"""LOCK.INFO, typed. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from ._tokens import shown


@dataclass(frozen=True)
class Holder:
    """An owner that holds a lock, or one mode of it. Times in seconds."""

    owner: str
    """Its token"""
    mode: str
    """exclusive, read, write or permits"""
    holds: int
    """How often it holds the lock; of a semaphore, its permits"""
    fence: int
    ttl: Optional[float]
    """Until its lease ends; None: it has no deadline"""
    lease: Optional[float]
    """The length of its lease; None: none"""
    age: float
    """Since its grant"""
    session: Optional[int]
    """The client id of the connection that it is bound to; None: no session"""
    slot: Optional[int]
    """The number of its permit, of a semaphore with slots; None: none"""


@dataclass(frozen=True)
class LockInfo:
    """A lock that is held, or free and waited for."""

    kind: str
    """mutex, reentrant, rw or semaphore"""
    limit: int
    """A semaphore's permits; of a read/write lock 0, of others 1"""
    fence: int
    """Of the latest grant"""
    ttl: Optional[float]
    """Seconds until the key ends; None: it has no deadline; 0: the lock is free"""
    holders: Tuple[Holder, ...]
    """The hundred oldest"""
    waiters: int
    """How many requests wait"""
    holding: int
    """How many owners hold it"""


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
    """A map: of RESP2 a flat array."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {shown(name): value for name, value in pairs}
