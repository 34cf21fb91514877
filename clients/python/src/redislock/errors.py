"""The exceptions of a lock.

All of them are subclasses of redis-py's `LockError`, so code that handles redis-py's lock handles these too. Failures
of the connection or the server are the exceptions that redis-py raises (`ConnectionError`, `NoPermissionError`, …).
"""

from __future__ import annotations

from typing import TypeVar

from redis.exceptions import LockError, LockNotOwnedError

__all__ = [
    "DeadlockError",
    "HeldError",
    "LockError",
    "LockNotOwnedError",
    "MaxWaitersError",
    "ModuleNotLoadedError",
    "NotMadeError",
    "NotReplicatedError",
    "NotRunError",
    "WaitCancelledError",
    "WrongKindError",
    "WrongTypeError",
]

E = TypeVar("E", bound=LockError)


class DeadlockError(LockError):
    """The request would deadlock, so it was not queued. The message lists the owners in the cycle."""


class WaitCancelledError(LockError):
    """An operator (LOCK.CANCEL, CLIENT UNBLOCK … ERROR) or a newer request with the same token ended the wait."""


class MaxWaitersError(LockError):
    """The queue is full: the server has as many waiters as `lock.max-waiters` or `lock.max-waiters-per-key` allows."""


class WrongTypeError(LockError):
    """The key holds a value that is not a lock, such as the string of a `SET NX` client."""


class WrongKindError(LockError):
    """The key is a lock of another type."""


class NotReplicatedError(LockError):
    """Fewer replicas than `replicas` confirmed the grant in time, so the lock was released again."""


class NotRunError(LockError):
    """The command of `run` or `exec` did not run: the slot of its keys was moving for the whole time."""


class HeldError(LockError):
    """The lock was not granted in time. `holder` is the owner ID of its holder (only with `tell_holder`)."""

    holder: str


class NotMadeError(LockError):
    """`once` timed out while another caller was still computing the value."""


class ModuleNotLoadedError(LockError):
    """The server has not loaded the module."""


def named(kind: type[E], message: str, name: str) -> E:
    """An error with redis-py's `lock_name`, which the constructor of redis-py 5.0 does not accept."""
    error = kind(message)
    error.lock_name = name
    return error
