"""`at_least`: a lock that stays held for this many seconds from its grant, however soon it is released."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest
import redislock.asyncio
from apis import AsyncioApi
from redis.exceptions import LockError, LockNotOwnedError
from redislock import NotReplicatedError
from redislock._lock_types import Mutex
from redislock._hold import clock
from redislock._protocol import Release
from servers import Proxy, Server, eventually
from test_conformance import background


async def test_a_time_that_the_server_refuses_is_refused_before_the_work(api: Any, server: Server) -> None:
    server.admin.config_set("lock.max-lease", 60_000)
    try:
        client = api.client(server.port)
        locks = [
            api.locks.Lock(client, "k", timeout=30, at_least=61),
            api.locks.RLock(client, "r", timeout=30, at_least=61),
            api.locks.RWLock(client, "rw", timeout=30, at_least=10**400).write(),
            api.locks.Semaphore(client, "s", 2, timeout=30, at_least=61),
            api.locks.MultiLock(client, ["a", "b"], timeout=30, at_least=61, auto_renew=True),
        ]
        if api.name == "asyncio":
            locks.append(api.locks.Lock(client, "k", timeout=30, at_least=61, shared=True))
        for lock in locks:
            with pytest.raises(LockError, match="rejected at_least.*max-lease"):
                await api.actor().do(lock.acquire, blocking_timeout=20)
        assert not server.admin.keys()
        # Up to the limit it is accepted; a key that is not a lock is an error of the acquire itself.
        lock, actor = api.locks.Lock(client, "k", timeout=30, at_least=60), api.actor()
        assert await actor.do(lock.acquire)
        await actor.do(lock.release)
        assert 50_000 < server.holders("k")[0]["ttl"] <= 60_000
        server.admin.set("string", "x")
        with pytest.raises(api.locks.WrongTypeError):
            await actor.do(api.locks.Lock(client, "string", timeout=30, at_least=60).acquire)
    finally:
        server.admin.config_set("lock.max-lease", 31_536_000_000)


async def test_renewals_end_with_the_release_and_the_end_of_the_rest_is_no_loss(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    reported: Any = []
    lock = api.locks.Lock(client, "k", timeout=0.6, at_least=1.5, auto_renew=True, on_lost=reported.append)
    assert await actor.do(lock.acquire)
    await eventually(lambda: server.calls("lock.renew") >= 2, "renewals")
    await actor.do(lock.release)
    await eventually(lambda: background(api) == 0, "no thread or task left")
    renewals = server.calls("lock.renew")
    await eventually(lambda: server.info("k") is None, "the end of the rest")
    assert server.calls("lock.renew") == renewals and server.calls("lock.release") == 0
    assert not reported and not await actor.do(lambda: lock.lost)


@pytest.mark.parametrize("fails", [False, True])
async def test_with_leaves_the_lock_held_however_it_is_left(api: Any, server: Server, fails: bool) -> None:
    lock = api.locks.Lock(api.client(server.port), "k", timeout=60, at_least=30)

    class Broken(Exception):
        pass

    def body() -> None:
        if fails:
            raise Broken

    with contextlib.suppress(Broken):
        if api.name == "sync":
            with lock:
                body()
        else:
            async with lock:
                body()
    assert lock.grant is None and 0 < server.holders("k")[0]["ttl"] <= 30_000


async def test_only_the_last_release_of_a_reentrant_lock_keeps_it(api: Any, server: Server) -> None:
    client, actor, rival = api.client(server.port), api.actor(), api.actor()
    lock = api.locks.RLock(client, "r", timeout=60, at_least=30)
    for _ in range(2):
        assert await actor.do(lock.acquire)
    await actor.do(lock.release)
    assert server.holders("r")[0]["holds"] == 1 and server.calls("rlock.renew") == 0
    await actor.do(lock.release)
    assert server.calls("rlock.renew") == 1 and server.holders("r")[0]["ttl"] <= 30_000
    # The last holder is excluded too.
    for each in (actor, rival):
        assert not await each.do(lock.acquire, blocking=False)


async def test_the_last_release_of_both_modes_of_a_read_write_lock_keeps_it(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.RWLock(client, "rw", timeout=60, at_least=30)
    assert await actor.do(lock.write().acquire) and await actor.do(lock.read().acquire)
    await actor.do(lock.write().release)
    (reader,) = server.holders("rw")
    assert reader["mode"] == "read" and server.calls("rwlock.renew") == 0
    await actor.do(lock.read().release)
    assert server.calls("rwlock.renew") == 1 and server.holders("rw")[0]["ttl"] <= 30_000


async def test_the_permits_of_the_last_release_of_a_semaphore_stay_taken(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    semaphore = api.locks.Semaphore(client, "s", 3, timeout=60, permits=3, at_least=30)
    assert await actor.do(semaphore.acquire)
    await actor.do(semaphore.release, 1)
    assert server.holders("s")[0]["holds"] == 2
    await actor.do(semaphore.release, 2)
    (holder,) = server.holders("s")
    assert holder["holds"] == 2 and holder["ttl"] <= 30_000


async def test_several_locks_stay_held_together(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    both = api.locks.MultiLock(client, ["a", "b"], timeout=60, at_least=30)
    assert await actor.do(both.acquire)
    await actor.do(both.release)
    assert all(0 < server.admin.pttl(key) <= 30_000 for key in ("a", "b"))


@pytest.mark.parametrize("cut", [False, True], ids=["answered", "a reply is lost"])
async def test_the_loss_of_one_of_several_locks_is_reported_and_frees_the_others(
    api: Any, server: Server, cut: bool
) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        both = api.locks.MultiLock(client, ["a", "b"], timeout=60, at_least=30)
        assert await actor.do(both.acquire)
        server.ask("LOCK.BREAK", "a")
        if cut:
            proxy.cut_reply(b"MLOCK.RENEW")
        with pytest.raises(LockNotOwnedError):
            await actor.do(both.release)
        assert server.info("b") is None and proxy.cuts == cut


async def test_a_hold_that_is_known_to_be_lost_fails_though_the_server_keeps_it(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.Lock(client, "k", timeout=0.4, at_least=60)
    assert await actor.do(lock.acquire)
    assert server.ask("PEXPIRE", "k", 600_000) == 1
    assert await actor.do(lock.wait_lost, 30)
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.release)
    # Including the one of the acquire.
    assert server.calls("lock.renew") == 2 and 0 < server.holders("k")[0]["ttl"] <= 60_000


async def test_a_renewal_under_way_does_not_overwrite_the_release(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        lock = api.locks.Lock(client, "k", timeout=3, at_least=60, auto_renew=True)
        assert await actor.do(lock.acquire)
        proxy.delay_request(b"LOCK.RENEW")
        await eventually(lambda: proxy.delays, "a renewal")
        releasing = actor.start(lock.release)
        # If it did not wait for the renewal, the release would be finished by now.
        await asyncio.wait([releasing], timeout=0.3)
        proxy.deliver()
        await releasing
        await eventually(lambda: server.calls("lock.renew") == 3, "both renewals, behind that of the acquire")
        assert server.holders("k")[0]["ttl"] > 3_000
        await eventually(lambda: background(api) == 0, "no thread or task left")


async def test_a_release_that_is_cancelled_behind_a_renewal_under_way_keeps_the_lock(server: Server) -> None:
    api = AsyncioApi()
    try:
        async with Proxy(server.port) as proxy:
            lock = redislock.asyncio.Lock(api.client(proxy.port), "k", timeout=3, at_least=60, auto_renew=True)
            assert await lock.acquire()
            proxy.delay_request(b"LOCK.RENEW")
            await eventually(lambda: proxy.delays, "a renewal")
            releasing = asyncio.ensure_future(lock.release())
            await asyncio.sleep(0.05)
            releasing.cancel()
            await asyncio.wait([releasing], timeout=0.3)
            proxy.deliver()
            with pytest.raises(asyncio.CancelledError):
                await releasing
            await eventually(lambda: server.calls("lock.renew") == 3, "both renewals, behind that of the acquire")
            assert server.holders("k")[0]["ttl"] > 3_000
            await eventually(lambda: background(api) == 0, "no task left")
    finally:
        await api.end()


@pytest.mark.parametrize("local", [False, True], ids=["a renewal finds it", "the local clock finds it"])
async def test_on_lost_may_release_it(api: Any, server: Server, local: bool) -> None:
    async with Proxy(server.port) as proxy:
        actor = api.actor()
        reported: Any = []
        named = {"timeout": 0.6, "at_least": 60, "auto_renew": True, "thread_local": False}

        def on_lost(grant: Any) -> None:
            began = time.monotonic()
            with contextlib.suppress(LockNotOwnedError):
                lock.release()
            reported.append(time.monotonic() - began)

        async def on_lost_async(grant: Any) -> None:
            began = time.monotonic()
            with contextlib.suppress(LockNotOwnedError):
                await lock.release()
            reported.append(time.monotonic() - began)

        chosen = on_lost if api.name == "sync" else on_lost_async
        lock = api.locks.Lock(api.client(proxy.port), "k", on_lost=chosen, **named)
        assert await actor.do(lock.acquire)
        if local:
            proxy.delay_request(b"LOCK.RENEW")
        server.ask("LOCK.BREAK", "k")
        await eventually(lambda: reported, "the loss")
        assert reported[0] < 4
        proxy.deliver()
        await eventually(lambda: background(api) == 0, "no thread or task left")


async def test_a_release_is_repeated_after_a_lost_reply(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        lock = api.locks.Lock(client, "k", timeout=60, at_least=30)
        assert await actor.do(lock.acquire)
        proxy.cut_reply(b"LOCK.RENEW")
        await actor.do(lock.release)
        assert proxy.cuts == 1 and server.calls("lock.renew") == 2 and server.holders("k")[0]["ttl"] <= 30_000


def test_a_release_that_is_sent_again_late_is_a_release() -> None:
    renewal, _ = Release(Mutex("k"), b"t", 0, kept_until=clock() + 60).command()
    assert renewal[:4] == ("LOCK.RENEW", "k", b"t", "PX") and 59_000 < int(str(renewal[4])) <= 60_000
    assert Release(Mutex("k"), b"t", 0, kept_until=clock()).command()[0] == ("LOCK.RELEASE", "k", b"t")


async def test_a_cancelled_release_still_keeps_the_lock(server: Server) -> None:
    api = AsyncioApi()
    try:
        async with Proxy(server.port) as proxy:
            lock = redislock.asyncio.Lock(api.client(proxy.port), "k", timeout=600, at_least=60)
            assert await lock.acquire()
            proxy.silence()
            releasing = asyncio.ensure_future(lock.release())
            await asyncio.sleep(0.05)
            releasing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await releasing
            assert server.holders("k")[0]["ttl"] > 60_000
            proxy.speak()
            await eventually(lambda: server.holders("k")[0]["ttl"] <= 60_000, "the shorter lease")
            await eventually(lambda: background(api) == 0, "no task left")
            assert server.calls("lock.release") == 0
    finally:
        await api.end()


async def test_an_acquire_that_fails_or_is_cancelled_keeps_nothing(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.Lock(client, "k", timeout=60, at_least=30, replicas=1, replica_timeout=10)
    with pytest.raises(NotReplicatedError):
        await actor.do(lock.acquire)
    await eventually(lambda: server.info("k") is None, "the release")
    if api.name == "asyncio":
        async with Proxy(server.port) as proxy:
            proxy.hold_reply(b"LOCK.ACQUIRE")
            waiting = asyncio.ensure_future(api.locks.Lock(api.client(proxy.port), "k", 60, at_least=30).acquire())
            await eventually(lambda: proxy.held, "a grant that was not delivered")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await eventually(lambda: server.info("k") is None, "the release")


async def test_the_owner_itself_waits_for_the_rest(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.Lock(client, "k", timeout=60, at_least=0.5)
    began = time.monotonic()
    for rounds in (0, 1, 2):
        assert await actor.do(lock.acquire)
        assert time.monotonic() - began >= rounds * 0.5 - 0.02
        await actor.do(lock.release)


async def test_a_release_after_the_lease_reports_the_loss_even_within_at_least(api: Any, server: Server) -> None:
    client, actor, rival = api.client(server.port), api.actor(), api.actor()
    lock, other = (api.locks.Lock(client, "k", timeout=timeout, at_least=60) for timeout in (0.2, 60))
    assert await actor.do(lock.acquire)
    # The lease has expired, as if its holder had died: then it does not last for at_least.
    assert await rival.do(other.acquire)
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.release)
    assert server.holders("k")[0]["owner"] == (await rival.do(lambda: other.grant)).token
