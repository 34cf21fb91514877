"""Where the commands of one lock go: a connection of the client's pool, of the node that has the key's slot, or one
of its own."""

from __future__ import annotations

import asyncio
import os
import weakref
from typing import Any, Dict, Optional

import redis.asyncio
from redis.exceptions import AskError, ConnectionError, MaxConnectionsError, MovedError, ResponseError, TimeoutError

from .._connections import GET_CONNECTION_ARGS, SocketTimeouts, WaiterLimit, new_connection
from .._replies import REDIS_ERRORS, mark_unsent
from .._steps import Argument, Send

_waiter_limit = WaiterLimit()
_socket_timeouts = SocketTimeouts()


class Transport:
    """`own`: one connection, kept from one command to the next."""

    def __init__(self, client: Any, key: Argument, own: bool) -> None:
        self._client = client
        self._key = key
        self._own = own
        self._cluster = isinstance(client, redis.asyncio.RedisCluster)
        self._stale = False
        self._ask: Optional[AskError] = None
        self._pinned = False
        self._connection: Any = None
        self._connection_pool: Any = None

    async def socket_timeout(self) -> Optional[float]:
        return _socket_timeouts.of(await self._pool())

    def pin(self) -> None:
        """From here on the connection is never replaced: a session ends with it."""
        self._pinned = True
        _sessions.add(self)

    def is_closed(self) -> bool:
        """Whether the own connection has ended. Asked of its reader: redis-py has no call for it that does not read."""
        reader = None if self._connection is None else self._connection._reader
        return reader is None or reader.at_eof() or reader.exception() is not None

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    def close_in_child(self) -> None:
        connection, self._connection = self._connection, None
        writer = None if connection is None else connection._writer
        sock = None if writer is None else writer.get_extra_info("socket")
        if sock is not None:
            # Not closed: the transport would close the number again, when it may be another file.
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, sock.fileno())
            os.close(null)

    async def send(self, step: Send) -> Any:
        pool = await self._pool()
        if self._own:
            return await self._send_over(await self._own_connection(pool), pool, step)
        if not step.waits:
            return await self._send_pooled(pool, step)
        if not _waiter_limit.enter(pool):
            return await self._send_on_new_connection(pool, step)
        try:
            return await self._send_pooled(pool, step)
        finally:
            _waiter_limit.leave(pool)

    async def _send_pooled(self, pool: Any, step: Send) -> Any:
        try:
            connection = await pool.get_connection(*GET_CONNECTION_ARGS)
        except REDIS_ERRORS as error:
            mark_unsent(error)
            self._stale = True
            if isinstance(error, MaxConnectionsError) or "Too many connections" in str(error):
                return await self._send_on_new_connection(pool, step)
            raise
        try:
            return await self._send_over(connection, pool, step)
        finally:
            await pool.release(connection)

    async def _send_on_new_connection(self, pool: Any, step: Send) -> Any:
        connection = new_connection(pool)
        try:
            return await self._send_over(connection, pool, step)
        finally:
            await connection.disconnect(nowait=True)

    async def _send_over(self, connection: Any, pool: Any, step: Send) -> Any:
        asking, self._ask = self._ask, None
        try:
            await self._connect(connection)
            if asking is not None:
                await connection.send_command("ASKING")
                await connection.read_response()
            # A session's connection is never to be made anew by a health check.
            await connection.send_command(*step.command, check_health=not self._own)
            reply = await self._read(connection, pool, step)
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
            await connection.disconnect(nowait=True)
            if connection is self._connection:
                self._connection = None
            raise
        return reply if step.reply_to is None else self._decoded(step.reply_to, reply)

    @staticmethod
    async def _read(connection: Any, pool: Any, step: Send) -> Any:
        reading = connection.read_response(disable_decoding=step.reply_to is None)
        socket_timeout, within_s = _socket_timeouts.of(pool), step.within_s
        if within_s is None or (socket_timeout is not None and socket_timeout <= within_s):
            return await reading
        # Not wait_for: before Python 3.12 it swallows a cancellation that comes together with the reply.
        task = asyncio.ensure_future(reading)
        try:
            done, _ = await asyncio.wait([task], timeout=within_s)
        except BaseException:
            task.cancel()
            raise
        if not done:
            task.cancel()
            raise TimeoutError(f"No reply within {within_s:.3f} s")
        return task.result()

    @staticmethod
    async def _connect(connection: Any) -> None:
        try:
            await connection.connect()
        except REDIS_ERRORS as error:
            mark_unsent(error)
            raise

    def _decoded(self, command: str, reply: Any) -> Any:
        callback = self._client.response_callbacks.get(command)
        return reply if callback is None else callback(reply)

    async def _own_connection(self, pool: Any) -> Any:
        if self._pinned:
            if self._connection is None:
                raise ConnectionError("The session's connection has ended")
        elif self._connection is None or self._connection_pool is not pool:
            await self.close()
            self._connection, self._connection_pool = new_connection(pool), pool
        return self._connection

    async def _pool(self) -> Any:
        if self._pinned:
            return self._connection_pool
        if not self._cluster:
            return self._client.connection_pool
        try:
            return await self._pool_of_node()
        except REDIS_ERRORS as error:
            mark_unsent(error)
            raise

    async def _pool_of_node(self) -> Any:
        return _node_pool(self._client, await self._node())

    async def _node(self) -> Any:
        await self._client.initialize()
        if self._ask is not None:
            node = self._client.get_node(host=self._ask.host, port=self._ask.port)
            if node is not None:
                return node
            self._ask, self._stale = None, True
        if self._stale:
            await self._client.nodes_manager.initialize()
            self._stale = False
        return self._client.get_node_from_key(self._key)


class NodePool:
    """A node of an asyncio cluster, which is its own pool, with the methods of a pool."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.max_connections: int = node.max_connections
        self.connection_class = node.connection_class
        self.connection_kwargs = node.connection_kwargs

    async def get_connection(self, *names: str) -> Any:
        return self.node.acquire_connection()

    async def release(self, connection: Any) -> None:
        # The method came with redis-py 6; before, the node itself does this.
        if hasattr(self.node, "release"):
            self.node.release(connection)
        else:
            self.node._free.append(connection)


_node_pools: "weakref.WeakKeyDictionary[Any, Dict[str, NodePool]]" = weakref.WeakKeyDictionary()


def _node_pool(client: Any, node: Any) -> NodePool:
    """One for each node of the client: nodes cannot be referenced weakly, and are made anew when the slots change."""
    pools = _node_pools.setdefault(client, {})
    pool = pools.get(node.name)
    if pool is None or pool.node is not node:
        pool = pools[node.name] = NodePool(node)
    return pool


_sessions: "weakref.WeakSet[Transport]" = weakref.WeakSet()


def _leave_sessions_to_the_parent() -> None:
    # A forked child has the socket too: without this the session would outlive the process that it belongs to.
    for transport in list(_sessions):
        transport.close_in_child()


os.register_at_fork(after_in_child=_leave_sessions_to_the_parent)
