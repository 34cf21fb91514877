"""Sends the commands of one lock over a connection of the client's pool, in a cluster of the pool of the node that has
the key's slot, or over a dedicated connection."""

from __future__ import annotations

import codecs
import os
import weakref
from typing import Any, List, Optional

import redis
from redis.exceptions import AskError, ConnectionError, MovedError, ResponseError, TimeoutError

from .. import _fast_path as fast_path
from .._cleanups import Cleanups, cleanups_of
from .._connections import GET_CONNECTION_ARGS, PoolState, is_cluster, new_connection, pool_state
from .._replies import REDIS_ERRORS, check_node, mark_unsent
from .._steps import Argument, Behind, Send

# Import it now: `socket.getaddrinfo` imports this codec at the first connect, and if a signal handler raises during an
# import, the import lock may stay locked and hang other threads.
codecs.lookup("idna")


class Transport:
    """Must not be used by two threads at once. `own`: use one connection for all commands."""

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
        return pool_state(self._a_client().connection_pool).socket_timeout_s

    def cleanups(self) -> Cleanups:
        return cleanups_of(self._client)

    def pin(self) -> None:
        """From here on the connection is never replaced: a session ends with it, and WAIT covers only its writes."""
        self._pinned = True

    def is_closed(self) -> bool:
        """True if the dedicated connection has ended, or has unexpected data to read."""
        try:
            return self._connection is None or bool(self._connection.can_read(timeout=0))
        except (redis.RedisError, OSError, ValueError):
            # ValueError: a release has closed it in the meantime.
            self.close()
            return True

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def send(self, step: Send) -> Any:
        if self._own:
            connection = self._own_connection(step)
            return self._send_over(connection, pool_state(self._connection_pool), step, self._asking)
        pool = self._node_pool() if self._cluster else self._client.connection_pool
        state = pool_state(pool)
        if self._ask is not None or state.failing:
            return self._send_on_new_connection(pool, state, step)
        if not state.proven:
            self._prove(pool, state, step.connect_s)
        if not step.waits:
            return self._send_pooled(pool, state, step)
        if not state.begin_wait():
            return self._send_on_new_connection(pool, state, step)
        try:
            return self._send_pooled(pool, state, step)
        finally:
            state.end_wait()

    def _prove(self, pool: Any, state: PoolState, connect_s: float) -> None:
        """Finds out in one attempt whether the pool could connect, and raises the error if not."""
        connection = new_connection(pool, None, connect_s)
        try:
            connection.connect()
        except BaseException as error:
            mark_unsent(error)
            self._discard(connection, state)
            raise
        state.proven = True
        connection.disconnect()

    def _send_pooled(self, pool: Any, state: PoolState, step: Send) -> Any:
        is_fast = False
        try:
            connection = fast_path.check_out(pool) if state.has_fast_path else None
            is_fast = connection is not None
            connection = connection or pool.get_connection(*GET_CONNECTION_ARGS)
        except BaseException as error:
            mark_unsent(error)
            self._stale = True
            if not isinstance(error, REDIS_ERRORS):
                _drop_idle(pool)
            if "Too many connections" in str(error):
                return self._send_on_new_connection(pool, state, step)
            state.fail()
            raise
        is_read = False
        try:
            reply = self._exchange(connection, state, step, is_fast=is_fast)
            is_read = True
            return reply
        except ResponseError:
            is_read = True
            raise
        finally:
            # A signal may have ended _exchange before it could disconnect. The next command would then read this
            # reply.
            if not is_read:
                connection.disconnect()
            if is_fast:
                fast_path.check_in(pool, connection)
            else:
                pool.release(connection)

    def _send_on_new_connection(self, pool: Any, state: PoolState, step: Send) -> Any:
        ask, self._ask = self._ask, None
        connection = new_connection(pool, ask, step.connect_s)
        try:
            return self._send_over(connection, state, step, asking=ask is not None)
        finally:
            connection.disconnect()

    def _send_over(self, connection: Any, state: PoolState, step: Send, asking: bool) -> Any:
        """Sends over a connection outside the pool, which may not be connected yet."""
        try:
            connection.connect()
            if asking and not step.behind:
                connection.send_command("ASKING", check_health=False)
                connection.read_response()
        except BaseException as error:
            mark_unsent(error)
            self._discard(connection, state)
            raise
        return self._exchange(connection, state, step, asking)

    def _exchange(
        self, connection: Any, state: PoolState, step: Send, asking: bool = False, is_fast: bool = False
    ) -> Any:
        pooled = connection
        # With client-side caching the connection is a proxy, which would serve EXISTS and TYPE from its cache.
        connection = getattr(connection, "_conn", connection)
        try:
            if step.behind:
                return self._packet(connection, pooled, state, step, asking, is_fast)
            packed = fast_path.packed(connection.encoder, step.command)
            # A health check may reconnect under the client's own `retry`, so only EXEC, which has no limit, gets one.
            connection.send_packed_command([packed], check_health=step.within_s is None)
            read = fast_path.read(connection, 1, state.reply_s(step.within_s)) if is_fast else fast_path.UNREAD
            if read is fast_path.UNREAD:
                reply = self._reply(connection, state, step.within_s, step.reply_to)
            else:
                reply = self._decoded(connection, step.reply_to, read[0])
        except ResponseError as error:
            self._note(error)
            raise
        except BaseException:
            # The reply may still arrive, or was read in part, so the connection must not be used again.
            self._discard(pooled, state)
            raise
        state.failing = False
        return reply

    def _packet(self, connection: Any, pooled: Any, state: PoolState, step: Send, asking: bool, is_fast: bool) -> Any:
        packet = [Behind(step.command, step.within_s, step.reply_to), *step.behind]
        before = [("ASKING",)] if asking else []
        commands = [command for each in packet for command in (*before, each.command)]
        packed = b"".join(fast_path.packed(connection.encoder, command) for command in commands)
        connection.send_packed_command([packed], check_health=False)
        read = fast_path.UNREAD
        if is_fast:
            read = fast_path.read(connection, len(commands), state.reply_s(step.within_s))
        if read is not fast_path.UNREAD:
            state.failing = False
            return [self._decoded(connection, each.reply_to, reply) for each, reply in zip(packet, read)]
        replies: List[Any] = []
        try:
            for each in packet:
                try:
                    if asking:
                        self._reply(connection, state, each.within_s, None)
                    replies.append(self._reply(connection, state, each.within_s, each.reply_to))
                except ResponseError as error:
                    replies.append(error)
        except REDIS_ERRORS as error:
            if not replies:
                raise
            self._discard(pooled, state)
            return replies + [error] * (len(packet) - len(replies))
        state.failing = False
        # Only the first: an ASK of a later one concerns its own keys, and the next packet starts with the lock again.
        self._note(replies[0])
        return replies

    def _reply(self, connection: Any, state: PoolState, within_s: Optional[float], reply_to: Optional[str]) -> Any:
        reply_s = state.reply_s(within_s)
        # The socket's timeout may still be that for connecting. If it is right already, do not set it again: that would
        # cost two system calls for each reply.
        if reply_s != connection.socket_timeout and not connection.can_read(timeout=reply_s):
            raise TimeoutError(f"No reply within {reply_s:.3f} s")
        reply = connection.read_response(disable_decoding=reply_to is None)
        return reply if reply_to is None else self._called_back(reply_to, reply)

    def _note(self, error: Any) -> None:
        """Takes from an error reply where to send the next command."""
        if not self._cluster:
            check_node(error)
        if isinstance(error, MovedError):
            self._stale = True
            if self._own and not self._pinned:
                self.close()
        elif isinstance(error, AskError):
            self._ask = error

    def _discard(self, connection: Any, state: PoolState) -> None:
        self._stale = True
        state.fail()
        connection.disconnect()
        if connection is self._connection:
            self._connection = None

    def _decoded(self, connection: Any, command: Optional[str], reply: Any) -> Any:
        return reply if command is None else self._called_back(command, fast_path.decoded(connection.encoder, reply))

    def _called_back(self, command: str, reply: Any) -> Any:
        callback = self._a_client().response_callbacks.get(command)
        return reply if callback is None else callback(reply)

    def _a_client(self) -> Any:
        """The client; in a cluster the client of any node, because all have the same options."""
        return self._client.get_redis_connection(self._client.get_default_node()) if self._cluster else self._client

    def _own_connection(self, step: Send) -> Any:
        if self._pinned:
            if self._connection is None:
                raise ConnectionError("The connection of the lock has ended")
            return self._connection
        pool = self._node_pool() if self._cluster else self._client.connection_pool
        if self._connection is None or self._connection_pool is not pool or self._ask is not None:
            self.close()
            ask, self._ask = self._ask, None
            self._asking = ask is not None
            # Now, because a child may be forked while the request waits.
            _sessions.add(self)
            self._connection, self._connection_pool = new_connection(pool, ask, step.connect_s), pool
        return self._connection

    def _node_pool(self) -> Any:
        try:
            if self._stale:
                self._client.nodes_manager.initialize()
                self._stale = False
            node = self._client.get_node_from_key(self._key)
            return self._client.get_redis_connection(node).connection_pool
        except REDIS_ERRORS as error:
            mark_unsent(error)
            raise


def _drop_idle(pool: Any) -> None:
    """Closes idle connections after a signal that may have interrupted the handshake of one: redis-py returns it to the
    pool, where the next command would read the reply to HELLO."""
    try:
        pool.disconnect(inuse_connections=False)
    except TypeError:
        # BlockingConnectionPool does not have this argument.
        pool.disconnect()


_sessions: "weakref.WeakSet[Transport]" = weakref.WeakSet()


def _leave_sessions_to_the_parent() -> None:
    # A forked child inherits the socket, so without this the session would outlive the process that it belongs to.
    for transport in list(_sessions):
        transport.close()


os.register_at_fork(after_in_child=_leave_sessions_to_the_parent)
