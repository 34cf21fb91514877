"""A client with a single connection, which SELECT and AUTH change: its locks open separate connections."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError
from servers import Server, eventually
from test_giving_up import LATE_S


async def do(actor: Any, call: Any, *args: Any) -> Any:
    found = await actor.do(call, *args)
    return await found if inspect.isawaitable(found) else found


LOCK_TYPES = {
    "mutex": lambda locks, client: locks.Lock(client, "k", timeout=60),
    "session": lambda locks, client: locks.RLock(client, "k", timeout=60, session=True),
    "replicas": lambda locks, client: locks.Semaphore(client, "k", 2, timeout=60, replicas=1),
    "auto_renew": lambda locks, client: locks.RWLock(client, "k", timeout=60, auto_renew=True).write(),
    "multi": lambda locks, client: locks.MultiLock(client, ["k", "l"], timeout=60),
}


@pytest.mark.parametrize("lock_type", LOCK_TYPES)
@pytest.mark.parametrize("moved", ["database", "user"])
async def test_a_lock_of_a_moved_connection_is_refused(api: Any, server: Server, moved: str, lock_type: str) -> None:
    server.ask("ACL", "SETUSER", "clerk", "on", "nopass", "~*", "&*", "+@all")
    client, actor = api.client(server.port, single_connection_client=True), api.actor()
    lock = LOCK_TYPES[lock_type](api.locks, client)
    taken = api.locks.Lock(client, "taken", timeout=60)
    await do(actor, taken.acquire)
    command = ["SELECT", 5] if moved == "database" else ["AUTH", "clerk", "any"]
    await do(actor, client.execute_command, *command)
    refusal = pytest.raises(api.locks.LockError, match="db=" if moved == "database" else "username=")
    for call in (lock.acquire, lock.locked, lambda: taken.exec("SET", "value", "1")):
        with refusal:
            await do(actor, call)
    token = await actor.do(lambda: taken.grant.token)
    given = api.locks.Lock.from_token(client, "taken", token, timeout=60)
    for call in (given.owned, given.reacquire, given.release):
        with refusal:
            await do(actor, call)
    assert server.info("k") is None and server.admin.dbsize() == 1
    # A held lock is released where it was acquired.
    await do(actor, taken.release)
    assert server.info("taken") is None
    # After moving back, the same lock works again.
    await do(actor, client.execute_command, *(["SELECT", 0] if moved == "database" else ["AUTH", "default", "any"]))
    if lock_type != "replicas":
        await do(actor, lock.acquire)
        assert server.info("k")
        await do(actor, lock.release)


async def test_a_lock_is_where_a_single_connection_was_made(api: Any, server: Server) -> None:
    server.ask("ACL", "SETUSER", "clerk", "on", "nopass", "~*", "&*", "+@all")
    options = {"single_connection_client": True, "db": 3, "username": "clerk", "password": "any", "protocol": 3}
    for decoded in (True, False):
        client, actor = api.client(server.port, decode_responses=decoded, **options), api.actor()
        lock = api.locks.Lock(client, "k", timeout=60, session=True)
        await do(actor, lock.acquire)
        assert server.ask("INFO", "keyspace").keys() == {"db3"} and await do(actor, lock.locked)
        await do(actor, lock.release)


async def test_a_user_without_the_permission_to_find_the_connection_gets_an_error(api: Any, server: Server) -> None:
    server.ask("ACL", "SETUSER", "clerk", "on", "nopass", "~*", "&*", "+@all", "-client|info")
    options = {"single_connection_client": True, "username": "clerk", "password": "any"}
    client, actor = api.client(server.port, **options), api.actor()
    with pytest.raises(NoPermissionError, match="client|info"):
        await do(actor, api.locks.Lock(client, "k", timeout=60).acquire)


async def test_a_busy_connection_delays_no_acquire_beyond_its_time(api: Any, server: Server) -> None:
    client, other = api.client(server.port, single_connection_client=True), api.actor()
    if api.name == "sync" and not hasattr(client, "single_connection_lock"):
        pytest.skip("this redis-py does not guard its single connection")
    actor = api.actor()
    await do(actor, client.ping)
    blocked = other.start(client.blpop, "nothing", 30)
    await eventually(lambda: any(each["cmd"] == "blpop" for each in server.admin.client_list()), "BLPOP")
    began = time.monotonic()
    for waits in ({"blocking": False}, {"blocking_timeout": 1.5}):
        with pytest.raises(redis.TimeoutError, match="busy"):
            await actor.do(lambda waits=waits: api.locks.Lock(client, "k", timeout=60).acquire(**waits))
    assert time.monotonic() - began < 1 + 1.5 + LATE_S and not blocked.done()
    # Without a time limit it waits for the connection.
    wait = actor.start(api.locks.Lock(client, "k", timeout=60).acquire)
    server.ask("LPUSH", "nothing", "a value")
    await blocked
    assert await wait


@pytest.mark.parametrize("seconds", [1e10, math.inf])
async def test_a_wait_may_be_longer_than_a_lock_of_threads_can_wait(api: Any, server: Server, seconds: float) -> None:
    client, actor = api.client(server.port, single_connection_client=True), api.actor()
    assert await actor.do(api.locks.Lock(client, "k", timeout=60).acquire, blocking_timeout=seconds)


async def test_a_server_that_restarts_ends_no_acquire(api: Any) -> None:
    server = Server()
    again = None
    try:
        client = api.client(server.port, single_connection_client=True, retry=api.retry(NoBackoff(), 0))
        actor = api.actor()
        await do(actor, client.ping)
        server.process.kill()
        server.process.wait()
        began = time.monotonic()
        with pytest.raises(redis.ConnectionError):
            await actor.do(api.locks.Lock(client, "k", timeout=60).acquire, blocking_timeout=1)
        assert 1 <= time.monotonic() - began < 1 + LATE_S
        wait = actor.start(api.locks.Lock(client, "k", timeout=60).acquire, blocking_timeout=60)
        again = await asyncio.to_thread(Server, port=server.port)
        assert await wait and again.info("k")
    finally:
        server.stop()
        if again is not None:
            again.stop()
