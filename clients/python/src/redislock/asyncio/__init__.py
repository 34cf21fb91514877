"""Locks of the redis-lock module for redis.asyncio.

    import redis.asyncio, redislock.asyncio

    async with redislock.asyncio.Lock(redis.asyncio.Redis(), "report", timeout=30, blocking_timeout=5) as lock:
        print(lock.grant.fence)
"""

from .._hold import Grant
from .._tokens import make_token
from ..errors import (
    DeadlockError,
    LockError,
    LockNotOwnedError,
    MaxWaitersError,
    ModuleNotLoadedError,
    NotReplicatedError,
    WaitCancelledError,
    WrongKindError,
    WrongTypeError,
)
from ._client import Redis
from ._locks import Lock, MultiLock, RLock, RWLock, Semaphore

__all__ = [
    "DeadlockError",
    "Grant",
    "Lock",
    "LockError",
    "LockNotOwnedError",
    "MaxWaitersError",
    "ModuleNotLoadedError",
    "MultiLock",
    "NotReplicatedError",
    "RLock",
    "RWLock",
    "Redis",
    "Semaphore",
    "WaitCancelledError",
    "WrongKindError",
    "WrongTypeError",
    "make_token",
]
