"""`extend` and `reacquire` next to a renewal in flight, without a reply, and of a lock that was lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis.asyncio
import redislock.asyncio
from redis.exceptions import LockNotOwnedError, NoPermissionError
from servers import Proxy, Server, eventually
from test_conformance import background


async def test_a_renewal_in_flight_does_not_undo_an_extend(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        lock = api.locks.Lock(client, "k", timeout=3, auto_renew=True)
        assert await actor.do(lock.acquire)
        proxy.delay_request(b"LOCK.RENEW")
        await eventually(lambda: proxy.delays, "a renewal")
        await actor.do(lock.extend, 60, replace_ttl=True)
        assert server.holders("k")[0]["lease"] == 60_000
        proxy.deliver()
        await eventually(lambda: server.calls("lock.renew") >= 2, "the delayed renewal")
        await eventually(lambda: server.holders("k")[0]["lease"] == 60_000, "another renewal")
        await eventually(lambda: server.calls("lock.renew") == 3, "no further one")
        await eventually(lambda: lock.local.hold is None or lock.grant.remaining > 50, "its deadline")
        await actor.do(lock.release)
        await eventually(lambda: background(api) == 0, "no thread or task left")


async def test_a_renewal_in_flight_before_an_extend_does_not_overwrite_the_release(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        lock = api.locks.Lock(client, "k", timeout=3, at_least=600, auto_renew=True)
        assert await actor.do(lock.acquire)
        proxy.delay_request(b"LOCK.RENEW")
        await eventually(lambda: proxy.delays, "a renewal")
        await actor.do(lock.extend, 60, replace_ttl=True)
        releasing = actor.start(lock.release)
        # If it did not wait for the renewal, the release would be finished by now.
        await asyncio.wait([releasing], timeout=0.3)
        proxy.deliver()
        await releasing
        await eventually(lambda: server.calls("lock.renew") == 4, "those of the acquire, the extend and the release")
        assert server.holders("k")[0]["ttl"] > 60_000
        await eventually(lambda: background(api) == 0, "no thread or task left")


@pytest.mark.parametrize("auto_renew", [False, True])
async def test_an_extend_without_a_reply_may_have_shortened_the_lease(
    api: Any, server: Server, auto_renew: bool
) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port, socket_timeout=1), api.actor()
        lock = api.locks.Lock(client, "k", timeout=600, auto_renew=auto_renew, thread_local=False)
        assert await actor.do(lock.acquire)
        proxy.hold_reply(b"LOCK.RENEW")
        extending = actor.start(lock.extend, 300, replace_ttl=True)
        await eventually(lambda: proxy.held, "the shorter lease")
        server.ask("ACL", "SETUSER", "default", "-lock.renew")
        try:
            with pytest.raises(NoPermissionError):
                await extending
            assert lock.grant.remaining <= 300 and not lock.lost
        finally:
            server.ask("ACL", "SETUSER", "default", "+lock.renew")
        if auto_renew:
            await eventually(lambda: server.calls("lock.renew") >= 2, "a renewal at once")
        await actor.do(lock.release)
        assert server.info("k") is None
        await eventually(lambda: background(api) == 0, "no thread or task left")


async def test_an_extend_without_a_reply_reports_the_loss_at_the_earlier_deadline(api: Any, server: Server) -> None:
    reported: Any = []
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port, socket_timeout=1), api.actor()
        lock = api.locks.Lock(client, "k", timeout=600, on_lost=reported.append, thread_local=False)
        assert await actor.do(lock.acquire)
        proxy.hold_reply(b"LOCK.RENEW")
        extending = actor.start(lock.extend, 4, replace_ttl=True)
        await eventually(lambda: proxy.held, "the shorter lease")
        server.ask("ACL", "SETUSER", "default", "-lock.renew")
        with pytest.raises(NoPermissionError):
            await extending
        server.ask("ACL", "SETUSER", "default", "+lock.renew")
        await eventually(lambda: reported, "the callback")
        with pytest.raises(LockNotOwnedError):
            await actor.do(lock.release)


async def test_an_extend_that_did_not_run_changes_nothing(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.Lock(client, "k", timeout=60, auto_renew=True)
    assert await actor.do(lock.acquire)
    server.ask("ACL", "SETUSER", "default", "-lock.renew")
    with pytest.raises(NoPermissionError):
        await actor.do(lock.extend, 2, replace_ttl=True)
    server.ask("ACL", "SETUSER", "default", "+lock.renew")
    # No renewal follows with the lease that was refused.
    await asyncio.sleep(1)
    assert server.calls("lock.renew") == 0 and server.holders("k")[0]["lease"] == 60_000
    await actor.do(lock.release)


async def test_an_extend_that_is_cancelled_before_it_ran_changes_nothing(server: Server) -> None:
    client = redis.asyncio.Redis(port=server.port)
    lock = redislock.asyncio.Lock(client, "k", timeout=60, auto_renew=True)
    assert await lock.acquire()
    server.ask("CONFIG", "SET", "min-replicas-to-write", 1)
    # It pauses between two attempts.
    extending = asyncio.create_task(lock.extend(2, replace_ttl=True))
    await asyncio.sleep(0.3)
    extending.cancel()
    await asyncio.wait([extending])
    server.ask("CONFIG", "SET", "min-replicas-to-write", 0)
    assert extending.cancelled()
    await asyncio.sleep(1)
    assert server.holders("k")[0]["lease"] == 60_000
    await lock.release()
    await client.aclose()


async def test_a_renewal_without_a_reply_is_sent_again_over_another_connection(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port, socket_timeout=None), api.actor()
        lock = api.locks.Lock(client, "k", timeout=15, auto_renew=True, thread_local=False)
        assert await actor.do(lock.acquire)
        proxy.hold_reply(b"LOCK.RENEW")
        # The first comes after five seconds, and its reply is awaited for five.
        await eventually(lambda: server.calls("lock.renew") >= 2 or lock.lost, "another renewal")
        assert not lock.lost
        await actor.do(lock.release)
        await eventually(lambda: background(api) == 0, "no thread or task left")


def requests(server: Server) -> int:
    return sum(map(server.calls, ("lock.renew", "lock.held", "lock.exec")))


CALLS = {"extend": (60,), "extend to": (60, True), "reacquire": (), "exec": ("SET", "v", "lost")}


@pytest.mark.parametrize("call", CALLS)
async def test_nothing_is_done_for_a_lock_that_is_known_to_be_lost(api: Any, server: Server, call: str) -> None:
    client, actor = api.client(server.port), api.actor()
    reported: Any = []
    lock = api.locks.Lock(client, "k", timeout=1, on_lost=reported.append, thread_local=False)
    assert await actor.do(lock.acquire)
    # The server still has it.
    assert server.ask("PEXPIRE", "k", 600_000) == 1
    assert await actor.do(lock.wait_lost, 30)
    before = requests(server)
    with pytest.raises(LockNotOwnedError):
        await actor.do(getattr(lock, call.split()[0]), *CALLS[call])
    assert lock.lost and lock.grant.remaining == 0 and server.admin.get("v") is None
    assert requests(server) == before
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.release)
    assert len(reported) == 1


async def test_a_loss_that_was_reported_during_an_extend_is_a_loss(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        reported: Any = []
        lock = api.locks.Lock(client, "k", timeout=2, on_lost=reported.append, thread_local=False)
        assert await actor.do(lock.acquire)
        assert server.ask("PEXPIRE", "k", 600_000) == 1
        proxy.delay_request(b"LOCK.RENEW")
        extending = actor.start(lock.extend, 60, replace_ttl=True)
        await eventually(lambda: proxy.delays and reported, "the report")
        proxy.deliver()
        with pytest.raises(LockNotOwnedError):
            await extending
        assert server.calls("lock.renew") == 1 and lock.lost and lock.grant.remaining == 0
        with pytest.raises(LockNotOwnedError):
            await actor.do(lock.release)
        assert len(reported) == 1
