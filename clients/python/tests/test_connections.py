"""How the client uses redis-py's connections: limited pools, sockets without a timeout, forks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
import redis
import redis.asyncio
import redislock
import redislock.asyncio
from redis.backoff import NoBackoff
from redislock._protocol import SLICE_S, slice_of
from redislock._tokens import Tokens
from servers import Proxy, Server, eventually, until


def test_a_request_of_a_wait_ends_before_the_socket_times_out() -> None:
    assert slice_of(None) == SLICE_S
    for timeout in (0.05, 0.5, 0.99, 1, 1.5, 2, 5, 30, 600):
        assert 0 < slice_of(timeout) <= timeout * 3 / 4
        assert timeout < 2 or slice_of(timeout) <= timeout - 0.5


def test_a_token_is_short_and_new(monkeypatch: Any) -> None:
    monkeypatch.setattr("redislock._tokens._host", lambda: "a-host-with-a-name-that-is-far-too-long.example.org")
    monkeypatch.setattr("redislock._tokens._tokens", Tokens())
    token = redislock.make_token()
    assert len(token) <= 38 and token.startswith("a-host-with") and token.split(":")[1] == str(os.getpid())
    assert len({redislock.make_token() for _ in range(1000)}) == 1000


def test_a_forked_child_makes_tokens_of_its_own() -> None:
    redislock.make_token()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, redislock.make_token().encode())
        os._exit(0)
    os.waitpid(child, 0)
    # The process id differs in any case.
    assert os.read(reader, 100).split(b":")[2] != redislock.make_token().encode().split(b":")[2]
    os.close(reader)
    os.close(writer)


async def test_waiters_leave_connections_for_the_release(api: Any, server: Server) -> None:
    if api.name == "sync":
        pool: Any = redis.BlockingConnectionPool(max_connections=2, timeout=0.2, port=server.port)
    else:
        pool = redis.asyncio.ConnectionPool(max_connections=2, port=server.port)
    client = api.closes(api.redis(connection_pool=pool))
    holder, actors = api.actor(), [api.actor() for _ in range(6)]
    lock = api.locks.Lock(client, "k", timeout=60)
    assert await holder.do(lock.acquire)
    locks = [api.locks.Lock(client, "k", timeout=60) for _ in actors]
    turns = [actor.start(each.acquire) for actor, each in zip(actors, locks)]
    await eventually(lambda: len(server.waiters("k")) == 6, "six waiters")
    await holder.do(lock.release)
    while turns:
        done, _ = await asyncio.wait(turns, return_when=asyncio.FIRST_COMPLETED)
        for turn in done:
            assert await turn
            index = turns.index(turn)
            await actors[index].do(locks[index].release)
            del turns[index], actors[index], locks[index]
    await pool.disconnect() if api.name == "asyncio" else pool.disconnect()


async def test_a_request_is_repeated_if_its_reply_never_comes(api: Any, server: Server, monkeypatch: Any) -> None:
    monkeypatch.setattr("redislock._protocol.SLICE_S", 0.5)
    monkeypatch.setattr("redislock._protocol.REPLY_MARGIN_S", 0.5)
    for timeout in (1, None):
        async with Proxy(server.port) as proxy:
            client, actor = api.client(proxy.port, socket_timeout=timeout), api.actor()
            lock = api.locks.Lock(client, "k", timeout=60)
            await actor.do(lock.locked)
            proxy.hold_reply(b"LOCK.ACQUIRE")
            assert await actor.do(lock.acquire)
            assert proxy.held == 1 and len(server.holders("k")) == 1
            await actor.do(lock.release)
            if timeout is not None:
                proxy.hold_reply(b"LOCK.ACQUIRE")
                assert await actor.do(lock.acquire, blocking=False)
                assert proxy.held == 2
                await actor.do(lock.release)


async def test_an_unreachable_server_ends_the_wait_in_time(api: Any) -> None:
    stopped = Server()
    stopped.stop()
    client, actor = api.client(stopped.port, retry=api.retry(NoBackoff(), 0)), api.actor()
    for named in ({"blocking": False}, {"blocking_timeout": 0.2}):
        with pytest.raises(redis.ConnectionError):
            await actor.do(api.locks.Lock(client, "k", timeout=1).acquire, **named)


async def test_a_server_that_comes_back_grants_the_waiter(api: Any) -> None:
    first = Server()
    client, holder, waiter = api.client(first.port), api.actor(), api.actor()
    lock, other = api.locks.Lock(client, "k", timeout=60), api.locks.Lock(client, "k", timeout=60)
    await holder.do(lock.acquire)
    waiting = waiter.start(other.acquire)
    await eventually(lambda: first.waiters("k"), "a waiter")
    first.stop()
    second = Server(port=first.port)
    try:
        assert await waiting
        await waiter.do(other.release)
    finally:
        second.stop()


def test_one_object_serves_many_threads(server: Server) -> None:
    lock = redislock.Lock(redis.Redis(port=server.port), "k", timeout=60)
    inside, most, rounds = [0], [0], [0]

    def work() -> None:
        for _ in range(20):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                rounds[0] += 1
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] and rounds == [160] and server.info("k") is None


def test_a_session_that_is_released_while_it_is_checked_fails_nothing(server: Server, caplog: Any) -> None:
    # The cleanup after an earlier test may still log about its own lock, which has another name.
    lock = redislock.Lock(redis.Redis(port=server.port), "checked", timeout=60, session=True)
    assert lock.acquire()
    connection = lock.local.hold.session_transport._connection
    reading, checked = threading.Event(), threading.Event()

    def slow(timeout: float) -> Any:
        buffer = connection._parser._buffer
        reading.set()
        until(lambda: connection._sock is None, "the end of the connection")
        try:
            # Runs after redis-py has checked its buffer and before it reads from the socket.
            return buffer.can_read(timeout)
        finally:
            checked.set()

    connection.can_read = slow
    assert reading.wait(60)
    lock.release()
    assert checked.wait(60)
    until(lambda: not any(thread.name.startswith("redislock") for thread in threading.enumerate()), "its thread's end")
    assert not [each for each in caplog.records if each.name != "redislock" or "checked" in each.getMessage()]


def test_a_forked_child_leaves_the_session_to_its_parent(server: Server) -> None:
    lock = redislock.Lock(redis.Redis(port=server.port), "k", timeout=2, session=True)
    assert lock.acquire()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    try:
        session = server.holders("k")[0]["session"]
        until(lambda: server.holders("k")[0]["age"] > 2500, "a session that outlives its lease")
        assert not lock.lost
        # The parent's socket is closed; the child's copy must not keep the session alive.
        lock.local.hold.session_transport._connection._sock.close()
        until(lambda: not any(int(each["id"]) == session for each in server.admin.client_list()), "its end")
        assert server.info("k") is None
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


async def test_a_forked_child_leaves_the_asyncio_session_to_its_parent(server: Server) -> None:
    client = redis.asyncio.Redis(port=server.port)
    lock = redislock.asyncio.Lock(client, "k", timeout=2, session=True)
    assert await lock.acquire()
    session = server.holders("k")[0]["session"]
    transport = lock.local.hold.session_transport
    sock = transport._connection._writer.get_extra_info("socket")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        # The number stays in use, by another file: the event loop, which the child has too, may close it again.
        left = transport._connection is None and os.path.samestat(os.fstat(sock.fileno()), os.stat(os.devnull))
        os.read(read, 1)
        os._exit(0 if left else 1)
    status = None
    try:
        await eventually(lambda: server.holders("k")[0]["age"] > 2500, "a session that outlives its lease")
        assert not lock.lost
        # The parent's socket is closed; the child's copy must not keep the session alive.
        transport._connection._writer.transport.abort()
        clients = server.admin.client_list
        await eventually(lambda: not any(int(each["id"]) == session for each in clients()), "its end")
        assert server.info("k") is None
        await eventually(lambda: lock.lost, "the loss")
    finally:
        os.write(write, b"x")
        status = os.waitpid(child, 0)[1]
        os.close(read)
        os.close(write)
        await client.connection_pool.disconnect()
    assert status == 0


FORKS_WHILE_A_SESSION_WAITS = {
    "sync": """
import os, sys, threading, redis, redislock
lock = redislock.Lock(redis.Redis(port=int(sys.argv[1])), "k", timeout=600, session=True)
threading.Thread(target=lock.acquire, daemon=True).start()
os.read(0, 1)
os.fork()
os.write(1, b"x")
os.read(0, 1)
os._exit(0)
""",
    "asyncio": """
import asyncio, os, sys, redis.asyncio, redislock.asyncio
async def main():
    lock = redislock.asyncio.Lock(redis.asyncio.Redis(port=int(sys.argv[1])), "k", timeout=600, session=True)
    waiting = asyncio.ensure_future(lock.acquire())
    await asyncio.to_thread(os.read, 0, 1)
    os.fork()
    os.write(1, b"x")
    os.read(0, 1)
    os._exit(0)
asyncio.run(main())
""",
}


@pytest.mark.parametrize("kind", FORKS_WHILE_A_SESSION_WAITS)
def test_a_child_that_is_forked_during_a_wait_leaves_the_session_to_its_parent(server: Server, kind: str) -> None:
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    words = [sys.executable, "-c", FORKS_WHILE_A_SESSION_WAITS[kind], str(server.port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as parent:
        assert parent.stdin and parent.stdout
        until(lambda: server.waiters("k"), "a waiter")
        parent.stdin.write(b"x")
        for _ in range(2):
            assert parent.stdout.read(1) == b"x"
        # Its request ends with it, although its child lives.
        parent.kill()
        parent.wait()
        server.ask("LOCK.RELEASE", "k", "somebody")
        until(lambda: server.info("k") is None, "the end of the session")


class Swallowing(redis.asyncio.Connection):
    """A cancellation and the timeout of connecting come at the same moment, and only the timeout is raised."""

    connects = 0

    async def connect(self, *args: Any, **named: Any) -> None:
        Swallowing.connects += 1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise redis.TimeoutError("Timeout connecting to server") from None


async def test_a_cancellation_that_is_lost_while_connecting_ends_the_acquire() -> None:
    client = redis.asyncio.Redis(connection_pool=redis.asyncio.ConnectionPool(connection_class=Swallowing))
    acquiring = asyncio.ensure_future(redislock.asyncio.Lock(client, "k", timeout=60).acquire())
    await eventually(lambda: Swallowing.connects == 1, "an attempt")
    acquiring.cancel()
    done, _ = await asyncio.wait([acquiring], timeout=10)
    assert done and acquiring.cancelled()


async def test_a_release_whose_reply_is_late_is_no_loss(api: Any, server: Server) -> None:
    reported: Any = []
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port, socket_timeout=1), api.actor()
        lock = api.locks.Lock(client, "k", timeout=0.6, auto_renew=True, on_lost=reported.append)
        await actor.do(lock.acquire)
        proxy.hold_reply(b"LOCK.RELEASE")
        # A renewal in that second would find no hold, and report a loss.
        await actor.do(lock.release)
        assert proxy.held == 1 and server.info("k") is None and not reported
