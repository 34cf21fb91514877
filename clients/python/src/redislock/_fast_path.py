"""What redis-py does for every command, for less client CPU: it takes a connection from the pool, packs the command and
parses a short reply. These parts took 16, 6 and 8 of the 93 µs of a pair more in redis-py 8.1 than here (Python 3.11,
November 2026). asyncio uses only `packed`.

Connecting, closing, TLS, credentials and Sentinel stay redis-py's, and so does every unusual case: a pool of another
class, a connection that is closed or has data to read, an error reply, a push, a reply in two packets. The connections
stay in redis-py's pool, which counts them as in use meanwhile. Only its metrics, if they are on, show them as idle.
"""

from __future__ import annotations

import os
import select
import socket
from typing import Any, Optional, Tuple

import redis
from redis.exceptions import ConnectionError, TimeoutError

from ._steps import Command

try:
    from redis._parsers.socket import SocketBuffer
except ImportError:
    SocketBuffer = None  # type: ignore[assignment, misc]

# The reply was not read: redis-py reads it.
UNREAD: Any = object()
# The replies to acquire, renew and release are shorter.
MOST_BYTES = 512
# Not on Windows, nor with eventlet.
HAS_POLL = hasattr(select, "poll")
CRLF = b"\r\n"
# What is used below of redis-py and is not part of its documented API: a version without it keeps its own way.
OF_POOL = ("_available_connections", "_in_use_connections", "_lock", "pid", "owns_connection")
OF_CONNECTION = ("_sock", "_parser", "socket_timeout")


def _is_known() -> bool:
    kind: Any = redis.Connection
    connection = kind()
    return SocketBuffer is not None and all(hasattr(connection, name) for name in OF_CONNECTION)


IS_KNOWN = _is_known()


def serves(pool: Any) -> bool:
    """True if the pool is redis-py's own, not that of asyncio, and nothing else needs to know which of its connections
    are in use."""
    kind = type(pool)
    return (
        IS_KNOWN
        and issubclass(kind, redis.ConnectionPool)
        and all(hasattr(pool, name) for name in OF_POOL)
        and kind.get_connection is redis.ConnectionPool.get_connection
        and kind.release is redis.ConnectionPool.release
        # A connection with a cache is a proxy.
        and getattr(pool, "cache", None) is None
        # redis-py sends new credentials over a connection when it is put back.
        and not pool.connection_kwargs.get("credential_provider")
        and not pool.connection_kwargs.get("event_dispatcher")
    )


def check_out(pool: Any) -> Any:
    """A connection that is open and has nothing to read; None: ask the pool."""
    if pool.pid != _pid:
        # A forked child: the pool drops the connections of the parent.
        return None
    with pool._lock:
        if not pool._available_connections:
            return None
        connection = pool._available_connections.pop()
        pool._in_use_connections.add(connection)
    is_usable = False
    try:
        is_usable = connection._sock is not None and not _has_data(connection)
    except (ConnectionError, TimeoutError, OSError):
        pass
    finally:
        if not is_usable:
            # The pool opens it again. With maintenance notifications, which are redis-py's default since version 8, the
            # pool itself would leave the data there.
            connection.disconnect()
            pool.release(connection)
    return connection if is_usable else None


def _has_data(connection: Any) -> bool:
    """True if the server has closed the connection, or its last user left before the reply: that must not become the
    reply to our command."""
    sock, buffer = connection._sock, getattr(connection._parser, "_buffer", None)
    # Readable TLS data may be a record without a reply.
    if type(sock) is not socket.socket or not isinstance(buffer, SocketBuffer) or not HAS_POLL:
        # redis-py changes the socket's mode twice and catches an exception: 5 µs per pair more than poll().
        return bool(connection.can_read(timeout=0))
    readable = select.poll()
    readable.register(sock, select.POLLIN)
    return bool(readable.poll(0)) or buffer.unread_bytes() > 0


def check_in(pool: Any, connection: Any) -> None:
    if pool.pid == _pid:
        with pool._lock:
            # A Sentinel's pool owns no connection to an earlier primary. Older versions of redis-py mark none.
            is_fit = pool.owns_connection(connection) and not getattr(connection, "_should_reconnect", False)
            if is_fit and connection in pool._in_use_connections:
                pool._in_use_connections.remove(connection)
                pool._available_connections.append(connection)
                return
    pool.release(connection)


def packed(encoder: Any, command: Command) -> bytes:
    """The command as redis-py packs it. hiredis, which redis-py uses for that if it is installed, aborts the process if
    a signal handler raises while it converts a number."""
    # As one string that is encoded once, which takes half the time of bytes. Latin-1 has a character for each byte.
    text = f"*{len(command)}\r\n"
    for word in command:
        # Exact types: a subclass may behave in another way.
        if type(word) is bytes:
            written = word.decode("latin-1")
        elif type(word) is int:
            written = str(word)
        elif type(word) is str and word.isascii():
            written = word
        else:
            written = bytes(encoder.encode(word)).decode("latin-1")
        text += f"${len(written)}\r\n{written}\r\n"
    return text.encode("latin-1")


def read(connection: Any, count: int, within_s: Optional[float]) -> Any:
    """The replies if they are short, complete, and of numbers, strings and nulls. Otherwise UNREAD: they are still to
    be read.

    The parser must be empty, as it is after `check_out`.
    """
    sock, timeout_s = connection._sock, connection.socket_timeout
    # An SSLSocket refuses MSG_PEEK.
    if type(sock) is not socket.socket:
        return UNREAD
    try:
        if within_s != timeout_s:
            sock.settimeout(within_s)
        try:
            data = sock.recv(MOST_BYTES, socket.MSG_PEEK)
        finally:
            if within_s != timeout_s:
                sock.settimeout(timeout_s)
        replies, at = [], 0
        for _ in range(count):
            reply, at = _parsed(data, at)
            replies.append(reply)
    except socket.timeout as error:
        raise TimeoutError(f"No reply within {within_s:.3f} s") from error
    except (OSError, ValueError, IndexError):
        return UNREAD
    if at != len(data):
        return UNREAD
    sock.recv(at)
    return replies


def _parsed(data: bytes, at: int) -> Tuple[Any, int]:
    """The reply at this position, and the position after it. Raises ValueError or IndexError for what UNREAD is for."""
    kind, end = data[at : at + 1], data.index(CRLF, at)
    head, after = data[at + 1 : end], end + 2
    if kind == b":":
        return int(head), after
    if kind == b"+":
        return head, after
    if kind == b"_" or (head == b"-1" and kind in (b"$", b"*")):
        return None, after
    if kind == b"$":
        end = after + int(head)
        if data[end : end + 2] != CRLF:
            raise ValueError("incomplete")
        return data[after:end], end + 2
    if kind != b"*":
        raise ValueError("an error, or a type of RESP3")
    elements = []
    for _ in range(int(head)):
        element, after = _parsed(data, after)
        elements.append(element)
    return elements, after


def decoded(encoder: Any, reply: Any) -> Any:
    """The reply as the client decodes it."""
    return [decoded(encoder, each) for each in reply] if isinstance(reply, list) else encoder.decode(reply)


_pid = os.getpid()


def _new_pid() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_new_pid)
