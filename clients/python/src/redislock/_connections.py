"""What sync and asyncio connections share: how many of a pool may wait, and what a version of redis-py takes.

Commands go over raw connections of the client's pool, not over execute_command: that one sends a command again by
itself when a reply is lost, and a release sent twice answers that the lock was not held.
"""

from __future__ import annotations

import threading
from typing import Any, Dict, Optional, Tuple, Union

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import AskError

from ._by_object import ByObject
from ._steps import CONNECT_S

_VERSION = tuple(int(part) for part in redis.__version__.split(".")[:2] if part.isdigit())

# Before 5.3 get_connection requires the command's name; since then it warns if there is one.
GET_CONNECTION_ARGS: Tuple[str, ...] = () if _VERSION >= (5, 3) else ("LOCK.ACQUIRE",)


class PoolState:
    """What we know of a client's pool, shared by all locks over it."""

    def __init__(self, pool: Any) -> None:
        # Read from a connection that never connects: the default differs between versions and classes.
        self.socket_timeout_s: Optional[float] = pool.connection_class(**pool.connection_kwargs).socket_timeout
        # A connection failed, and no request has succeeded since. Until then none is taken from the pool, which
        # connects by the client's own `retry`: on a silent network, or at a port of TLS, that takes minutes, and a
        # wrong password is sent again and again.
        self.failing = False
        # A connection of ours was made since the beginning, or since a failure: now the pool may connect.
        self.proven = False
        # At most half of the connections wait: a release always finds a free one.
        self._most_waiting: int = pool.max_connections // 2
        self._waiting = 0
        self._mutex = threading.Lock()

    def reply_s(self, within_s: Optional[float]) -> Optional[float]:
        """Seconds for a reply: `within_s`, or the sockets' own time-out if that is shorter; None: no limit."""
        if within_s is None or self.socket_timeout_s is None:
            return self.socket_timeout_s if within_s is None else within_s
        return min(within_s, self.socket_timeout_s)

    def fail(self) -> None:
        self.failing, self.proven = True, False

    def begin_wait(self) -> bool:
        """False: so many connections wait already that this wait needs one outside of the pool."""
        with self._mutex:
            if self._waiting >= self._most_waiting:
                return False
            self._waiting += 1
            return True

    def end_wait(self) -> None:
        with self._mutex:
            self._waiting -= 1


_pool_states: ByObject[PoolState] = ByObject(PoolState)


def pool_state(pool: Any) -> PoolState:
    return _pool_states.of(pool)


def new_connection(pool: Any, ask: Optional[AskError] = None, connect_s: float = CONNECT_S) -> Any:
    """Makes a connection with the pool's parameters, outside of the pool, not connected yet. `ask`: to the node that it
    names. `connect_s`: the limit for each part of its single attempt to connect; it is the socket's time-out then.

    redis-py may not list that node: the first slots of a new node are still being moved to it.
    """
    kwargs: Dict[str, Any] = pool.connection_kwargs
    if ask is not None:
        kwargs = {**kwargs, "host": ask.host or kwargs["host"], "port": ask.port}
    connection = pool.connection_class(**kwargs)
    timeout_s: Optional[float] = connection.socket_timeout
    connection.socket_connect_timeout = connect_s
    connection.socket_timeout = connect_s if timeout_s is None else min(connect_s, timeout_s)
    # A session ends with its connection, which no notification is to move. And where the server knows none, redis-py
    # asks for a logger at each connect: a signal that raises there leaves the lock of `logging` locked.
    connection.maint_notifications_config = None
    # redis-py has two classes of that name, one for asyncio.
    connection.retry = type(connection.retry)(NoBackoff(), 0)
    return connection


SyncClient = Union[redis.Redis, redis.RedisCluster]
AsyncioClient = Union[redis.asyncio.Redis, redis.asyncio.RedisCluster]


def is_single(client: Any) -> bool:
    """True if the client has one connection for its commands, which SELECT or AUTH may have moved."""
    # The first of asyncio, which connects later; the second of sync.
    return bool(getattr(client, "single_connection_client", False)) or getattr(client, "connection", None) is not None


def is_cluster(client: Any) -> bool:
    return _kind_of(client)[1]


def is_asyncio(client: Any) -> Optional[bool]:
    """None: neither, such as a wrapper of a client."""
    return _kind_of(client)[0]


_kinds: Dict[type, Tuple[Optional[bool], bool]] = {}


def _kind_of(client: Any) -> Tuple[Optional[bool], bool]:
    # Cached: some bases of these classes are typing.Protocol, which makes isinstance slow.
    found = _kinds.get(type(client))
    if found is None:
        of_asyncio = isinstance(client, (redis.asyncio.Redis, redis.asyncio.RedisCluster))
        of_sync = isinstance(client, (redis.Redis, redis.RedisCluster))
        cluster = isinstance(client, (redis.RedisCluster, redis.asyncio.RedisCluster))
        found = _kinds[type(client)] = (of_asyncio if of_asyncio != of_sync else None, cluster)
    return found
