"""Sends the commands of one lock over a connection of the client's pool, in a cluster of the pool of the node that has
the key's slot, or over a dedicated connection."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import weakref
from typing import Any, Awaitable, Callable, Coroutine, Dict, List, Optional, Set, Tuple

from redis.exceptions import AskError, ConnectionError, MaxConnectionsError, MovedError, ResponseError

from .._cleanups import Cleanups, cleanups_of
from .._connections import GET_CONNECTION_ARGS, PoolState, is_cluster, new_connection, pool_state
from .._fast_path import packed
from .._replies import REDIS_ERRORS, check_node, mark_unsent
from .._steps import Argument, Behind, Send


class Transport:
    """`own`: use one connection for all commands."""

    by_message = False
    is_queued = False
    _stale = False
    _ask: Optional[AskError] = None
    _pinned = False
    # The dedicated connection leads to a node that is importing the slot, so each command needs ASKING before it.
    _asking = False
    _connection: Any = None
    _connection_pool: Any = None

    def __init__(self, client: Any, key: Argument, own: bool) -> None:
        self._client = client
        self._key = key
        self._own = own
        self._cluster = is_cluster(client)

    def socket_timeout(self) -> Optional[float]:
        """The socket timeout in seconds; None: no timeout. Does no I/O."""
        if not self._cluster:
            return pool_state(self._client.connection_pool).socket_timeout_s
        known = _cluster_socket_timeouts.get(self._client)
        if known is None:
            # A startup node is known before the client has loaded the others, and all have the same options.
            node = next(iter(self._client.nodes_manager.startup_nodes.values()))
            timeout_s = node.connection_class(**node.connection_kwargs).socket_timeout
            known = _cluster_socket_timeouts[self._client] = (timeout_s,)
        return known[0]

    def cleanups(self) -> Cleanups:
        return cleanups_of(self._client)

    def pin(self) -> None:
        """From here on the connection is never replaced: a session ends with it, and WAIT covers only its writes."""
        self._pinned = True

    def is_closed(self) -> bool:
        """True if the dedicated connection has ended. Asks its reader, because every check of redis-py reads from the
        socket."""
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
            # Not closed: the transport would close the same descriptor again, which may be another file by then.
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, sock.fileno())
            os.close(null)

    async def send(self, step: Send) -> Any:
        cancellations = _cancellations()
        try:
            if self._own:
                connection = await self._own_connection(step)
                state = pool_state(self._connection_pool)
                return await self._send_over(connection, state, step, cancellations, self._asking)
            pool = await self._node_pool() if self._cluster else self._client.connection_pool
            state = pool_state(pool)
            if self._ask is not None or state.failing:
                return await self._send_on_new_connection(pool, state, step, cancellations)
            if not state.proven:
                await self._prove(pool, state, step.connect_s)
            if not step.waits:
                return await self._send_pooled(pool, state, step, cancellations)
            if not state.begin_wait():
                return await self._send_on_new_connection(pool, state, step, cancellations)
            try:
                return await self._send_pooled(pool, state, step, cancellations)
            finally:
                state.end_wait()
        except REDIS_ERRORS as error:
            if _cancellations() > cancellations:
                # A cancellation was lost in an attempt that failed, which would be repeated.
                raise asyncio.CancelledError from error
            raise

    async def _prove(self, pool: Any, state: PoolState, connect_s: float) -> None:
        """Finds out in one attempt whether the pool could connect, and raises the error if not."""
        connection = new_connection(pool, None, connect_s)
        try:
            await _io(connection.connect())
        except BaseException as error:
            mark_unsent(error)
            await self._discard(connection, state)
            raise
        state.proven = True
        await connection.disconnect(nowait=True)

    async def _send_pooled(self, pool: Any, state: PoolState, step: Send, cancellations: int) -> Any:
        try:
            getting = pool.get_connection(*GET_CONNECTION_ARGS)
            connection = await _detachable(getting, functools.partial(_return_to_pool, pool))
        except BaseException as error:
            mark_unsent(error)
            self._stale = True
            if isinstance(error, MaxConnectionsError) or "Too many connections" in str(error):
                return await self._send_on_new_connection(pool, state, step, cancellations)
            state.fail()
            raise
        try:
            return await self._exchange(connection, state, step, cancellations)
        finally:
            await pool.release(connection)

    async def _send_on_new_connection(self, pool: Any, state: PoolState, step: Send, cancellations: int) -> Any:
        ask, self._ask = self._ask, None
        connection = new_connection(pool, ask, step.connect_s)
        try:
            return await self._send_over(connection, state, step, cancellations, asking=ask is not None)
        finally:
            await connection.disconnect(nowait=True)

    async def _send_over(
        self, connection: Any, state: PoolState, step: Send, cancellations: int, asking: bool
    ) -> Any:
        """Sends over a connection outside the pool, which may not be connected yet."""
        try:
            await _io(connection.connect())
            if asking and not step.behind:
                await _io(connection.send_command("ASKING", check_health=False))
                await _io(connection.read_response())
        except BaseException as error:
            mark_unsent(error)
            await self._discard(connection, state)
            raise
        return await self._exchange(connection, state, step, cancellations, asking)

    async def _exchange(
        self, connection: Any, state: PoolState, step: Send, cancellations: int, asking: bool = False
    ) -> Any:
        try:
            if step.within_s is None and not step.behind:
                # It may reconnect under the client's own `retry`, so only EXEC, which has no limit, gets a check.
                await _io(connection.check_health())
            if _cancellations() > cancellations:
                # A cancellation was lost on the way to the connection.
                raise asyncio.CancelledError
            if step.behind:
                return await self._packet(connection, state, step, asking)
            _write(connection, packed(connection.encoder, step.command))
            reply = await self._reply(connection, state, step.within_s, step.reply_to)
        except ResponseError as error:
            await self._note(error)
            raise
        except BaseException:
            # The reply may still arrive, or was read in part, so the connection must not be used again.
            await self._discard(connection, state)
            raise
        state.failing = False
        return reply

    async def _packet(self, connection: Any, state: PoolState, step: Send, asking: bool) -> Any:
        packet = [Behind(step.command, step.within_s, step.reply_to), *step.behind]
        before = [("ASKING",)] if asking else []
        commands = [command for each in packet for command in (*before, each.command)]
        _write(connection, b"".join(packed(connection.encoder, command) for command in commands))
        replies: List[Any] = []
        try:
            for each in packet:
                try:
                    if asking:
                        await self._reply(connection, state, each.within_s, None)
                    replies.append(await self._reply(connection, state, each.within_s, each.reply_to))
                except ResponseError as error:
                    replies.append(error)
        except REDIS_ERRORS as error:
            if not replies:
                raise
            await self._discard(connection, state)
            return replies + [error] * (len(packet) - len(replies))
        state.failing = False
        # Only the first: an ASK of a later one concerns its own keys, and the next packet starts with the lock again.
        await self._note(replies[0])
        return replies

    async def _reply(
        self, connection: Any, state: PoolState, within_s: Optional[float], reply_to: Optional[str]
    ) -> Any:
        connection.socket_timeout = state.reply_s(within_s)
        try:
            reply = await _io(connection.read_response(disable_decoding=reply_to is None))
        finally:
            connection.socket_timeout = state.socket_timeout_s
        return reply if reply_to is None else self._decoded(reply_to, reply)

    async def _note(self, error: Any) -> None:
        """Takes from an error reply where to send the next command."""
        if not self._cluster:
            check_node(error)
        if isinstance(error, MovedError):
            self._stale = True
            if self._own and not self._pinned:
                await self.close()
        elif isinstance(error, AskError):
            self._ask = error

    async def _discard(self, connection: Any, state: PoolState) -> None:
        self._stale = True
        state.fail()
        await connection.disconnect(nowait=True)
        if connection is self._connection:
            self._connection = None

    def _decoded(self, command: str, reply: Any) -> Any:
        callback = self._client.response_callbacks.get(command)
        return reply if callback is None else callback(reply)

    async def _own_connection(self, step: Send) -> Any:
        if self._pinned:
            if self._connection is None:
                raise ConnectionError("The connection of the lock has ended")
            return self._connection
        pool = await self._node_pool() if self._cluster else self._client.connection_pool
        if self._connection is None or self._connection_pool is not pool or self._ask is not None:
            await self.close()
            ask, self._ask = self._ask, None
            self._asking = ask is not None
            # Now, because a child may be forked while the request waits.
            _sessions.add(self)
            self._connection, self._connection_pool = new_connection(pool, ask, step.connect_s), pool
        return self._connection

    async def _node_pool(self) -> Any:
        try:
            await _detachable(self._client.initialize(), _fetch_exception)
            if self._stale:
                await _detachable(self._client.nodes_manager.initialize(), _fetch_exception)
                self._stale = False
            return _node_pool(self._client, self._client.get_node_from_key(self._key))
        except REDIS_ERRORS as error:
            mark_unsent(error)
            raise


# redis-py connects with asyncio.wait_for, which before Python 3.12 swallows a cancellation that arrives in the same
# iteration of the event loop in which it ends: the caller would wait on. Python 3.11 counts the cancellations of a
# task, so a lost one is raised before the command is sent. In older versions redis-py's I/O runs in separate tasks, for
# which we wait with asyncio.wait: that never loses a cancellation.
COUNTS_CANCELLATIONS = sys.version_info >= (3, 11)


def _cancellations() -> int:
    """How many times the running task was cancelled."""
    task: Any = asyncio.current_task()
    count: int = task.cancelling() if COUNTS_CANCELLATIONS else 0
    return count


def _write(connection: Any, data: bytes) -> None:
    """Writes without redis-py, which would wait for the network here: the timeout of the reply covers the write too."""
    writer = connection._writer
    try:
        writer.writelines([data])
    except AttributeError as error:
        # The connection was reset before: in Python 3.12 and 3.13 writelines() does not check for that.
        raise ConnectionError("The connection has ended") from error


def _io(work: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
    """I/O on a connection that only this caller uses. A cancellation stops it before it is raised."""
    return work if COUNTS_CANCELLATIONS else _ended_with_caller(asyncio.ensure_future(work))


async def _ended_with_caller(task: "asyncio.Task[Any]") -> Any:
    try:
        await asyncio.wait([task])
    except GeneratorExit:
        task.cancel()
        raise
    except BaseException:
        await _cancelled(task)
        raise
    return task.result()


async def _cancelled(task: "asyncio.Task[Any]") -> None:
    """Ends the task. Cancels it in each iteration of the event loop, because one cancellation may be lost, and the task
    would then send its command after the cleanup. A cancellation of the caller is raised once the task has ended."""
    cancellation: Optional[asyncio.CancelledError] = None
    while not task.done():
        task.cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            cancellation = error
    _fetch_exception(task)
    if cancellation is not None:
        raise cancellation


def _detachable(work: Coroutine[Any, Any, Any], detached: "Callable[[asyncio.Task[Any]], Any]") -> Awaitable[Any]:
    """Work on a shared resource. A cancellation is raised at once; `detached` is called when the task has ended."""
    return work if COUNTS_CANCELLATIONS else _left_by_caller(asyncio.ensure_future(work), detached)


async def _left_by_caller(task: "asyncio.Task[Any]", detached: "Callable[[asyncio.Task[Any]], Any]") -> Any:
    try:
        await asyncio.wait([task])
    except BaseException:
        # Only once: a second cancellation could interrupt redis-py's own cleanup, and leak a connection.
        task.cancel()
        task.add_done_callback(detached)
        raise
    return task.result()


def _fetch_exception(task: "asyncio.Task[Any]") -> Any:
    """The exception. Without this call asyncio would log that it was never retrieved."""
    return None if task.cancelled() else task.exception()


def _return_to_pool(pool: Any, task: "asyncio.Task[Any]") -> None:
    if not task.cancelled() and _fetch_exception(task) is None:
        releasing = asyncio.ensure_future(pool.release(task.result()))
        _releasing.add(releasing)
        releasing.add_done_callback(_releasing.discard)


# Strong references, because the event loop only has weak ones.
_releasing: "Set[asyncio.Task[Any]]" = set()


class NodePool:
    """Gives a node of an asyncio cluster, which manages its own connections, the interface of a pool."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.max_connections: int = node.max_connections
        self.connection_class = node.connection_class
        self.connection_kwargs = node.connection_kwargs

    async def get_connection(self, *names: str) -> Any:
        connection = self.node.acquire_connection()
        try:
            await connection.connect()
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        # redis-py 6 added this method. Before that, the node appended to its list itself.
        if hasattr(self.node, "release"):
            self.node.release(connection)
        else:
            self.node._free.append(connection)


_cluster_socket_timeouts: "weakref.WeakKeyDictionary[Any, Tuple[Optional[float]]]" = weakref.WeakKeyDictionary()
_node_pools: "weakref.WeakKeyDictionary[Any, Dict[str, NodePool]]" = weakref.WeakKeyDictionary()


def _node_pool(client: Any, node: Any) -> NodePool:
    """One pool per node of the client. Nodes cannot be weakly referenced, and are replaced when the slots change."""
    pools = _node_pools.setdefault(client, {})
    pool = pools.get(node.name)
    if pool is None or pool.node is not node:
        pool = pools[node.name] = NodePool(node)
    return pool


_sessions: "weakref.WeakSet[Transport]" = weakref.WeakSet()


def _leave_sessions_to_the_parent() -> None:
    # A forked child inherits the socket, so without this the session would outlive the process that it belongs to.
    for transport in list(_sessions):
        transport.close_in_child()


os.register_at_fork(after_in_child=_leave_sessions_to_the_parent)
