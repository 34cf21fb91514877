"""`shared=True`: all tasks of a client wait over one connection, with a second one for the messages that answer
them."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from typing import Any, AsyncIterator, List, Tuple

import pytest
import pytest_asyncio
import redis
import redis.asyncio
import redislock
import redislock.asyncio
from apis import AsyncioApi
from redis.exceptions import NoPermissionError
from redislock.asyncio import _shared
from servers import Proxy, Server, eventually, fields
from test_conformance import (  # noqa: F401
    test_acquire,
    test_coalesce,
    test_exec,
    test_failover_while_waiting,
    test_from_token,
    test_key_became_something_else,
    test_lost_reply_of_acquire,
    test_lost_reply_of_release,
    test_no_polling,
    test_order,
    test_server_without_the_module,
    test_slot,
    test_wait,
)
from test_lock_types import *  # noqa: F403
from test_giving_up import LATE_S
from test_run import (  # noqa: F401
    test_a_cancelled_run_leaves_nothing,
    test_a_connection_that_ends_while_run_waits,
    test_a_packet_that_arrives_in_part_leaves_nothing,
    test_a_release_that_does_not_arrive_is_repeated,
    test_run,
    test_run_next_to_old_clients,
    test_run_returns_its_reply_if_only_the_release_has_none,
    test_run_is_observed,
    test_run_reports_that_the_lock_was_lost,
    test_run_repeats_what_was_refused_after_the_grant,
    test_run_sends_no_command_twice,
    test_run_refuses_options_that_do_not_apply,
    test_run_waits_in_the_queue_during_the_grace,
    test_run_waits_its_turn_or_says_that_it_was_not_granted,
)


def _with_shared(kind: Any) -> Any:
    def init(self: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, *args, **{"shared": True, **options})

    return type(kind.__name__, (kind,), {"__init__": init})


class SharedLocks:
    """`redislock.asyncio` with `shared=True` in each lock."""

    Lock, RLock, RWLock, Semaphore, MultiLock = map(
        _with_shared,
        (
            redislock.asyncio.Lock,
            redislock.asyncio.RLock,
            redislock.asyncio.RWLock,
            redislock.asyncio.Semaphore,
            redislock.asyncio.MultiLock,
        ),
    )
    once = staticmethod(functools.partial(redislock.asyncio.once, shared=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(redislock.asyncio, name)


class SharedApi(AsyncioApi):
    locks = SharedLocks()


@pytest_asyncio.fixture()
async def api() -> AsyncIterator[Any]:
    made = SharedApi()
    yield made
    await made.end()


NAME = "counted"


def connections(server: Server) -> int:
    """The connections of the test's client, by its name."""
    return sum(each["name"] == NAME for each in server.admin.client_list())


PROTOCOLS = [{"protocol": 2}, {"protocol": 3}, {"protocol": 3, "decode_responses": True}]


@pytest.mark.parametrize("options", PROTOCOLS, ids=str)
async def test_two_hundred_tasks_over_ten_connections(api: Any, server: Server, options: Any) -> None:
    # Requests that last longer than the test: while one is sent again, the queue passes it over.
    client = api.client(server.port, max_connections=10, client_name=NAME, socket_timeout=120, **options)
    turns: List[int] = []
    most = 0

    async def works(number: int) -> None:
        nonlocal most
        async with api.locks.Lock(client, "k", timeout=60):
            turns.append(number)
            most = max(most, connections(server))
            await client.get("value")

    holder = api.locks.Lock(client, "k", timeout=60)
    assert await holder.acquire()
    tasks = []
    for number in range(200):
        tasks.append(asyncio.ensure_future(works(number)))
        await eventually(lambda: server.ask("LOCK.INFO", "k")[-3] == number + 1, "the next waiter")
    await holder.release()
    await asyncio.gather(*tasks)
    assert turns == list(range(200)) and most <= 10
    # All of them are withdrawn together.
    assert await holder.acquire()
    tasks = [asyncio.ensure_future(works(number)) for number in range(200)]
    await eventually(lambda: server.ask("LOCK.INFO", "k")[-3] == 200, "two hundred waiters")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not server.waiters("k") and connections(server) <= 10
    await holder.release()
    assert server.info("k") is None


@pytest.mark.parametrize("killed", ["requests", "messages", "both"])
async def test_a_connection_that_ends_ends_no_wait(api: Any, server: Server, killed: str) -> None:
    client = api.client(server.port)
    holder = api.locks.Lock(client, "k", timeout=60)
    assert await holder.acquire()

    async def works() -> None:
        async with api.locks.Lock(client, "k", timeout=60):
            pass

    tasks = [asyncio.ensure_future(works()) for _ in range(20)]
    await eventually(lambda: len(server.waiters("k")) == 20, "waiters")
    for each in server.admin.client_list():
        listens = each["sub"] != "0"
        ours = listens or each["cmd"].startswith("lock.")
        if ours and killed in ("both", "messages" if listens else "requests") and each["cmd"] != "lock.waiters":
            server.admin.client_kill(each["addr"])
    # No wait lasts as long as one of its requests may.
    began = time.monotonic()
    await holder.release()
    await asyncio.gather(*tasks)
    assert time.monotonic() - began < 4 and server.info("k") is None


async def test_a_restarted_server_ends_no_wait(api: Any) -> None:
    server = Server()
    again = None
    try:
        server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
        wait = asyncio.ensure_future(api.locks.Lock(api.client(server.port), "k", timeout=60).acquire())
        await eventually(lambda: server.waiters("k"), "a waiter")
        server.stop()
        again = Server(port=server.port)
        assert await wait and again.info("k")
    finally:
        server.stop()
        if again is not None:
            again.stop()


async def test_a_lost_message_costs_one_request_of_the_wait(api: Any, server: Server, monkeypatch: Any) -> None:
    monkeypatch.setattr("redislock._protocol.SLICE_S", 0.5)
    monkeypatch.setattr(_shared.Link, "_deliver", lambda *_: None)
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    client = api.client(server.port)
    lock = api.locks.Lock(client, "k", timeout=60)
    wait = asyncio.ensure_future(lock.acquire())
    await eventually(lambda: server.waiters("k"), "a waiter")
    link = _shared._links.of(client.connection_pool)._link
    server.ask("LOCK.RELEASE", "k", "somebody")
    assert await wait and len(server.holders("k")) == 1
    # The subscription may be dead.
    assert link is not None and link.is_over
    await lock.release()
    assert server.info("k") is None


async def test_a_client_that_is_paused_at_the_end_of_a_slice_keeps_its_queue_position(
    api: Any, server: Server, monkeypatch: Any
) -> None:
    monkeypatch.setattr("redislock._protocol.SLICE_S", 2.0)
    server.admin.config_set("lock.keep-place", 100)
    other = redis.Redis(port=server.port)
    try:
        server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
        wait = asyncio.ensure_future(api.locks.Lock(api.client(server.port), "k", timeout=60, token="first").acquire())
        await eventually(lambda: server.waiters("k"), "a waiter")
        words = ("LOCK.ACQUIRE", "k", "second", "PX", 60_000, "BLOCK", 60_000)
        second = asyncio.ensure_future(asyncio.to_thread(other.execute_command, *words))
        await eventually(lambda: server.waiters("k") == ["first", "second"], "both")
        asked = server.calls("lock.acquire")
        # The event loop stands still.
        time.sleep(2.5)
        await eventually(lambda: server.calls("lock.acquire") > asked, "the request again")
        assert server.waiters("k") == ["first", "second"]
        server.ask("LOCK.RELEASE", "k", "somebody")
        assert await wait and [holder["owner"] for holder in server.holders("k")] == ["first"]
        server.ask("LOCK.RELEASE", "k", "first")
        await second
    finally:
        server.admin.config_set("lock.keep-place", 1000)
        other.close()


@pytest.mark.parametrize("gives_up", ["cancelled", "times out"])
async def test_a_request_that_is_given_up_after_a_slice_leaves_the_queue(
    api: Any, server: Server, gives_up: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("redislock._protocol.SLICE_S", 0.5)
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    limit_s = 1.7 if gives_up == "times out" else None
    lock = api.locks.Lock(api.client(server.port), "k", timeout=600)
    began = time.monotonic()
    wait = asyncio.ensure_future(lock.acquire(blocking_timeout=limit_s))
    await eventually(lambda: server.calls("lock.acquire") >= 4, "two more requests")
    if limit_s is not None:
        assert await wait is False and time.monotonic() - began >= limit_s
    else:
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
    assert not server.waiters("k")
    server.ask("LOCK.RELEASE", "k", "somebody")
    assert server.info("k") is None


@pytest.mark.parametrize("name", [None, True, "\ud800"], ids=["None", "bool", "surrogate"])
async def test_a_request_that_cannot_be_sent_shifts_no_reply(api: Any, server: Server, name: Any) -> None:
    client = api.client(server.port)
    server.ask("LOCK.ACQUIRE", "held", "somebody", "PX", 60_000)
    await api.locks.Lock(client, "warm", timeout=60).acquire()
    for blocking in (False, True):
        with pytest.raises((redis.DataError, UnicodeEncodeError)):
            await api.locks.Lock(client, name, timeout=60).acquire(blocking=blocking)
    locks = [api.locks.Lock(client, key, timeout=60) for key in ("held", "free")]
    tasks = [asyncio.ensure_future(lock.acquire(blocking=False)) for lock in locks]
    assert await asyncio.wait_for(asyncio.gather(*tasks), 30) == [False, True]


async def test_a_token_that_is_used_again_and_again_holds_alone(api: Any, server: Server) -> None:
    """A late message about an earlier hold of the same token is no grant."""
    client = api.client(server.port, max_connections=4)
    inside = 0

    async def works(token: str) -> None:
        nonlocal inside
        for _ in range(30):
            async with api.locks.Lock(client, "k", timeout=60, token=token):
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                inside -= 1

    await asyncio.gather(*(works(f"owner {number}") for number in range(10)))
    assert server.info("k") is None


def held_back(monkeypatch: Any) -> Tuple[List[Any], Any]:
    """Holds back the messages that arrive from now on; returns them, and a function that delivers one of them."""
    messages: List[Any] = []
    deliver = _shared.Link._deliver
    monkeypatch.setattr(_shared.Link, "_deliver", lambda link, text: messages.append((link, text)))
    return messages, deliver


@pytest.mark.parametrize("late", ["cancelled", "done"])
async def test_a_late_message_is_not_of_the_next_request(
    api: Any, server: Server, late: str, monkeypatch: Any
) -> None:
    """The connection for messages is slower than the one for requests."""
    messages, deliver = held_back(monkeypatch)
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    lock = api.locks.Lock(api.client(server.port), "k", timeout=60, token="mine", thread_local=False)
    given_up = asyncio.ensure_future(lock.acquire(coalesce=late == "done"))
    await eventually(lambda: server.waiters("k"), "a waiter")
    if late == "done":
        server.ask("LOCK.RELEASE", "k", "somebody")
        server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    await eventually(lambda: messages, "the message")
    assert late.encode() in messages[0][1] and not server.waiters("k")
    asked = server.calls("lock.acquire")
    wait = asyncio.ensure_future(lock.acquire(coalesce=late == "done"))
    await eventually(lambda: server.waiters("k"), "a waiter")
    monkeypatch.undo()
    deliver(*messages[0])
    await eventually(lambda: wait.done() or server.calls("lock.acquire") == asked + 2, "the request again")
    assert not wait.done()
    server.ask("LOCK.RELEASE", "k", "somebody", "FAILED")
    assert await wait is True and [holder["owner"] for holder in server.holders("k")] == ["mine"]
    # No message is late any more: an operator's message is accepted.
    await lock.release()
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    wait = asyncio.ensure_future(lock.acquire())
    await eventually(lambda: server.waiters("k"), "a waiter")
    server.ask("LOCK.CANCEL", "k", "mine")
    with pytest.raises(api.locks.WaitCancelledError):
        await wait


async def test_a_repeated_request_that_was_done_before_is_withdrawn(api: Any, server: Server, monkeypatch: Any) -> None:
    messages, deliver = held_back(monkeypatch)
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    lock = api.locks.Lock(api.client(server.port), "k", timeout=60, token="mine", thread_local=False)
    given_up = asyncio.ensure_future(lock.acquire(coalesce=True))
    await eventually(lambda: server.waiters("k"), "a waiter")
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    wait = asyncio.ensure_future(lock.acquire(coalesce=True))
    await eventually(lambda: server.waiters("k"), "a waiter")
    server.ask("LOCK.RELEASE", "k", "somebody")
    server.ask("LOCK.ACQUIRE", "k", "another", "PX", 60_000)
    await eventually(lambda: len(messages) == 2, "two messages")
    deliver(*messages[0])
    await eventually(lambda: server.waiters("k"), "the request again, behind another holder")
    deliver(*messages[1])
    assert isinstance(await wait, redislock.Done) and not server.waiters("k")
    assert [holder["owner"] for holder in server.holders("k")] == ["another"]


async def test_a_repeated_request_that_is_refused_is_withdrawn(api: Any, server: Server, monkeypatch: Any) -> None:
    server.ask("ACL", "SETUSER", "clerk", "on", "nopass", "~*", "&*", "+@all")
    try:
        messages, deliver = held_back(monkeypatch)
        server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
        client = api.client(server.port, username="clerk", password="any")
        wait = asyncio.ensure_future(api.locks.Lock(client, "k", timeout=600, token="mine").acquire())
        await eventually(lambda: server.waiters("k"), "a waiter")
        server.ask("LOCK.RELEASE", "k", "somebody")
        await eventually(lambda: messages, "the message")
        assert [holder["owner"] for holder in server.holders("k")] == ["mine"]
        server.ask("ACL", "SETUSER", "clerk", "-lock.acquire")
        monkeypatch.undo()
        deliver(*messages[0])
        with pytest.raises(NoPermissionError):
            await wait
        assert server.info("k") is None
    finally:
        server.ask("ACL", "DELUSER", "clerk")


async def test_a_request_that_is_sent_again_waits_no_longer_than_its_acquire(api: Any, server: Server) -> None:
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    client = api.client(server.port)
    lock = api.locks.Lock(client, "k", timeout=60, token="mine")
    wait = asyncio.ensure_future(lock.acquire(blocking_timeout=3))
    await eventually(lambda: server.waiters("k"), "a waiter")
    await eventually(lambda: fields(server.ask("LOCK.WAITERS", "k")[0])["waited"] > 2000, "a late message")
    # As about an earlier request of the token.
    link = _shared._links.of(client.connection_pool)._link
    assert link is not None
    message = json.dumps({"key": "k", "token": "mine", "outcome": "granted", "fence": 1, "holds": 1})
    server.admin.publish(link.channel, message)
    await eventually(lambda: server.calls("lock.acquire") >= 3, "the request again")
    assert await wait is False and not server.waiters("k")


@pytest.mark.parametrize("own_token", [False, True])
async def test_only_a_token_that_was_used_before_asks_again(api: Any, server: Server, own_token: bool) -> None:
    token = "mine" if own_token else None
    client, options = api.client(server.port), {"timeout": 60, "token": token, "thread_local": False}
    waits = {
        "lock.acquire": ("LOCK.RELEASE", [], api.locks.Lock(client, "a", **options)),
        "rlock.acquire": ("RLOCK.RELEASE", [], api.locks.RLock(client, "b", **options)),
        "rwlock.acquire": ("RWLOCK.RELEASE", ["WRITE"], api.locks.RWLock(client, "c", **options).write()),
        "sem.acquire": ("SEM.RELEASE", [], api.locks.Semaphore(client, "d", 1, slot=True, **options)),
        "mlock.acquire": ("MLOCK.RELEASE", [], api.locks.MultiLock(client, ["e"], **options)),
    }
    for acquire, (release, mode, lock) in waits.items():
        name = str(lock.name)
        more = {"sem.acquire": ["LIMIT", 1], "rwlock.acquire": ["WRITE"]}.get(acquire, [])
        key = [1, name] if acquire == "mlock.acquire" else [name]
        server.ask(acquire.upper(), *key, "somebody", *more, "PX", 60_000)
        asked, held = server.calls(acquire), server.calls("lock.held")
        wait = asyncio.ensure_future(lock.acquire())
        await eventually(lambda name=name: server.waiters(name), "a waiter")
        server.ask(release, *key, "somebody", *mode)
        assert await wait is True
        assert server.calls(acquire) == asked + (2 if own_token else 1), acquire
        assert server.calls("lock.held") == held
        holders = server.holders(name)
        assert [(lock.grant.token, lock.fence, lock.grant.holds)] == [(h["owner"], h["fence"], 1) for h in holders]
        assert lock.grant.slot == (0 if acquire == "sem.acquire" else None)
        assert 50 < lock.grant.remaining <= 60
        await lock.release()


async def test_a_grant_after_a_long_wait_has_the_deadline_of_the_server(api: Any, server: Server) -> None:
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    lock = api.locks.Lock(api.client(server.port), "k", timeout=3)
    wait = asyncio.ensure_future(lock.acquire())
    await eventually(lambda: server.waiters("k"), "a waiter")
    await asyncio.sleep(1.5)
    server.ask("LOCK.RELEASE", "k", "somebody")
    assert await wait is True and server.calls("lock.held") == 1
    assert 2 < lock.grant.remaining <= 3
    await lock.release()


async def test_an_owner_waits_twice(api: Any, server: Server) -> None:
    client = api.client(server.port)
    server.ask("RWLOCK.ACQUIRE", "k", "somebody", "WRITE", "PX", 60_000)
    mine = [api.locks.RWLock(client, "k", timeout=60, token="mine") for _ in range(3)]
    waits = [mine[0].read().acquire(), mine[1].write().acquire(), mine[2].read().acquire()]
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await eventually(lambda: len(server.waiters("k")) >= 2, "two waiters")
    server.ask("RWLOCK.RELEASE", "k", "somebody", "WRITE")
    assert await asyncio.wait_for(asyncio.gather(*tasks), 30) == [True] * 3


async def test_an_operator_ends_a_wait(api: Any, server: Server) -> None:
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    client = api.client(server.port)
    wait = asyncio.ensure_future(api.locks.Lock(client, "k", timeout=60, token="mine").acquire())
    await eventually(lambda: server.waiters("k"), "a waiter")
    server.ask("LOCK.CANCEL", "k", "mine")
    with pytest.raises(api.locks.WaitCancelledError):
        await wait
    wait = asyncio.ensure_future(api.locks.Lock(client, "k", timeout=60).acquire())
    await eventually(lambda: server.waiters("k"), "a waiter")
    server.ask("SET", "k", "a string")
    with pytest.raises(api.locks.WrongTypeError):
        await wait
    assert server.ask("GET", "k") == "a string"


async def test_a_request_that_was_superseded_takes_nothing_from_the_other(
    api: Any, server: Server, monkeypatch: Any
) -> None:
    monkeypatch.setattr("redislock._protocol.SLICE_S", 0.5)
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    wait = asyncio.ensure_future(api.locks.Lock(api.client(server.port), "k", timeout=60, token="mine").acquire())
    await eventually(lambda: server.calls("lock.acquire") >= 3, "a second slice")
    other = redis.Redis(port=server.port)
    words = ("LOCK.ACQUIRE", "k", "mine", "PX", 60_000, "BLOCK", 60_000)
    others = asyncio.ensure_future(asyncio.to_thread(other.execute_command, *words))
    with pytest.raises(api.locks.WaitCancelledError, match="superseded"):
        await wait
    assert server.waiters("k") == ["mine"] and not others.done()
    server.ask("LOCK.RELEASE", "k", "somebody")
    assert await others
    other.close()


async def test_names_and_tokens_that_are_no_text(api: Any, server: Server) -> None:
    client, key, token = api.client(server.port), b"k\xff\x00\"", b"t\xfe\n"
    server.ask("LOCK.ACQUIRE", key, "somebody", "PX", 60_000)
    began = time.monotonic()
    wait = asyncio.ensure_future(api.locks.Lock(client, key, timeout=60, token=token).acquire())
    await eventually(lambda: server.ask("LOCK.INFO", key)[-3] == 1, "a waiter")
    server.ask("LOCK.RELEASE", key, "somebody")
    assert await wait and time.monotonic() - began < 4


async def test_a_silent_network_ends_a_wait_in_time(api: Any, server: Server) -> None:
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    async with Proxy(server.port) as proxy:
        client = api.client(proxy.port)
        waits = [api.locks.Lock(client, "k", timeout=60).acquire(blocking_timeout=1.5) for _ in range(20)]
        began = time.monotonic()
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        await eventually(lambda: len(server.waiters("k")) == 20, "waiters")
        proxy.silence()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, (redis.ConnectionError, redis.TimeoutError)), outcome
        assert 1.5 <= time.monotonic() - began < 1.5 + LATE_S
        proxy.speak()
        await eventually(lambda: not server.waiters("k"), "an empty queue")


async def test_a_request_with_a_short_timeout_ends_no_connection(api: Any, server: Server, monkeypatch: Any) -> None:
    async with Proxy(server.port) as proxy:
        pool = api.client(proxy.port).connection_pool
        link = await _shared._links.of(pool).opened(pool, 30)
        monkeypatch.setattr(_shared, "SILENT_S", 60)
        proxy.silence()
        with pytest.raises(redis.TimeoutError):
            await link.request(("ECHO", "late"), 0.01)
        proxy.speak()
        assert await link.request(("ECHO", "in time"), 30) == b"in time" and not link.is_over
        # A silent one is replaced, however short the timeout of each request is.
        monkeypatch.setattr(_shared, "SILENT_S", 0.05)
        proxy.silence()
        while not link.is_over:
            with pytest.raises(redis.TimeoutError):
                await link.request(("ECHO", "never"), 0.01)


async def test_one_of_many_makes_the_value(api: Any, server: Server) -> None:
    client = api.client(server.port, max_connections=10, client_name=NAME)
    values: List[str] = []

    async def read() -> Any:
        return values[-1] if values else None

    async def make() -> str:
        await eventually(lambda: len(server.waiters("once")) == 99, "the others")
        values.append("made")
        return "made"

    found = await asyncio.gather(*(api.locks.once(client, "once", read, make) for _ in range(100)))
    assert found == ["made"] * 100 and values == ["made"] and connections(server) <= 10


async def test_idle_connections_are_closed(api: Any, server: Server, monkeypatch: Any) -> None:
    monkeypatch.setattr(_shared, "IDLE_S", 0.2)
    client = api.client(server.port, client_name=NAME)
    async with api.locks.Lock(client, "k", timeout=60):
        assert connections(server) == 2
    # Not while a request waits.
    server.ask("LOCK.ACQUIRE", "l", "somebody", "PX", 60_000)
    wait = asyncio.ensure_future(api.locks.Lock(client, "l", timeout=60).acquire(blocking_timeout=1))
    await eventually(lambda: server.waiters("l"), "a waiter")
    [before] = [each["id"] for each in server.admin.client_list() if each["name"] == NAME and each["sub"] == "1"]
    assert not await wait
    [after] = [each["id"] for each in server.admin.client_list() if each["name"] == NAME and each["sub"] == "1"]
    assert before == after
    await eventually(lambda: connections(server) == 0, "no connection left")


async def test_a_user_without_the_channel_gets_an_error(api: Any, server: Server) -> None:
    server.ask("ACL", "SETUSER", "clerk", "on", "nopass", "~*", "resetchannels", "+@all")
    client = api.client(server.port, username="clerk", password="any")
    with pytest.raises(NoPermissionError, match="channel"):
        await api.locks.Lock(client, "k", timeout=60).acquire(blocking_timeout=5)


def test_where_it_is_refused(server: Server) -> None:
    with pytest.raises(ValueError, match="redislock.asyncio"):
        redislock.Lock(redis.Redis(port=server.port), "k", shared=True)
    with pytest.raises(ValueError, match="redislock.asyncio"):
        redislock.once(redis.Redis(port=server.port), "k", lambda: None, lambda: 1, shared=True)
    with pytest.raises(ValueError, match="cluster"):
        redislock.asyncio.Lock(redis.asyncio.RedisCluster("127.0.0.1", server.port), "k", shared=True)
