"""When the body of `with` raises, its exception propagates, whatever the release does, without a long delay."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import subprocess
import sys
import time
import weakref
from typing import Any, Callable

import pytest
import redislock.asyncio
from apis import AsyncioApi
from servers import Proxy, Server, eventually, until
from test_conformance import background
from test_giving_up import KEPT_S


class Boom(Exception):
    pass


LOCK_TYPES = {
    "mutex": lambda locks, client, **options: locks.Lock(client, "k", timeout=60, **options),
    "reentrant": lambda locks, client, **options: locks.RLock(client, "k", timeout=60, **options),
    "read": lambda locks, client, **options: locks.RWLock(client, "k", timeout=60, **options).read(),
    "write": lambda locks, client, **options: locks.RWLock(client, "k", timeout=60, **options).write(),
    "semaphore": lambda locks, client, **options: locks.Semaphore(client, "k", 2, timeout=60, **options),
    "slot": lambda locks, client, **options: locks.Semaphore(client, "k", 2, timeout=60, slot=True, **options),
    "multi": lambda locks, client, **options: locks.MultiLock(client, ["k", "l"], timeout=60, **options),
}
OPTIONS = {"plain": {}, "session": {"session": True}, "auto_renew": {"auto_renew": True}}


async def raising(api: Any, lock: Any, inside: Callable[[], Any], error: BaseException) -> float:
    """Raises the error under the lock and expects exactly that object; returns how many seconds leaving `with` took."""
    began = 0.0

    def ends() -> None:
        nonlocal began
        inside()
        began = time.monotonic()

    def in_thread() -> None:
        with lock:
            ends()
            raise error

    async def in_task() -> None:
        async with lock:
            ends()
            raise error

    try:
        await (asyncio.to_thread(in_thread) if api.name == "sync" else in_task())
    except BaseException as caught:
        assert caught is error, caught
        return time.monotonic() - began
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("lock_type", LOCK_TYPES)
async def test_the_lock_is_free_after_an_error(api: Any, server: Server, lock_type: str, option: str) -> None:
    lock = LOCK_TYPES[lock_type](api.locks, api.client(server.port), **OPTIONS[option])
    await raising(api, lock, lambda: None, Boom())
    assert server.info("k") is None and server.info("l") is None
    assert lock.grant is None and not lock.lost
    await eventually(lambda: background(api) == 0, "no thread or task left")


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("lock_type", LOCK_TYPES)
async def test_the_error_stays_on_a_silent_network(api: Any, server: Server, lock_type: str, option: str) -> None:
    async with Proxy(server.port) as proxy:
        lock = LOCK_TYPES[lock_type](api.locks, api.client(proxy.port), **OPTIONS[option])
        assert await raising(api, lock, proxy.silence, Boom()) < KEPT_S
        assert server.info("k")
        proxy.speak()
        await eventually(lambda: server.info("k") is None and server.info("l") is None, "the release")
        await eventually(lambda: background(api) == 0, "no thread or task left")


@pytest.mark.parametrize("lease", [("PERSIST",), ("PX", 600_000)], ids=["no deadline", "longer"])
async def test_the_release_is_repeated_for_as_long_as_the_server_may_hold_it(
    api: Any, server: Server, lease: Any
) -> None:
    server.ask("RLOCK.ACQUIRE", "k", "mine", "HOLDS", 1, *lease)
    lock = api.locks.RLock.from_token(api.client(server.port), "k", "mine", timeout=0.5)
    try:
        await raising(api, lock, lambda: server.ask("CONFIG", "SET", "min-replicas-to-write", 1), Boom())
        # Longer than the lease of this object.
        await asyncio.sleep(1.5)
    finally:
        server.ask("CONFIG", "SET", "min-replicas-to-write", 0)
    await eventually(lambda: server.holders("k")[0]["holds"] == 1, "the release of the inner hold")
    await eventually(lambda: background(api) == 0, "no thread or task left")


@pytest.mark.parametrize("option", OPTIONS)
async def test_the_error_stays_when_the_server_is_gone(api: Any, option: str) -> None:
    server = Server()
    try:
        lock = api.locks.Lock(api.client(server.port), "k", timeout=3, **OPTIONS[option])
        error = SystemExit(3)
        assert await raising(api, lock, server.process.kill, error) < KEPT_S
        # Until the lease expires.
        await eventually(lambda: background(api) == 0, "no thread or task left")
    finally:
        server.stop()


async def test_a_cancelled_body_stays_cancelled(server: Server) -> None:
    api = AsyncioApi()
    try:
        async with Proxy(server.port) as proxy:
            lock = redislock.asyncio.Lock(api.client(proxy.port), "k", timeout=60)

            async def body() -> None:
                async with lock:
                    proxy.silence()
                    await asyncio.sleep(60)

            began = time.monotonic()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(body(), 0.5)
            assert time.monotonic() - began < 0.5 + KEPT_S
            proxy.speak()
            await eventually(lambda: server.info("k") is None, "the release")
    finally:
        await api.end()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup is newer")
async def test_a_task_group_gets_no_further_error(server: Server) -> None:
    api = AsyncioApi()
    try:
        async with Proxy(server.port) as proxy:
            client = api.client(proxy.port)
            held = asyncio.Event()

            async def holds() -> None:
                async with redislock.asyncio.Lock(client, "k", timeout=60):
                    held.set()
                    await asyncio.sleep(60)

            async def fails() -> None:
                await held.wait()
                proxy.silence()
                raise Boom

            with pytest.raises(BaseException) as group:
                async with asyncio.TaskGroup() as tasks:  # type: ignore[attr-defined]
                    tasks.create_task(holds())
                    tasks.create_task(fails())
            assert [type(error) for error in group.value.exceptions] == [Boom]
            proxy.speak()
            await eventually(lambda: server.info("k") is None, "the release")
    finally:
        await api.end()


async def test_a_loss_under_an_error_is_reported(api: Any, server: Server, caplog: Any) -> None:
    reported: Any = []
    lock = api.locks.Lock(api.client(server.port), "k", timeout=60, on_lost=reported.append)
    with caplog.at_level(logging.WARNING, "redislock"):
        await raising(api, lock, lambda: server.ask("LOCK.BREAK", "k"), Boom())
    await eventually(lambda: reported, "on_lost")
    assert "lost before it was released" in caplog.text and len(reported) == 1 and reported[0].fence > 0


async def test_a_loss_by_the_local_clock_is_reported_under_an_error(api: Any, server: Server, caplog: Any) -> None:
    lock = api.locks.Lock(api.client(server.port), "k", timeout=0.4)

    def outlives_its_lease() -> None:
        server.ask("PEXPIRE", "k", 60_000)
        until(lambda: lock.lost, "the loss")

    with caplog.at_level(logging.WARNING, "redislock"):
        await raising(api, lock, outlives_its_lease, Boom())
    await eventually(lambda: "lost before it was released" in caplog.text, "the warning")
    assert server.info("k") is None


async def test_an_inner_hold_that_ends_by_an_error_leaves_the_outer_one(api: Any, server: Server) -> None:
    lock = api.locks.RLock(api.client(server.port), "k", timeout=60, thread_local=False)
    actor = api.actor()
    assert await actor.do(lock.acquire)
    await raising(api, lock, lambda: None, Boom())
    assert [holder["holds"] for holder in server.holders("k")] == [1]
    await actor.do(lock.release)
    assert server.info("k") is None


@pytest.mark.parametrize("lock_type", ["reentrant", "read", "semaphore"])
async def test_an_inner_release_after_the_outer_one_reports_no_loss(
    api: Any, server: Server, lock_type: str, caplog: Any
) -> None:
    reported: Any = []
    async with Proxy(server.port) as proxy:
        options = {"thread_local": False, "on_lost": reported.append}
        lock, actor = LOCK_TYPES[lock_type](api.locks, api.client(proxy.port), **options), api.actor()
        assert await actor.do(lock.acquire)
        # The inner one stops waiting for it.
        await raising(api, lock, lambda: proxy.delay_request(b".RELEASE"), Boom())
        with caplog.at_level(logging.WARNING, "redislock"):
            await actor.do(lock.release)
            assert server.info("k") is None
            proxy.deliver()
            await eventually(lambda: background(api) == 0, "the end of the inner release")
    assert not reported and "lost" not in caplog.text


async def test_all_of_several_keys_are_free_even_if_one_became_something_else(api: Any, server: Server) -> None:
    lock = LOCK_TYPES["multi"](api.locks, api.client(server.port))
    await raising(api, lock, lambda: server.ask("SET", "l", "a string"), Boom())
    await eventually(lambda: server.info("k") is None, "the release of the other key")
    assert server.ask("GET", "l") == "a string"


async def test_a_lock_released_in_the_body_leaves_its_error(api: Any, server: Server) -> None:
    lock = api.locks.Lock(api.client(server.port), "k", timeout=60, thread_local=False)
    error = Boom()

    def in_thread() -> None:
        with lock:
            lock.release()
            raise error

    async def in_task() -> None:
        async with lock:
            await lock.release()
            raise error

    with pytest.raises(Boom) as raised:
        await (asyncio.to_thread(in_thread) if api.name == "sync" else in_task())
    assert raised.value is error


async def test_no_error_of_a_body_is_kept(api: Any, server: Server) -> None:
    client = api.client(server.port)
    errors = []
    for number in range(20):
        error = Boom(number)
        errors.append(weakref.ref(error))
        await raising(api, api.locks.Lock(client, "k", timeout=60), lambda: None, error)
        del error
    await eventually(lambda: background(api) == 0, "no thread or task left")
    until = time.monotonic() + 20
    while any(kept() is not None for kept in errors) and time.monotonic() < until:
        # Each thread of the executor keeps its last call.
        await asyncio.to_thread(int)
        gc.collect()
    assert sum(kept() is not None for kept in errors) == 0


async def discarded_when_it_waits_for(held: Any, coroutine: Any) -> None:
    waits = coroutine.send(None)
    while waits is not held:
        try:
            await asyncio.wait([waits])
        except asyncio.CancelledError as timed_out:
            # By asyncio.timeout in the coroutine with which redis-py 5.0 checks a connection of the pool.
            waits = coroutine.throw(timed_out)
        else:
            waits = coroutine.send(None)
    coroutine.close()


async def test_a_coroutine_that_is_discarded_under_the_lock_releases_it(server: Server) -> None:
    api = AsyncioApi()
    try:
        lock = redislock.asyncio.Lock(api.client(server.port), "k", timeout=60)
        held = asyncio.get_running_loop().create_future()

        async def body() -> None:
            async with lock:
                await held

        await discarded_when_it_waits_for(held, body())
        await eventually(lambda: server.info("k") is None, "the release")
    finally:
        await api.end()


async def test_a_generator_that_is_closed_has_released_its_lock(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        lock = api.locks.Lock(api.client(proxy.port), "k", timeout=60)

        def items() -> Any:
            with lock:
                yield 1

        async def async_items() -> Any:
            async with lock:
                yield 1

        def in_thread() -> Any:
            for _ in items():
                break
            return server.info("k")

        async def in_task() -> Any:
            each = async_items()
            async for _ in each:
                break
            await each.aclose()
            return server.info("k")

        # Delayed, so that a release in the background would come too late.
        proxy.delay_request(b"LOCK.RELEASE")
        left = asyncio.ensure_future(asyncio.to_thread(in_thread) if api.name == "sync" else in_task())
        await eventually(lambda: proxy.delays, "the release")
        proxy.deliver()
        assert await left is None


AT_EXIT = """
import sys, redis, redislock
lock = redislock.Lock(redis.Redis(port=int(sys.argv[1])), "k", timeout=60)
def items():
    with lock:
        yield "held"
left = items()
print(next(left), flush=True)
"""


def test_a_generator_that_the_end_of_the_interpreter_closes_does_not_keep_it(server: Server) -> None:
    """The interpreter is partly shut down then: the lock is released if that is still possible."""
    words = [sys.executable, "-c", AT_EXIT, str(server.port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (said, process.returncode) == ("held\n", 0) and "Traceback" not in errors


async def test_a_coroutine_that_is_discarded_in_a_context_of_a_generator_releases_its_lock(server: Server) -> None:
    api = AsyncioApi()
    try:
        lock = redislock.asyncio.Lock(api.client(server.port), "k", timeout=60)
        held = asyncio.get_running_loop().create_future()

        @contextlib.asynccontextmanager
        async def locked() -> Any:
            async with lock:
                yield

        async def body() -> None:
            async with locked():
                await held

        await discarded_when_it_waits_for(held, body())
        await eventually(lambda: server.info("k") is None, "the release")
    finally:
        await api.end()


@pytest.mark.parametrize("option", ["plain", "session"])
async def test_once_keeps_the_error_of_make(api: Any, server: Server, option: str) -> None:
    async with Proxy(server.port) as proxy:
        client, error = api.client(proxy.port), Boom()
        began = 0.0

        def ends() -> None:
            nonlocal began
            proxy.silence()
            began = time.monotonic()
            raise error

        async def make() -> None:
            ends()

        async def read() -> None:
            return None

        options = {"timeout": 60, **OPTIONS[option]}
        with pytest.raises(Boom) as raised:
            if api.name == "sync":
                await asyncio.to_thread(api.locks.once, client, "k", lambda: None, ends, **options)
            else:
                await api.locks.once(client, "k", read, make, **options)
        assert raised.value is error and time.monotonic() - began < KEPT_S
        proxy.speak()
        await eventually(lambda: server.info("k") is None, "the release")
