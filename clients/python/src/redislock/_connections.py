"""What sync and asyncio connections share: the limit of waiting connections, and differences between redis-py versions.

Commands use raw connections of the client's pool instead of execute_command, which resends a command whose reply was
lost: the second release would then reply that the lock was not held.
"""

from __future__ import annotations

import threading
from typing import Any, Dict, Optional, Tuple, Union

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import AskError

from . import _fast_path
from ._by_object import ByObject
from ._steps import CONNECT_S

_VERSION = tuple(int(part) for part in redis.__version__.split(".")[:2] if part.isdigit())

# Before 5.3 get_connection requires the command's name; later versions warn about it.
GET_CONNECTION_ARGS: Tuple[str, ...] = () if _VERSION >= (5, 3) else ("LOCK.ACQUIRE",)


class PoolState:
    """What we know of a client's pool, shared by all locks over it."""

    def __init__(self, pool: Any) -> None:
        # Read from a connection that is never opened, because the default differs between versions and classes.
        self.socket_timeout_s: Optional[float] = pool.connection_class(**pool.connection_kwargs).socket_timeout
        self.has_fast_path = _fast_path.serves(pool)
        # A connection failed, and no request has succeeded since. Until one does, none is taken from the pool, which
        # connects under the client's own `retry`: on a silent network, or at a TLS port, that takes minutes, and it
        # sends a wrong password again and again.
        self.failing = False
        # We have opened a connection ourselves since the start, or since a failure, so the pool may connect now.
        self.proven = False
        # At most half of the connections may wait, so that a release always finds a free one.
        self._most_waiting: int = pool.max_connections // 2
        self._waiting = 0
        self._mutex = threading.Lock()

    def reply_s(self, within_s: Optional[float]) -> Optional[float]:
        """Seconds for a reply: `within_s`, or the socket's own timeout if that is shorter; None: no limit."""
        if within_s is None or self.socket_timeout_s is None:
            return self.socket_timeout_s if within_s is None else within_s
        return min(within_s, self.socket_timeout_s)

    def fail(self) -> None:
        self.failing, self.proven = True, False

    def begin_wait(self) -> bool:
        """False: half of the connections wait already, so this wait needs one outside the pool."""
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
    """Creates an unconnected connection outside the pool, with the pool's parameters.

    `ask`: connect to the node that this redirection names. redis-py may not know that node yet, if its first slots are
    still being moved to it. `connect_s`: the limit for each part of the single attempt to connect, during which it is
    the socket's timeout.
    """
    kwargs: Dict[str, Any] = pool.connection_kwargs
    if ask is not None:
        kwargs = {**kwargs, "host": ask.host or kwargs["host"], "port": ask.port}
    connection = pool.connection_class(**kwargs)
    timeout_s: Optional[float] = connection.socket_timeout
    connection.socket_connect_timeout = connect_s
    connection.socket_timeout = connect_s if timeout_s is None else min(connect_s, timeout_s)
    # A notification must not move this connection, because a session ends with it. And if the server supports none,
    # redis-py gets a logger at each connect: a signal handler that raises there leaves the lock of `logging` locked.
    connection.maint_notifications_config = None
    # redis-py has two Retry classes, one of them for asyncio.
    connection.retry = type(connection.retry)(NoBackoff(), 0)
    return connection


SyncClient = Union[redis.Redis, redis.RedisCluster]
AsyncioClient = Union[redis.asyncio.Redis, redis.asyncio.RedisCluster]


def is_single(client: Any) -> bool:
    """True if the client has one connection for its commands, which SELECT or AUTH may have moved."""
    # The first attribute is that of asyncio, which connects later; the second is that of sync.
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
