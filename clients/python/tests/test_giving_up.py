"""On a silent network each call ends in time, and a withdrawal reaches the server when the network is back."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from typing import Any, AsyncIterator

import pytest
import redislock
import redislock.asyncio
from apis import AsyncioApi
from redis.exceptions import NoPermissionError, RedisError
from redislock._cleanups import FEW, Cleanups
from redislock._steps import CONNECT_S, Background, Join, Pause, Spawn
from redislock._sync._driver import run
from test_conformance import background
from servers import Proxy, Server, eventually, fields

# The README guarantees that a caller that cancels is delayed by at most a second. Plus an allowance for a busy machine.
KEPT_S = 1.0 + 1.0
# An acquire returns within the caller's time limit, one attempt (a second) and that second.
LATE_S = 2.0 + 1.0

WORKER = """
import signal, sys, redis, redislock
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
# As celery's SoftTimeLimitExceeded: an ordinary exception, which comes from no call of the client.
class TimeLimit(Exception): pass
def exceeded(*_): raise TimeLimit
signal.signal(signal.SIGUSR1, exceeded)
lock = redislock.Lock(redis.Redis(port=int(sys.argv[1])), "k", timeout=60)
try:
    if sys.argv[2] == "release":
        lock.acquire()
        print("holds", flush=True)
        sys.stdin.readline()
        lock.release()
    else:
        lock.acquire()
except BaseException as error:
    print(type(error).__name__, flush=True)
    sys.stdin.read()
"""


@contextlib.asynccontextmanager
async def worker(port: int, doing: str) -> AsyncIterator[Any]:
    words = [sys.executable, "-c", WORKER, str(port), doing]
    process = await asyncio.create_subprocess_exec(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
async def test_a_signal_ends_a_wait_on_a_silent_network(server: Server, signal_number: int) -> None:
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    async with Proxy(server.port) as proxy, worker(proxy.port, "acquire") as process:
        await eventually(lambda: server.waiters("k"), "a waiter")
        proxy.silence()
        began = time.monotonic()
        process.send_signal(signal_number)
        said = await process.stdout.readline()
        raised = {signal.SIGINT: b"KeyboardInterrupt", signal.SIGTERM: b"SystemExit", signal.SIGUSR1: b"TimeLimit"}
        assert said.strip() == raised[signal_number] and time.monotonic() - began < KEPT_S
        # The process goes on, and so does its withdrawal: it arrives when the network is back.
        assert server.waiters("k")
        proxy.speak()
        await eventually(lambda: not server.waiters("k") and server.calls("lock.release"), "the withdrawal")
        assert server.calls("lock.cancel") == 1


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGUSR1])
async def test_a_signal_ends_a_release_on_a_silent_network(server: Server, signal_number: int) -> None:
    async with Proxy(server.port) as proxy, worker(proxy.port, "release") as process:
        assert await process.stdout.readline() == b"holds\n"
        proxy.silence()
        process.stdin.write(b"\n")
        # Nothing shows that the release has been sent; a signal that arrives earlier does no harm.
        await asyncio.sleep(0.3)
        began = time.monotonic()
        process.send_signal(signal_number)
        said = await process.stdout.readline()
        assert said.strip() in (b"KeyboardInterrupt", b"TimeLimit") and time.monotonic() - began < KEPT_S
        assert server.info("k")
        proxy.speak()
        await eventually(lambda: server.info("k") is None, "the release")
        await eventually(lambda: server.calls("lock.release") >= 2, "the release behind the caller")


async def test_a_cancelled_task_returns_on_a_silent_network(server: Server) -> None:
    api = AsyncioApi()
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    try:
        async with Proxy(server.port) as proxy:
            lock = redislock.asyncio.Lock(api.client(proxy.port), "k", timeout=60)
            waiting = asyncio.ensure_future(lock.acquire())
            await eventually(lambda: server.waiters("k"), "a waiter")
            proxy.silence()
            began = time.monotonic()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert time.monotonic() - began < KEPT_S and server.waiters("k")
            proxy.speak()
            await eventually(lambda: not server.waiters("k") and server.calls("lock.release"), "the withdrawal")
            # A cancelled release continues in the same way.
            server.ask("LOCK.RELEASE", "k", "somebody")
            assert await lock.acquire()
            proxy.silence()
            releasing = asyncio.ensure_future(lock.release())
            await asyncio.sleep(0.05)
            began = time.monotonic()
            releasing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await releasing
            assert time.monotonic() - began < KEPT_S and server.info("k")
            proxy.speak()
            await eventually(lambda: server.info("k") is None, "the release")
    finally:
        await api.end()


@pytest.mark.parametrize("cancelled", ["before the grant arrives", "after the grant"])
async def test_a_reader_keeps_read_when_its_upgrade_is_cancelled(server: Server, cancelled: str) -> None:
    api = AsyncioApi()
    reported: Any = []
    try:
        async with Proxy(server.port) as proxy:
            lock = redislock.asyncio.RWLock(api.client(proxy.port), "rw", timeout=60, on_lost=reported.append)

            async def upgrading() -> None:
                async with lock.read():
                    fence = lock.read().fence
                    with pytest.raises(asyncio.CancelledError):
                        await lock.write().acquire()
                    # The upgrade keeps its fence.
                    [holder] = server.holders("rw")
                    assert holder["mode"] == "read" and holder["fence"] == lock.read().fence > fence
                    assert lock.write().grant is None and await lock.read().owned()
                    assert await lock.read().acquire(blocking=False) and lock.read().grant.holds == 2
                    await lock.read().release()

            if cancelled == "before the grant arrives":
                proxy.hold_reply(b"WRITE")
            else:
                lock.write().replicas, lock.write().replica_timeout = 1, 60_000
            task = asyncio.ensure_future(upgrading())
            await eventually(lambda: proxy.held or server.admin.info("clients")["blocked_clients"], "the grant")
            task.cancel()
            await task
            assert server.info("rw") is None and not reported

            # READ that is lost is not kept.
            async def losing() -> None:
                await lock.read().acquire()
                with pytest.raises(asyncio.CancelledError):
                    await lock.write().acquire()
                assert lock.read().lost and len(reported) == 1
                with pytest.raises(redislock.LockNotOwnedError):
                    await lock.read().release()

            held = proxy.held
            proxy.hold_reply(b"WRITE")
            task = asyncio.ensure_future(losing())
            await eventually(lambda: proxy.held > held, "the grant")
            server.ask("LOCK.BREAK", "rw")
            task.cancel()
            await task
    finally:
        await api.end()


async def test_a_grant_without_its_deadline_is_released(api: Any, server: Server) -> None:
    server.ask("ACL", "SETUSER", "clerk", "on", "nopass", "~*", "&*", "+@all", "-lock.held")
    try:
        client, actor = api.client(server.port, username="clerk", password="any"), api.actor()
        server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
        lock = api.locks.Lock(client, "k", timeout=10)
        waiting = actor.start(lock.acquire)
        await eventually(lambda: server.waiters("k"), "a waiter")
        await eventually(lambda: fields(server.ask("LOCK.WAITERS", "k")[0])["waited"] > 1100, "a tenth of the lease")
        server.ask("LOCK.RELEASE", "k", "somebody")
        with pytest.raises(NoPermissionError):
            await waiting
        assert server.info("k") is None and await actor.do(lambda: lock.grant) is None
    finally:
        server.ask("ACL", "DELUSER", "clerk")


async def granted_meanwhile(server: Server, proxy: Proxy, acquiring: Any) -> None:
    """A lock acquired while the cleanup in the background is held at the proxy, and still held after it."""
    await eventually(lambda: proxy.delays == 1, "the cleanup, at the proxy")
    released = server.calls("lock.release")
    await asyncio.wait([acquiring], timeout=0.3)
    proxy.deliver()
    assert await acquiring
    await eventually(lambda: server.calls("lock.release") > released, "the cleanup")
    assert [holder["owner"] for holder in server.holders("k")] == ["mine"]


@pytest.mark.parametrize("object", ["same", "new"])
@pytest.mark.parametrize("what", ["cancel", "cancel twice", "wait_for", "cancel a release", "cancel the end of with"])
async def test_what_was_cancelled_takes_nothing_from_the_next_acquire_of_its_token(
    server: Server, monkeypatch: Any, what: str, object: str
) -> None:
    monkeypatch.setattr("redislock._protocol.CLEANUP_S", 0.1)
    api = AsyncioApi()
    try:
        async with Proxy(server.port) as proxy:
            client = api.client(proxy.port)
            lock = redislock.asyncio.Lock(client, "k", timeout=60, token="mine")
            again = lock if object == "same" else redislock.asyncio.Lock(client, "k", timeout=60, token="mine")
            if what in ("cancel a release", "cancel the end of with"):
                assert await lock.acquire()
                # The server runs it, and the cleanup for it comes late.
                proxy.hold_reply(b"LOCK.RELEASE")
                ends = lock.release() if what == "cancel a release" else lock.__aexit__(None, None, None)
                ending = asyncio.ensure_future(ends)
                await eventually(lambda: server.info("k") is None, "the release")
                proxy.delay_request(b"LOCK.RELEASE")
                ending.cancel()
            else:
                server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
                waits = lock.acquire() if what != "wait_for" else asyncio.wait_for(lock.acquire(), 0.5)
                ending = asyncio.ensure_future(waits)
                await eventually(lambda: server.waiters("k"), "a waiter")
                proxy.delay_request(b"LOCK.RELEASE" if what != "cancel twice" else b"LOCK.CANCEL")
                if what != "wait_for":
                    ending.cancel()
            if what == "cancel twice":
                await eventually(lambda: proxy.delays, "the cleanup")
                ending.cancel()
            with pytest.raises((asyncio.CancelledError, asyncio.TimeoutError)):
                await ending
            server.ask("LOCK.RELEASE", "k", "somebody")
            await granted_meanwhile(server, proxy, asyncio.ensure_future(again.acquire()))
    finally:
        await api.end()


@pytest.mark.parametrize("object", ["same", "new"])
async def test_what_ran_out_of_time_takes_nothing_from_the_next_acquire_of_its_token(
    api: Any, server: Server, monkeypatch: Any, object: str
) -> None:
    monkeypatch.setattr("redislock._protocol.CLEANUP_S", 0.1)
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        lock = api.locks.Lock(client, "k", timeout=60, token="mine")
        again = lock if object == "same" else api.locks.Lock(client, "k", timeout=60, token="mine")
        proxy.hold_reply(b"LOCK.ACQUIRE")
        proxy.delay_request(b"LOCK.RELEASE")
        with pytest.raises(RedisError):
            await actor.do(lock.acquire, blocking_timeout=0.2)
        # Without waiting, "not granted" would be wrong.
        if object == "new":
            monkeypatch.setattr("redislock._protocol.RESEND_S", 0.1)
            with pytest.raises(RedisError):
                await actor.do(again.acquire, blocking=False)
        await granted_meanwhile(server, proxy, actor.start(again.acquire))


@pytest.mark.parametrize("silent", ["before", "while it waits"])
async def test_an_acquire_returns_in_time_on_a_silent_network(api: Any, server: Server, silent: str) -> None:
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        lock = api.locks.Lock(client, "k", timeout=60)
        warm = api.locks.Lock(client, "warm", timeout=60)
        await actor.do(warm.acquire)
        await actor.do(warm.release)
        if silent == "before":
            proxy.silence()
        began = time.monotonic()
        waiting = actor.start(lock.acquire, blocking_timeout=1.5)
        if silent != "before":
            await eventually(lambda: server.waiters("k"), "a waiter")
            proxy.silence()
        with pytest.raises(RedisError):
            await waiting
        assert 1.5 <= time.monotonic() - began < 1.5 + LATE_S
        proxy.speak()
        await eventually(lambda: not server.waiters("k"), "an empty queue")
        await eventually(lambda: background(api) == 0, "no thread or task left")


async def test_every_call_ends_in_time_on_a_silent_network(api: Any, server: Server, monkeypatch: Any) -> None:
    # Without them the same takes longer: two attempts of 5 s, a release 10 s.
    monkeypatch.setattr("redislock._protocol.REPLY_MARGIN_S", 0.5)
    monkeypatch.setattr("redislock._protocol.RESEND_S", 0.1)
    monkeypatch.setattr("redislock._protocol.RELEASE_S", 0.1)
    # One attempt over the pool's connection, one that connects, and the cleanup.
    twice_s = 0.5 + CONNECT_S + LATE_S - 1
    in_time_s = 0.5 + LATE_S
    calls = {
        "at once": ({}, {"blocking": False}, twice_s),
        "no time": ({}, {"blocking_timeout": 0}, twice_s),
        "mixed": ({"mixed": True}, {"blocking_timeout": 0.5}, in_time_s),
        "session": ({"session": True}, {"blocking_timeout": 0.5}, in_time_s),
        "replicas": ({"replicas": 1}, {"blocking_timeout": 0.5}, in_time_s),
        "release": ({}, None, twice_s),
        "extend": ({}, None, twice_s),
    }
    async with Proxy(server.port) as proxy:

        async def prepared(name: str, options: Any, waits: Any) -> Any:
            # A separate pool, with a connection.
            lock, actor = api.locks.Lock(api.client(proxy.port), name, timeout=60, **options), api.actor()
            await actor.do(lock.locked if waits is not None else lock.acquire)
            return lock, actor

        async def timed(lock: Any, actor: Any, name: str, waits: Any, limit_s: float) -> None:
            began = time.monotonic()
            with pytest.raises(RedisError):
                if waits is not None:
                    await actor.do(lock.acquire, **waits)
                else:
                    await actor.do(*([lock.extend, 1] if name == "extend" else [lock.release]))
            assert time.monotonic() - began < limit_s, name
            if name == "release":
                # The connection of the pool was closed, and the pool does not open another one.
                began = time.monotonic()
                with pytest.raises(RedisError):
                    await actor.do(lock.locked)
                assert time.monotonic() - began < 2 * CONNECT_S + 1, "the next call"

        locks = {name: await prepared(name, options, waits) for name, (options, waits, _) in calls.items()}
        proxy.silence()
        timing = [timed(*locks[name], name, waits, limit_s) for name, (_, waits, limit_s) in calls.items()]
        await asyncio.gather(*timing)
        # When the network is back, nothing is left behind.
        proxy.speak()
        await eventually(lambda: set(server.admin.keys()) <= {"release", "extend"}, "no lock left")
        await eventually(lambda: background(api) == 0, "no thread or task left")
        assert await locks["extend"][1].do(locks["extend"][0].extend, 1)


async def test_a_connection_that_breaks_near_the_end_does_not_make_an_acquire_late(api: Any, server: Server) -> None:
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        lock = api.locks.Lock(client, "k", timeout=60)
        began = time.monotonic()
        waiting = actor.start(lock.acquire, blocking_timeout=1.5)
        await eventually(lambda: server.waiters("k"), "a waiter")
        await asyncio.sleep(max(0.0, began + 1.4 - time.monotonic()))
        # From here on every new connection is silent.
        proxy.silence()
        proxy.disconnect()
        # "Not granted" if a busy machine caused the trouble too late.
        with contextlib.suppress(RedisError):
            assert not await waiting
        assert 1.4 <= time.monotonic() - began < 1.5 + LATE_S
        proxy.speak()
        await eventually(lambda: not server.waiters("k"), "an empty queue")
        await eventually(lambda: background(api) == 0, "no thread or task left")


def test_an_interrupt_between_two_steps_is_an_interrupt_of_the_steps() -> None:
    seen = []

    def cleaning() -> Any:
        seen.append("cleaned up")
        return
        yield

    def steps() -> Any:
        try:
            while True:
                yield Pause(0)
        except KeyboardInterrupt:
            yield Join((yield Spawn(cleaning(), "cleanup")), 60)
            raise

    def local(frame: Any, event: str, argument: Any) -> Any:
        if event == "line" and seen == ["slept"]:
            seen.append("interrupted")
            raise KeyboardInterrupt
        return local

    # A signal may interrupt in the frame of `run` itself: a tracer does that here, at its first line after the pause.
    def first(frame: Any, event: str, argument: Any) -> Any:
        return local if frame.f_code is run.__code__ else None

    def asleep(seconds: float) -> None:
        if not seen:
            seen.append("slept")

    sys.settrace(first)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(steps(), asleep)
    finally:
        sys.settrace(None)
    assert seen == ["slept", "interrupted", "cleaned up"]


def test_ended_cleanups_are_forgotten() -> None:
    class Cleanup(Background):
        over = False

        def is_over(self) -> bool:
            return self.over

    cleanups, lasting = Cleanups(), Cleanup()
    cleanups.add(["k"], b"lasting", lasting)
    for number in range(1000):
        for token in (b"same", b"%d" % number):
            ended = Cleanup()
            ended.over = True
            cleanups.add(["k"], token, ended)
    assert sum(len(each) for each in cleanups._running.values()) <= FEW + 1
    assert cleanups.of(["k"], b"lasting") == [lasting] and cleanups.of(["other"], b"lasting") == []
