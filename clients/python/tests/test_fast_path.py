"""The usual command goes around redis-py's pool and parser: what is not usual must still reach them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Any, Iterator, List

import pytest
import redis
import redislock
from redis.connection import PythonRespSerializer
from redislock import _fast_path as fast_path
from redislock._connections import pool_state
from servers import Proxy, Server, until

ENCODER = redis.Connection().encoder


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    made = redis.Redis(port=server.port, socket_timeout=5)
    # Its pool has one open connection.
    assert made.ping()
    yield made
    made.close()


def pair(client: Any, name: str = "k") -> None:
    lock = redislock.Lock(client, name, timeout=60)
    assert lock.acquire() and lock.fence > 0
    lock.release()


def idle(client: Any) -> List[Any]:
    found: List[Any] = client.connection_pool._available_connections
    return found


@pytest.mark.parametrize(
    "command",
    [
        ("LOCK.ACQUIRE", "k", b"token", "PX", 30_000, "BLOCK", 3750),
        ("LOCK.ACQUIRE", "schlüssel", b"\xff\r\n\x00", "PX", -1),
        ("SET", memoryview(b"name"), 1.5, ""),
    ],
)
def test_a_command_is_packed_as_redis_py_packs_it(command: Any) -> None:
    theirs = b"".join(bytes(part) for part in PythonRespSerializer(6000, ENCODER.encode).pack(*command))
    assert fast_path.packed(ENCODER, command) == theirs


def test_what_redis_py_refuses_to_pack_is_refused() -> None:
    with pytest.raises(redis.DataError):
        fast_path.packed(ENCODER, ("SET", "k", True))


@pytest.mark.parametrize(
    "data, reply",
    [
        (b":1\r\n", 1),
        (b":-2\r\n", -2),
        (b"*-1\r\n", None),
        (b"_\r\n", None),
        (b"$-1\r\n", None),
        (b"+OK\r\n", b"OK"),
        (b"*2\r\n$4\r\n\r\n\r\n\r\n:17\r\n", [b"\r\n\r\n", 17]),
        (b"*2\r\n$-1\r\n:-1\r\n", [None, -1]),
    ],
)
def test_a_short_reply_is_read_once_it_is_complete(data: bytes, reply: Any) -> None:
    class Connection:
        socket_timeout = 5.0

    theirs, ours = socket.socketpair()
    connection: Any = Connection()
    connection._sock = ours
    with theirs, ours:
        ours.settimeout(5)
        for byte in range(len(data)):
            theirs.send(data[byte : byte + 1])
            read = fast_path.read(connection, 1, 5.0)
            assert read == [reply] if byte == len(data) - 1 else read is fast_path.UNREAD
        # More than the reply, or what is none of the usual ones, is left to redis-py.
        resp3 = (b">2\r\n:1\r\n:2\r\n", b"%0\r\n", b"#t\r\n", b",-1\r\n", b"(-1\r\n")
        for others in (data + b":2\r\n", b"-ERR no\r\n", *resp3):
            theirs.send(others)
            assert fast_path.read(connection, 1, 5.0) is fast_path.UNREAD
            assert ours.recv(100) == others
        with pytest.raises(redis.TimeoutError):
            fast_path.read(connection, 1, 0.01)
        assert ours.gettimeout() == 5
        theirs.close()
        assert fast_path.read(connection, 1, 5.0) is fast_path.UNREAD


def test_only_the_usual_pool_is_served() -> None:
    def serves(client: Any) -> bool:
        return fast_path.serves(client.connection_pool)

    class Pool(redis.ConnectionPool):
        def get_connection(self, *args: Any, **named: Any) -> Any:
            return super().get_connection(*args, **named)

    assert serves(redis.Redis())
    assert not serves(redis.Redis(credential_provider=redis.UsernamePasswordCredentialProvider("me")))
    assert not serves(redis.Redis(connection_pool=Pool()))
    assert not serves(redis.Redis(connection_pool=redis.BlockingConnectionPool()))
    assert not serves(redis.asyncio.Redis())
    # A version of redis-py that calls it something else.
    other = redis.Redis()
    del other.connection_pool._in_use_connections
    assert not serves(other)


def test_a_connection_stays_in_the_books_of_the_pool(server: Server, client: redis.Redis) -> None:
    pool: Any = client.connection_pool
    assert pool_state(pool).has_fast_path
    (connection,) = idle(client)
    taken = fast_path.check_out(pool)
    assert taken is connection and not idle(client) and pool._in_use_connections == {connection}
    assert fast_path.check_out(pool) is None
    fast_path.check_in(pool, connection)
    for _ in range(20):
        pair(client)
    assert idle(client) == [connection] and not pool._in_use_connections and connection._sock


def test_an_idle_connection_that_the_server_closed_is_replaced(
    server: Server, client: redis.Redis, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG, "redislock")
    pair(client)
    connection: Any = idle(client)[0]
    sock = connection._sock
    number = client.client_id()
    server.admin.client_kill_filter(_id=number)
    until(lambda: not server.ask("CLIENT", "LIST", "ID", number), "the end of the connection")
    pair(client)
    assert idle(client) == [connection] and connection._sock is not sock
    # Nothing failed, so nothing was sent again.
    assert not pool_state(client.connection_pool).failing
    assert not [record for record in caplog.records if "retrying" in record.message]


def test_a_reply_that_nobody_read_is_not_ours(server: Server, client: redis.Redis) -> None:
    pool: Any = client.connection_pool
    for unread in (1, 2):
        connection = fast_path.check_out(pool)
        server.admin.set("text", "value")
        # As a caller that an exception ended: its reply is in the socket, or of two the second one in the parser.
        connection.send_packed_command([fast_path.packed(ENCODER, ("GET", "text")) * unread])
        until(lambda: fast_path._has_data(connection), "a reply")
        if unread == 2:
            assert connection.read_response() == b"value"
            until(lambda: fast_path._has_data(connection), "the second reply")
        fast_path.check_in(pool, connection)
        pair(client)
        lock = redislock.Lock(client, "k", timeout=60)
        with lock:
            assert lock.exec("ECHO", "word") == b"word"
        assert len(idle(client)) == 1 and not pool._in_use_connections


def test_a_closed_client_connects_again(server: Server, client: redis.Redis) -> None:
    pair(client)
    client.close()
    pair(client)
    lock = redislock.Lock(client, "k", timeout=60)
    assert lock.acquire()
    client.close()
    lock.release()
    assert server.info("k") is None


def test_a_forked_child_does_not_use_the_connection_of_its_parent(server: Server, client: redis.Redis) -> None:
    pair(client)
    mine = idle(client)[0]
    number = client.client_id()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert fast_path.check_out(client.connection_pool) is None
            pair(client, "child")
            assert mine not in idle(client) and client.client_id() != number
            # Its own ones it uses.
            assert fast_path.check_out(client.connection_pool) is not None
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    pair(client)
    assert idle(client) == [mine] and client.client_id() == number


def test_a_connection_that_the_pool_gives_up_is_not_put_back(server: Server, client: redis.Redis) -> None:
    pool: Any = client.connection_pool
    connection = fast_path.check_out(pool)
    # As a Sentinel's pool after a failover: the connection leads to the earlier primary.
    pool.owns_connection = lambda _: False
    fast_path.check_in(pool, connection)
    assert not idle(client) and not pool._in_use_connections and connection._sock is None
    del pool.owns_connection
    pair(client)
    if hasattr(connection, "mark_for_reconnect"):
        connection = fast_path.check_out(pool)
        connection.mark_for_reconnect()
        fast_path.check_in(pool, connection)
        assert connection._sock is None
        pair(client)


class Splitting(Proxy):
    """Each reply comes in two packets."""

    async def _replies(self, server: asyncio.StreamReader, writer: asyncio.StreamWriter, fate: Any) -> None:
        while reply := await server.read(65536):
            for part in (reply[: len(reply) // 2], reply[len(reply) // 2 :]):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_reply_in_two_packets_is_read_by_redis_py(server: Server, protocol: int) -> None:
    async with Splitting(server.port) as proxy:
        client = redis.Redis(port=proxy.port, protocol=protocol, socket_timeout=5)

        def work() -> None:
            for _ in range(5):
                pair(client)
                assert redislock.Lock(client, "run", timeout=60).run("ECHO", "word") == b"word"

        await asyncio.to_thread(work)
        client.close()


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("timeout", [None, 5])
def test_run_decodes_as_the_client_does(server: Server, protocol: int, timeout: Any) -> None:
    for decodes in (False, True):
        client = redis.Redis(port=server.port, protocol=protocol, socket_timeout=timeout, decode_responses=decodes)
        client.rpush("list", "a", "ö")
        lock = redislock.Lock(client, "k", timeout=60)
        client.zadd("scores", {"m": -1})
        reads = (["LRANGE", "list", 0, -1], ["ZSCORE", "scores", "m"], ["ZSCORE", "scores", "none"], ["GET", "none"])
        for command in (*reads, ["SET", "x", "ö"], ["GET", "x"], ["INCR", "n"]):
            client.delete("n")
            expected = client.execute_command(*command)
            client.delete("n")
            assert lock.run(*command) == expected, command
            client.delete("n")
            with lock:
                assert lock.exec(*command) == expected, command
        client.flushall()
        client.close()
