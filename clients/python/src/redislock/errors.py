"""The errors of a lock, as exceptions.

All of them are redis-py's `LockError`, so code that handles redis-py's lock handles these. Failures of the connection
or the server stay the exceptions that redis-py raises (`ConnectionError`, `NoPermissionError`, …).
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
    """The wait would have closed a cycle of owners; it was not queued. The message names the cycle."""


class WaitCancelledError(LockError):
    """An operator ended the wait (LOCK.CANCEL, CLIENT UNBLOCK … ERROR), or a newer request of the same token did."""


class MaxWaitersError(LockError):
    """The server has as many waiters as `lock.max-waiters` or `lock.max-waiters-per-key` allow."""


class WrongTypeError(LockError):
    """The key holds something that is no lock, such as the string that a `SET NX` client leaves."""


class WrongKindError(LockError):
    """The key is a lock of another family."""


class NotReplicatedError(LockError):
    """Fewer replicas than asked for confirmed the grant in time; the lock was released again."""


class NotRunError(LockError):
    """The command of `run` or `exec` certainly did not run: the slot of its keys was moving for all of the time."""


class HeldError(LockError):
    """Not granted in time; `holder` is the token of the owner that held the lock then (`tell_holder`)."""

    holder: str


class NotMadeError(LockError):
    """The time to wait was over, and the value that another caller makes was not there yet (`once`)."""


class ModuleNotLoadedError(LockError):
    """The server does not know the lock commands."""


def named(kind: type[E], message: str, name: str) -> E:
    """An error with redis-py's `lock_name`, which redis-py 5.0 does not take as an argument."""
    error = kind(message)
    error.lock_name = name
    return error
