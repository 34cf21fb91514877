"""Where the commands of one lock go: a connection of the client's pool, of the node that has the key's slot, or one
of its own."""

from __future__ import annotations

import os
import weakref
from typing import Any, Optional

import redis
from redis.exceptions import AskError, ConnectionError, MovedError, ResponseError, TimeoutError

from .._connections import GET_CONNECTION_ARGS, SocketTimeouts, WaiterLimit, new_connection
from .._replies import REDIS_ERRORS, mark_unsent
from .._steps import Argument, Send

_waiter_limit = WaiterLimit()
_socket_timeouts = SocketTimeouts()


class Transport:
    """Not for several threads at once. `own`: one connection, kept from one command to the next."""

    def __init__(self, client: Any, key: Argument, own: bool) -> None:
        self._client = client
        self._key = key
        self._own = own
        self._cluster = isinstance(client, redis.RedisCluster)
        self._stale = False
        self._ask: Optional[AskError] = None
        self._pinned = False
        self._connection: Any = None
        self._connection_pool: Any = None

    def socket_timeout(self) -> Optional[float]:
        return _socket_timeouts.of(self._pool())

    def pin(self) -> None:
        """From here on the connection is never replaced: a session ends with it."""
        self._pinned = True
        _sessions.add(self)

    def is_closed(self) -> bool:
        """Whether the own connection has ended, or has something to read that nobody asked for."""
        try:
            return self._connection is None or bool(self._connection.can_read(timeout=0))
        except (redis.RedisError, OSError):
            self.close()
            return True

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def send(self, step: Send) -> Any:
        pool = self._pool()
        if self._own:
            return self._send_over(self._own_connection(pool), pool, step, shared=False)
        if not step.waits:
            return self._send_pooled(pool, step)
        if not _waiter_limit.enter(pool):
            return self._send_on_new_connection(pool, step)
        try:
            return self._send_pooled(pool, step)
        finally:
            _waiter_limit.leave(pool)

    def _send_pooled(self, pool: Any, step: Send) -> Any:
        try:
            connection = pool.get_connection(*GET_CONNECTION_ARGS)
        except REDIS_ERRORS as error:
            mark_unsent(error)
            self._stale = True
            if "Too many connections" in str(error):
                return self._send_on_new_connection(pool, step)
            raise
        try:
            return self._send_over(connection, pool, step, shared=True)
        finally:
            pool.release(connection)

    def _send_on_new_connection(self, pool: Any, step: Send) -> Any:
        connection = new_connection(pool)
        try:
            return self._send_over(connection, pool, step, shared=False)
        finally:
            connection.disconnect()

    def _send_over(self, connection: Any, pool: Any, step: Send, shared: bool) -> Any:
        asking, self._ask = self._ask, None
        try:
            self._connect(connection)
            if asking is not None:
                connection.send_command("ASKING")
                connection.read_response()
            connection.send_command(*step.command, check_health=shared)
            self._await_reply(connection, pool, step.within_s)
            reply = connection.read_response(disable_decoding=step.reply_to is None)
        except MovedError:
            self._stale = True
            raise
        except AskError as error:
            self._ask = error
            raise
        except ResponseError:
            raise
        except BaseException:
            # A reply may still come, or half of one is read: nobody may use this connection again.
            self._stale = True
            connection.disconnect()
            if connection is self._connection:
                self._connection = None
            raise
        return reply if step.reply_to is None else self._decoded(step.reply_to, reply)

    @staticmethod
    def _await_reply(connection: Any, pool: Any, within_s: Optional[float]) -> None:
        socket_timeout = _socket_timeouts.of(pool)
        if within_s is None or (socket_timeout is not None and socket_timeout <= within_s):
            return
        if not connection.can_read(timeout=within_s):
            raise TimeoutError(f"No reply within {within_s:.3f} s")

    @staticmethod
    def _connect(connection: Any) -> None:
        try:
            connection.connect()
        except REDIS_ERRORS as error:
            mark_unsent(error)
            raise

    def _decoded(self, command: str, reply: Any) -> Any:
        client = self._client.get_redis_connection(self._node()) if self._cluster else self._client
        callback = client.response_callbacks.get(command)
        return reply if callback is None else callback(reply)

    def _own_connection(self, pool: Any) -> Any:
        if self._pinned:
            if self._connection is None:
                raise ConnectionError("The session's connection has ended")
        elif self._connection is None or self._connection_pool is not pool:
            self.close()
            self._connection, self._connection_pool = new_connection(pool), pool
        return self._connection

    def _pool(self) -> Any:
        if self._pinned:
            return self._connection_pool
        if not self._cluster:
            return self._client.connection_pool
        try:
            return self._pool_of_node()
        except REDIS_ERRORS as error:
            mark_unsent(error)
            raise

    def _pool_of_node(self) -> Any:
        return self._client.get_redis_connection(self._node()).connection_pool

    def _node(self) -> Any:
        if self._ask is not None:
            node = self._client.get_node(host=self._ask.host, port=self._ask.port)
            if node is not None:
                return node
            self._ask, self._stale = None, True
        if self._stale:
            self._client.nodes_manager.initialize()
            self._stale = False
        return self._client.get_node_from_key(self._key)


_sessions: "weakref.WeakSet[Transport]" = weakref.WeakSet()


def _leave_sessions_to_the_parent() -> None:
    # A forked child has the socket too: without this the session would outlive the process that it belongs to.
    for transport in list(_sessions):
        transport.close()


os.register_at_fork(after_in_child=_leave_sessions_to_the_parent)
