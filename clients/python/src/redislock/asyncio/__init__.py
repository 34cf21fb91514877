"""Distributed locks for redis.asyncio, over the redis-lock module: `redislock` with coroutines.

    import redis.asyncio, redislock.asyncio

    async with redislock.asyncio.Lock(redis.asyncio.Redis(), "report", timeout=30, blocking_timeout=5) as lock:
        print(lock.grant.fence)
"""

from .._hold import Done, Grant
from .._info import Holder, LockInfo
from .._observer import LockEvent, observe
from .._tokens import make_token
from ..errors import (
    DeadlockError,
    HeldError,
    LockError,
    LockNotOwnedError,
    MaxWaitersError,
    ModuleNotLoadedError,
    NotMadeError,
    NotReplicatedError,
    NotRunError,
    WaitCancelledError,
    WrongKindError,
    WrongTypeError,
)
from ._client import Redis
from ._locks import Lock, MultiLock, RLock, RWLock, Semaphore
from ._once import once, single_flight

__all__ = [
    "DeadlockError",
    "Done",
    "Grant",
    "HeldError",
    "Holder",
    "Lock",
    "LockError",
    "LockEvent",
    "LockInfo",
    "LockNotOwnedError",
    "MaxWaitersError",
    "ModuleNotLoadedError",
    "MultiLock",
    "NotMadeError",
    "NotReplicatedError",
    "NotRunError",
    "RLock",
    "RWLock",
    "Redis",
    "Semaphore",
    "WaitCancelledError",
    "WrongKindError",
    "WrongTypeError",
    "make_token",
    "observe",
    "once",
    "single_flight",
]
