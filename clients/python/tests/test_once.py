"""More failures while one caller makes a value for all: replies, reads, leases and callers that cancel."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
import redis
import redislock
import redislock.asyncio
from servers import Proxy, Server, eventually
from test_conformance import Value, background, coalesced, waiting


@pytest.mark.parametrize("protocol", [2, 3])
async def test_after_a_lost_done_the_request_is_repeated_and_the_value_is_read(
    api: Any, server: Server, protocol: int
) -> None:
    async with Proxy(server.port) as proxy:
        value = Value(api, server, ready=lambda: waiting(server, 2))
        clients = [api.client(port, protocol=protocol) for port in (server.port, proxy.port, server.port)]
        callers = [api.actor() for _ in clients]
        coalesced_before = coalesced(server)
        made = [callers[0].start(api.locks.once, clients[0], "fill", value.read, value.make)]
        await eventually(lambda: value.makers, "a maker")
        proxy.cut_reply(b"COALESCE", 3)
        for caller, client in zip(callers[1:], clients[1:]):
            made.append(caller.start(api.locks.once, client, "fill", value.read, value.make))
        assert await asyncio.gather(*made) == ["made"] * 3
        assert value.makers == 1 and proxy.cuts == 1 and coalesced(server) == coalesced_before + 2
        assert server.info("fill") is None


async def test_a_wait_that_is_cancelled_after_its_grant_does_not_report_the_work_as_done(server: Server) -> None:
    from apis import AsyncioApi

    api = AsyncioApi()
    try:
        async with Proxy(server.port) as proxy:
            client, locks = api.client(server.port), api.locks
            holder, first, second = (locks.Lock(c, "k", timeout=60) for c in (client, api.client(proxy.port), client))
            assert await holder.acquire()
            proxy.hold_reply(b"COALESCE")
            cancelled = asyncio.ensure_future(first.acquire(coalesce=True))
            await eventually(lambda: len(server.waiters("k")) == 1, "one waiter")
            granted = asyncio.ensure_future(second.acquire(coalesce=True))
            await eventually(lambda: len(server.waiters("k")) == 2, "two waiters")
            await holder.release(failed=True)
            await eventually(lambda: proxy.held, "a grant that was not delivered")
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert await granted is True
            await second.release()
    finally:
        await api.end()


async def test_a_read_that_fails_under_the_lock_is_a_failure_of_the_maker(api: Any, server: Server) -> None:
    client, callers = api.client(server.port), [api.actor(), api.actor()]
    value, coalesced_before = Value(api, server), coalesced(server)
    reads = 0

    def failing() -> Any:
        nonlocal reads
        reads += 1
        if reads == 2:
            raise OSError("of the second read")

    async def failing_async() -> Any:
        failing()

    read = failing if api.name == "sync" else failing_async
    with pytest.raises(OSError, match="second read"):
        await callers[0].do(api.locks.once, client, "fill", read, value.make)
    await eventually(lambda: server.info("fill") is None, "the release")
    assert not value.makers and coalesced(server) == coalesced_before
    await eventually(lambda: background(api) == 0, "no thread or task left")


async def test_a_loss_that_a_renewal_reported_is_not_reported_again(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    reported: Any = []
    value = Value(api, server, ready=lambda: reported)

    async def on_lost(grant: Any) -> None:
        reported.append(grant)

    named = {"timeout": 0.9, "on_lost": reported.append if api.name == "sync" else on_lost}
    made = actor.start(api.locks.once, client, "fill", value.read, value.make, **named)
    await eventually(lambda: value.makers, "a maker")
    server.ask("LOCK.BREAK", "fill")
    assert await made == "made" and len(reported) == 1


async def test_with_session_the_end_of_the_makers_connection_lets_the_next_one_make_it(
    api: Any, server: Server
) -> None:
    client, callers = api.client(server.port), [api.actor(), api.actor()]
    value = Value(api, server, "first", ready=lambda: other.read_now() is not None)
    other, coalesced_before = Value(api, server, "second"), coalesced(server)
    first = callers[0].start(api.locks.once, client, "fill", value.read, value.make, timeout=600, session=True)
    await eventually(lambda: value.makers, "a maker")
    second = callers[1].start(api.locks.once, client, "fill", other.read, other.make)
    await eventually(lambda: waiting(server, 1), "a waiter")
    assert server.calls("lock.renew") == 0
    server.ask("CLIENT", "KILL", "ID", server.holders("fill")[0]["session"])
    assert await first == await second == "second" and coalesced(server) == coalesced_before
    await eventually(lambda: background(api) == 0, "no thread or task left")


async def test_without_renewal_the_next_caller_makes_it_after_the_lease(api: Any, server: Server) -> None:
    client, callers = api.client(server.port), [api.actor(), api.actor()]
    value = Value(api, server, "first", ready=lambda: other.read_now() is not None)
    other = Value(api, server, "second")
    named = {"timeout": 0.5, "auto_renew": False}
    first = callers[0].start(api.locks.once, client, "fill", value.read, value.make, **named)
    await eventually(lambda: value.makers, "a maker")
    second = callers[1].start(api.locks.once, client, "fill", other.read, other.make, **named)
    assert await first == await second == "second" and value.makers == other.makers == 1
    assert server.calls("lock.renew") == 0


async def test_a_cancellation_that_arrives_at_the_end_of_a_time_out_is_not_lost(server: Server) -> None:
    callers: Any = []

    class Parser(redis.asyncio.connection.DefaultParser):
        async def read_response(self, *args: Any, **options: Any) -> Any:
            for caller in callers:
                # In the same turn of the event loop in which redis-py's own timeout, slightly earlier, cancels this
                # read.
                asyncio.get_running_loop().call_later(0.5, caller.cancel)
            return await super().read_response(*args, **options)

    async with Proxy(server.port) as proxy:
        options: Any = {"port": proxy.port, "protocol": 2, "socket_timeout": 0.5, "parser_class": Parser}
        client = redis.asyncio.Redis(connection_pool=redis.asyncio.ConnectionPool(**options))
        await client.ping()
        proxy.hold_reply(b"LOCK.ACQUIRE")
        lock = redislock.asyncio.Lock(client, "fill", timeout=60)
        callers.append(asyncio.ensure_future(lock.acquire(blocking=False)))
        await asyncio.wait(callers, timeout=10)
        assert callers[0].cancelled()
        await eventually(lambda: server.info("fill") is None, "the grant is given back")
        await client.connection_pool.disconnect()


async def test_no_caller_goes_on_after_its_cancellation(server: Server) -> None:
    # Before Python 3.12 redis-py loses a cancellation that arrives in the turn of the event loop in which it has
    # written a command.
    client = redis.asyncio.Redis(port=server.port, max_connections=500)
    cancelled, after_it = set(), []

    async def read() -> Any:
        return None

    async def make() -> bytes:
        if asyncio.current_task() in cancelled:
            after_it.append("made")
        await asyncio.sleep(0.01)
        return b"made"

    def cancel(task: Any) -> None:
        if not task.done():
            cancelled.add(task)
            task.cancel()

    callers = []
    for i in range(400):
        callers.append(asyncio.ensure_future(redislock.asyncio.once(client, f"fill:{i % 20}", read, make, timeout=60)))
        asyncio.get_running_loop().call_later(random.random(), cancel, callers[-1])
    await asyncio.wait(callers, timeout=60)
    ended = [caller for caller in callers if caller.done()]
    assert len(ended) == len(callers) and cancelled and not after_it
    assert all(caller.cancelled() for caller in cancelled)
    await eventually(lambda: not server.admin.keys("fill:*"), "no holder and no waiter left")
    await eventually(lambda: not client.connection_pool._in_use_connections, "every connection is given back")
    await client.aclose() if hasattr(client, "aclose") else await client.close()


async def test_a_value_that_was_made_is_returned_though_the_release_fails(
    api: Any, server: Server, caplog: Any
) -> None:
    server.ask("ACL", "SETUSER", "maker", "on", ">secret", "~*", "&*", "+@all", "-lock.release")
    try:
        client, caller = api.client(server.port, username="maker", password="secret"), api.actor()
        value = Value(api, server)
        assert await caller.do(api.locks.once, client, "fill", value.read, value.make) == "made"
        assert value.makers == 1 and server.info("fill") is not None
        (said,) = [record.message for record in caplog.records if "fill" in record.message]
        assert "not released" in said
        await eventually(lambda: background(api) == 0, "no thread or task left")
    finally:
        server.ask("ACL", "DELUSER", "maker")


@pytest.mark.parametrize("raising", ["read", "make"])
def test_a_stop_iteration_propagates_unchanged(server: Server, raising: str) -> None:
    stop = StopIteration("of the caller")

    def stops() -> Any:
        raise stop

    client = redis.Redis(port=server.port)
    read, make = (stops, dict) if raising == "read" else ((lambda: None), stops)
    with pytest.raises(StopIteration) as raised:
        redislock.once(client, "fill", read, make)
    assert raised.value is stop and stop.__cause__ is None
    assert server.info("fill") is None
    client.close()
