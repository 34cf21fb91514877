"""Classifies error replies: transient, a lost lock, or an error for the caller."""

from __future__ import annotations

import re
from typing import Optional, cast

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    ConnectionError,
    NoPermissionError,
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

# redis-py strips the code from errors that have their own class. In all others the code is the first word.
_TRANSIENT = {"NOREPLICAS", "MISCONF", "GRACE", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "LOADING"}
_OURS = {
    "DEADLOCK": DeadlockError,
    "WRONGKIND": WrongKindError,
    "MAXWAITERS": MaxWaitersError,
    "UNBLOCKED": WaitCancelledError,
}
# Redis's message when the server became a replica.
_DEMOTED = "instance state changed"
# LOCK.EXEC reports an unknown inner command in the same way, which says nothing about the module.
_UNKNOWN = re.compile(r"unknown command .?(R?LOCK|RWLOCK|SEM|MLOCK)\.", re.IGNORECASE)

NOT_LOADED = (
    "this server has no redis-lock module: put `loadmodule /path/to/libredis_lock.so` into redis.conf and restart it, "
    "or send MODULE LOAD /path/to/libredis_lock.so where enable-module-command allows it"
)


def code(error: BaseException) -> str:
    return str(error).split(" ", 1)[0] if isinstance(error, ResponseError) else ""


def is_redirection(error: BaseException) -> bool:
    """True if the request belongs to another node, or to none while its slot moves. Nothing was run."""
    return isinstance(error, (AskError, TryAgainError))


def is_transient(error: BaseException) -> bool:
    """True if the same request may succeed in a moment: on another connection, node or primary."""
    if is_refusal(error):
        return False
    if isinstance(error, (ConnectionError, TimeoutError, RedisClusterException)):
        return True
    if isinstance(error, (AskError, TryAgainError, ClusterDownError, ReadOnlyError)):
        return True
    return code(error) in _TRANSIENT or (code(error) == "UNBLOCKED" and _DEMOTED in str(error))


_REFUSALS = (AuthenticationError, AuthorizationError, NoPermissionError)
# redis-py reports errors of the sentinels only as text.
_REFUSED_BY_SENTINELS = re.compile(r"(Authentication|Authorization|NoPermission)\w*Error|WRONGPASS|NOAUTH|NOPERM")


def is_refusal(error: Optional[BaseException]) -> bool:
    """True if the server refuses the user, or the user lacks a permission. redis-py wraps such errors while it looks
    for a node or a primary."""
    if type(error).__name__ == "MasterNotFoundError" and _REFUSED_BY_SENTINELS.search(str(error)):
        return True
    while error is not None and not isinstance(error, _REFUSALS):
        error = error.__cause__
    return error is not None


def described(error: BaseException) -> str:
    """The error as text for a log. Since redis-py 7.1 its repr() omits the message."""
    return f"{type(error).__name__}: {error}"


def at_the_end(error: Exception, before: Optional[Exception]) -> Exception:
    """The error of a request that has timed out. `before`: the error of the previous attempt, in case the timeout cut
    the last one short."""
    if isinstance(error, TimeoutError) and before is not None and not isinstance(before, TimeoutError):
        late = TimeoutError(f"{error}; the previous attempt: {described(before)}")
        late.__cause__ = before
        return late
    if error.__cause__ is None:
        error.__cause__ = error.__context__
    return error


def check_node(error: object) -> None:
    """Raises if a client for a single server is connected to a node of a cluster: it does not know the other nodes."""
    # redis-py 5 has classes for these only in its cluster client.
    words = code(error) if isinstance(error, ResponseError) else ""
    if isinstance(error, (AskError, ClusterCrossSlotError)) or words in ("ASK", "MOVED", "CROSSSLOT"):
        message = f"the server is a node of a cluster: create the client with redis.RedisCluster ({error})"
        raise LockError(message) from cast(ResponseError, error)


_UNSENT = "redislock_unsent"


def mark_unsent(error: BaseException) -> None:
    """Marks an error of a request that was not sent, because there was no connection."""
    setattr(error, _UNSENT, True)


_REPEATED = "redislock_repeated"


def mark_repeated(error: BaseException) -> None:
    """Marks the error reply to a request that was sent before, and may be queued or granted since then."""
    setattr(error, _REPEATED, True)


def may_have_run(error: BaseException) -> bool:
    """True if the server may have executed the command, and only the reply is missing."""
    if getattr(error, _REPEATED, False):
        return True
    if isinstance(error, BusyLoadingError) or getattr(error, _UNSENT, False):
        return False
    return isinstance(error, (ConnectionError, TimeoutError))


def means_lost(error: BaseException) -> bool:
    """True if the reply to a release, a renewal or LOCK.HELD means that the lock is no longer ours."""
    return code(error) in ("WRONGTYPE", "WRONGKIND", "NOTHELD")


def translated(error: Exception, name: str) -> Exception:
    """The error that the caller sees: this one, or one that has it as its cause."""
    if isinstance(error, LockError):
        return error
    kind = _OURS.get(code(error))
    if isinstance(error, ResponseError) and _UNKNOWN.search(str(error)):
        found: LockError = named(ModuleNotLoadedError, NOT_LOADED, name)
    elif kind is not None:
        found = named(kind, str(error).split(" ", 1)[-1], name)
    else:
        return error
    found.__cause__ = error
    return found


REDIS_ERRORS = (RedisError, RedisClusterException)
