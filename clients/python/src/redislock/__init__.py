"""Distributed locks for redis-py, over the redis-lock module.

    import redis, redislock

    with redislock.Lock(redis.Redis(), "report", timeout=30, blocking_timeout=5) as lock:
        print(lock.grant.fence)

`Lock` is a mutex with the interface of redis-py's `Lock`. `RLock`, `RWLock`, `Semaphore` and `MultiLock` are the other
lock types; `once` and `single_flight` coalesce callers that need the same result. `redislock.asyncio` has the same
names for `redis.asyncio`.
"""

from ._hold import Done, Grant
from ._info import Holder, LockInfo
from ._observer import LockEvent, observe
from ._sync._client import Redis
from ._sync._locks import Lock, MultiLock, RLock, RWLock, Semaphore
from ._sync._once import once, single_flight
from ._tokens import make_token
from .errors import (
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

__version__ = "1.0.0"

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
