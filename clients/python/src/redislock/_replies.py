"""Classifies error replies: transient, a lost lock, or an error for the caller."""

from __future__ import annotations

import re

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from .errors import (
    DeadlockError,
    LockError,
    MaxWaitersError,
    ModuleNotLoadedError,
    WaitCancelledError,
    WrongKindError,
    named,
)

# redis-py cuts the code off replies that have a class of their own; of all others the code is the first word.
_TRANSIENT = {"NOREPLICAS", "MISCONF", "GRACE", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "LOADING"}
_OURS = {
    "DEADLOCK": DeadlockError,
    "WRONGKIND": WrongKindError,
    "MAXWAITERS": MaxWaitersError,
    "UNBLOCKED": WaitCancelledError,
}
# Redis's message when the server became a replica.
_DEMOTED = "instance state changed"
# Inside of LOCK.EXEC, an unknown command says nothing about the module.
_UNKNOWN = re.compile(r"unknown command .?(R?LOCK|RWLOCK|SEM|MLOCK)\.", re.IGNORECASE)

NOT_LOADED = (
    "this server has no redis-lock module: put `loadmodule /path/to/libredis_lock.so` into redis.conf and restart it, "
    "or send MODULE LOAD /path/to/libredis_lock.so where enable-module-command allows it"
)


def code(error: BaseException) -> str:
    return str(error).split(" ", 1)[0] if isinstance(error, ResponseError) else ""


def is_transient(error: BaseException) -> bool:
    """True if the same request may succeed in a moment: on another connection, node or primary."""
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        return False
    if isinstance(error, (ConnectionError, TimeoutError, RedisClusterException)):
        return True
    if isinstance(error, (AskError, TryAgainError, ClusterDownError, ReadOnlyError)):
        return True
    return code(error) in _TRANSIENT or (code(error) == "UNBLOCKED" and _DEMOTED in str(error))


_UNSENT = "redislock_unsent"


def mark_unsent(error: BaseException) -> None:
    """Marks the error as unsent: there was no connection to send it over."""
    setattr(error, _UNSENT, True)


def may_have_run(error: BaseException) -> bool:
    """True if the server may have executed the command, and only the reply is missing."""
    if isinstance(error, BusyLoadingError) or getattr(error, _UNSENT, False):
        return False
    return isinstance(error, (ConnectionError, TimeoutError))


def means_lost(error: BaseException) -> bool:
    """True if a reply to release, renew or held says that the lock is no longer ours."""
    return code(error) in ("WRONGTYPE", "WRONGKIND", "NOTHELD")


def translated(error: Exception, name: str) -> Exception:
    """The error that the caller sees."""
    if isinstance(error, LockError):
        return error
    if isinstance(error, ResponseError) and _UNKNOWN.search(str(error)):
        return named(ModuleNotLoadedError, NOT_LOADED, name)
    kind = _OURS.get(code(error))
    return error if kind is None else named(kind, str(error).split(" ", 1)[-1], name)


REDIS_ERRORS = (RedisError, RedisClusterException)
