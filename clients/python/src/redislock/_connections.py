"""What sync and asyncio connections share: how many of a pool may wait, and what a version of redis-py takes.

Commands go over raw connections of the client's pool, not over execute_command: that one sends a command again by
itself when a reply is lost, and a release sent twice answers that the lock was not held.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Dict, Optional, Tuple

import redis

_VERSION = tuple(int(part) for part in redis.__version__.split(".")[:2] if part.isdigit())

# Before 5.3 get_connection wants the command's name; since then it warns of one.
GET_CONNECTION_ARGS: Tuple[str, ...] = () if _VERSION >= (5, 3) else ("LOCK.ACQUIRE",)


class WaiterLimit:
    """At most half of a pool's connections wait: a release always finds one. Other waits get a connection of
    their own."""

    def __init__(self) -> None:
        self._waiting: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
        self._mutex = threading.Lock()

    def enter(self, pool: Any) -> bool:
        with self._mutex:
            waiting = self._waiting.get(pool, 0)
            if waiting >= pool.max_connections // 2:
                return False
            self._waiting[pool] = waiting + 1
            return True

    def leave(self, pool: Any) -> None:
        with self._mutex:
            self._waiting[pool] -= 1


class SocketTimeouts:
    """The time-out of the sockets that a pool makes, in seconds, asked of a connection that never connects: the
    default differs between versions and classes."""

    def __init__(self) -> None:
        self._known: "weakref.WeakKeyDictionary[Any, Tuple[Optional[float]]]" = weakref.WeakKeyDictionary()

    def of(self, pool: Any) -> Optional[float]:
        known = self._known.get(pool)
        if known is None:
            known = (new_connection(pool).socket_timeout,)
            self._known[pool] = known
        return known[0]


def new_connection(pool: Any) -> Any:
    """A connection as the pool makes them, outside of it; not connected yet."""
    kwargs: Dict[str, Any] = pool.connection_kwargs
    return pool.connection_class(**kwargs)
