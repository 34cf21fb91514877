"""`run`: lock, command and release in one packet; what happens when replies or connections are lost."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Any, List

import pytest
import redislock
from redis.exceptions import ConnectionError, LockError, LockNotOwnedError, ResponseError
from servers import Proxy, Server, eventually


def one_of_each(api: Any, client: Any) -> List[Any]:
    locks = api.locks
    rw = locks.RWLock(client, "rw", timeout=30)
    return [
        locks.Lock(client, "k"),
        locks.RLock(client, "r", timeout=30),
        rw.read(),
        rw.write(),
        locks.Semaphore(client, "s", 3, permits=2),
        locks.MultiLock(client, ["a", "b"]),
        locks.Lock(client, "k", timeout=30, session=True),
    ]


async def test_run(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port, decode_responses=True), api.actor()
        for number, lock in enumerate(one_of_each(api, client), 1):
            assert await actor.do(lock.run, "INCR", "n") == number
            # One packet: the acquire, the command, the release.
            packet = proxy.packets.pop()
            assert not proxy.packets and all(word in packet for word in (b".ACQUIRE", b"INCR", b".RELEASE"))
            assert server.admin.keys() == ["n"] and await actor.do(lambda: lock.grant) is None
            assert (b"SESSION" in packet) == lock.session
        lock = api.locks.Lock(client, "k", timeout=30)
        await actor.do(lock.run, "HSET", "h", "f", "1")
        assert await actor.do(lock.run, "HGETALL", "h") == {"f": "1"}
        assert await actor.do(lock.run, b"GET", "none") is None
        # The command's own error, including its own WRONGTYPE.
        for command, words in ((("INCR", "h"), "WRONGTYPE"), (("NOSUCH",), "unknown command")):
            with pytest.raises(ResponseError, match=words):
                await actor.do(lock.run, *command)
            assert server.info("k") is None


async def test_run_waits_its_turn_or_says_that_it_was_not_granted(api: Any, server: Server) -> None:
    client, holder, waiter = api.client(server.port), api.actor(), api.actor()
    lock, other = (api.locks.Lock(client, "k", timeout=30, tell_holder=True) for _ in range(2))
    await holder.do(lock.acquire)
    for options in ({"blocking": False}, {"blocking_timeout": 0.3}):
        with pytest.raises(api.locks.HeldError) as refused:
            await waiter.do(other.run, "INCR", "n", **options)
        assert refused.value.holder == await holder.do(lambda: lock.grant.token)
    running = waiter.start(other.run, "INCR", "n", blocking_timeout=30)
    await eventually(lambda: server.waiters("k"), "a waiter")
    assert server.admin.get("n") is None
    await holder.do(lock.release)
    assert await running == 1 and server.info("k") is None
    # A wait of several requests is one wait.
    slow = api.locks.Lock(api.client(server.port, socket_timeout=1.2), "k", timeout=30)
    await holder.do(lock.acquire)
    running = waiter.start(slow.run, "INCR", "n")
    await eventually(lambda: server.waiters("k"), "a waiter")
    asked = server.calls("lock.acquire")
    if not api_is_shared(api):
        await eventually(lambda: server.calls("lock.acquire") >= asked + 3, "three slices more")
    await holder.do(lock.release)
    assert await running == 2 and server.info("k") is None


def api_is_shared(api: Any) -> bool:
    return type(api).__name__ == "SharedApi"


async def test_run_reports_that_the_lock_was_lost(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        lock = api.locks.Lock(client, "k", timeout=30)
        # The packet arrives in two parts, and the lock is broken between them.
        proxy.split_request(b"LOCK.EXEC")
        running = actor.start(lock.run, "INCR", "n")
        await eventually(lambda: server.holders("k"), "the grant")
        server.ask("LOCK.BREAK", "k")
        proxy.deliver()
        with pytest.raises(LockNotOwnedError):
            await running
        assert server.admin.get("n") is None
        # The key has become something else.
        proxy._delayed.clear()
        proxy.split_request(b"LOCK.EXEC")
        running = actor.start(lock.run, "INCR", "n")
        await eventually(lambda: server.holders("k"), "the grant")
        server.admin.set("k", "something else")
        proxy.deliver()
        with pytest.raises(LockNotOwnedError):
            await running
        assert server.admin.get("n") is None


# Before any reply, within that of the acquire, within that of the command: ":1\r\n" of the release follows it.
@pytest.mark.parametrize("after", [0, 3, -5])
async def test_run_sends_no_command_twice(api: Any, server: Server, after: int) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        for number, lock in enumerate(one_of_each(api, client), 1):
            proxy.cut_reply(b"LOCK.EXEC", after)
            with pytest.raises(ConnectionError):
                await actor.do(lock.run, "INCR", "n")
            assert proxy.cuts == number and server.admin.get("n") == str(number)
            await eventually(lambda: server.admin.keys() == ["n"], "the end of the hold")


async def test_run_returns_its_reply_if_only_the_release_has_none(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        for number, lock in enumerate(one_of_each(api, client), 1):
            proxy.cut_reply(b"LOCK.EXEC", -1)
            assert await actor.do(lock.run, "INCR", "n") == number
            assert proxy.cuts == number
            await eventually(lambda: server.admin.keys() == ["n"], "the end of the hold")


async def test_a_release_that_does_not_arrive_is_repeated(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        lock = api.locks.Lock(client, "k", timeout=600)
        proxy.split_request(b"LOCK.RELEASE")
        running = actor.start(lock.run, "INCR", "n")
        await eventually(lambda: any(b"\r\n:1\r\n" in reply for reply in proxy.replies), "the command's reply")
        assert server.holders("k") and not running.done()
        proxy.disconnect()
        assert await running == 1
        await eventually(lambda: server.info("k") is None, "the end of the hold")


async def test_run_waits_in_the_queue_during_the_grace(api: Any) -> None:
    server = Server("--lock.grace", "1500")
    try:
        client, actor = api.client(server.port), api.actor()
        running = actor.start(api.locks.Lock(client, "k", timeout=30).run, "INCR", "n")
        await eventually(lambda: server.waiters("k"), "a waiter")
        assert await running == 1
        assert server.calls("lock.acquire") <= 3
    finally:
        server.stop()


@pytest.mark.parametrize("session", [False, True])
async def test_a_packet_that_arrives_in_part_leaves_nothing(api: Any, server: Server, session: bool) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        lock = api.locks.Lock(client, "k", timeout=600, session=session)
        proxy.split_request(b"LOCK.EXEC")
        running = actor.start(lock.run, "INCR", "n")
        await eventually(lambda: server.holders("k"), "the grant")
        if session:
            # Only the server can release it; no client can.
            server.ask("ACL", "SETUSER", "default", "-lock.release")
        try:
            if session:
                server.ask("CLIENT", "KILL", "ID", server.holders("k")[0]["session"])
            else:
                proxy.disconnect()
            with pytest.raises(ConnectionError):
                await running
            await eventually(lambda: server.info("k") is None, "the end of the hold")
        finally:
            server.ask("ACL", "SETUSER", "default", "+lock.release")
        assert server.admin.get("n") is None


async def test_a_connection_that_ends_while_run_waits(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, holder, waiter = api.client(server.port), api.actor(), api.actor()
        # In RESP3 the asyncio pool of redis-py 8 returns a connection that has ended meanwhile.
        proxied = api.client(proxy.port, protocol=2)
        lock, other = api.locks.Lock(client, "k", timeout=30), api.locks.Lock(proxied, "k", timeout=30)
        await holder.do(lock.acquire)
        running = waiter.start(other.run, "INCR", "n")
        await eventually(lambda: server.waiters("k"), "a waiter")
        proxy.disconnect()
        if api_is_shared(api):
            # The command was not sent yet: the wait continues.
            await eventually(lambda: server.calls("lock.acquire") >= 4, "the request again")
            await holder.do(lock.release)
            assert await running == 1
            return
        with pytest.raises(ConnectionError):
            await running
        assert server.waiters("k") == []
        await holder.do(lock.release)
        assert server.info("k") is None and server.admin.get("n") is None


async def test_a_cancelled_run_leaves_nothing(api: Any, server: Server) -> None:
    client, holder = api.client(server.port), api.actor()
    lock = api.locks.Lock(client, "k", timeout=600)
    await holder.do(lock.acquire)
    if api.name == "sync":
        # A shell that runs the tests in the background has them ignore SIGINT.
        program = "import signal, sys, redis, redislock\n"
        program += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        program += "client = redis.Redis(port=int(sys.argv[1]))\n"
        program += "try: redislock.Lock(client, 'k', timeout=600).run('INCR', 'n')\n"
        program += "except KeyboardInterrupt: print(flush=True), sys.stdin.read()"
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(server.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        await eventually(lambda: server.waiters("k"), "a waiter")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        await asyncio.get_running_loop().run_in_executor(None, process.stdout.readline)
        await eventually(lambda: not server.waiters("k"), "the withdrawal")
    else:
        task = asyncio.ensure_future(api.locks.Lock(client, "k", timeout=600).run("INCR", "n"))
        await eventually(lambda: server.waiters("k"), "a waiter")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert server.waiters("k") == []
    await holder.do(lock.release)
    assert server.info("k") is None and server.admin.get("n") is None
    if api.name == "sync":
        process.communicate()


async def test_run_refuses_options_that_do_not_apply(api: Any, server: Server) -> None:
    client, actor, locks = api.client(server.port), api.actor(), api.locks
    for lock in (
        locks.Lock(client, "k", timeout=30, token="mine"),
        locks.Lock(client, "k", timeout=30, at_least=1),
        locks.Lock(client, "k", timeout=30, replicas=1),
        locks.Semaphore(client, "k", 3, slot=True),
    ):
        with pytest.raises(ValueError, match="run cannot be combined"):
            await actor.do(lock.run, "INCR", "n")
    with pytest.raises(ValueError, match="a command"):
        await actor.do(locks.Lock(client, "k").run)
    # It would wait for its own hold.
    reentrant, rw = locks.RLock(client, "r"), locks.RWLock(client, "rw")
    await actor.do(reentrant.acquire)
    await actor.do(rw.read().acquire)
    for lock in (reentrant, rw.write()):
        with pytest.raises(LockError, match="use exec"):
            await actor.do(lock.run, "INCR", "n")
    assert server.admin.get("n") is None
    # Without a deadline a process that dies would leave the lock held indefinitely.
    async with Proxy(server.port) as proxy:
        assert await actor.do(locks.Lock(api.client(proxy.port), "k").run, "PTTL", "k") > 29_000
        assert b"PERSIST" not in proxy.packets[0]


async def test_run_next_to_old_clients(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.Lock(client, "k", timeout=30, mixed=True, sleep=0.02)
    server.admin.set("k", "an old client's")
    with pytest.raises(LockError):
        await actor.do(lock.run, "INCR", "n", blocking_timeout=0.1)
    running = actor.start(lock.run, "INCR", "n")
    asked = server.calls("lock.acquire")
    await eventually(lambda: server.calls("lock.acquire") > asked + 2, "some polls")
    server.admin.delete("k")
    assert await running == 1


async def test_run_is_observed(api: Any, server: Server) -> None:
    client, actor, other = api.client(server.port), api.actor(), api.actor()
    reported: List[Any] = []
    redislock.observe(client, reported.append)
    lock = api.locks.Lock(client, "k", timeout=30)
    await actor.do(lock.run, "INCR", "n")
    assert [each.event for each in reported] == ["granted", "released"]
    assert reported[0].fence and reported[0].fence == reported[1].fence and reported[0].owner == reported[1].owner
    assert reported[0].wait is not None and reported[1].hold is not None
    await actor.do(lock.acquire)
    reported.clear()
    with pytest.raises(LockError):
        await other.do(api.locks.Lock(client, "k", timeout=30).run, "INCR", "n", blocking_timeout=0.3)
    assert [each.event for each in reported] == ["queued", "not_granted"]


async def test_run_repeats_what_was_refused_after_the_grant(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        proxy.split_request(b"LOCK.EXEC")
        running = actor.start(api.locks.Lock(client, "k", timeout=30).run, "INCR", "n")
        await eventually(lambda: server.holders("k"), "the grant")
        server.ask("CONFIG", "SET", "min-replicas-to-write", 1)
        try:
            proxy.deliver()
            await eventually(lambda: server.calls("lock.acquire") > 1 or refusals(server) > 3, "the packet again")
        finally:
            server.ask("CONFIG", "SET", "min-replicas-to-write", 0)
        # The command did not run: the packet was sent again.
        assert await running == 1 and server.info("k") is None


def refusals(server: Server) -> int:
    # Old redis-py does not parse these figures.
    stats: Any = server.admin.info("errorstats").get("errorstat_NOREPLICAS", "count=0")
    return int(stats["count"] if isinstance(stats, dict) else stats.removeprefix("count="))
