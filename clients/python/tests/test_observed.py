"""Who holds a lock: `info()` and the holder of a lock that was not granted; and the events for an observer,
OpenTelemetry and the log."""

from __future__ import annotations

import logging
from typing import Any, List

import pytest
from redis.exceptions import NoPermissionError
from servers import Server, eventually

PROTOCOLS = [{"protocol": 2}, {"protocol": 3}, {"protocol": 3, "decode_responses": True}]


@pytest.mark.parametrize("options", PROTOCOLS, ids=str)
async def test_info(api: Any, server: Server, options: Any) -> None:
    client, actor, other = api.client(server.port, **options), api.actor(), api.actor()
    lock = api.locks.Lock(client, "k", timeout=60)
    assert await actor.do(lock.info) is None
    await actor.do(lock.acquire)
    waiting = other.start(api.locks.Lock(client, "k", timeout=60).acquire)
    await eventually(lambda: server.waiters("k"), "a waiter")
    grant, info = await actor.do(lambda: lock.grant), await actor.do(lock.info)
    assert isinstance(info, api.locks.LockInfo) and isinstance(info.holders[0], api.locks.Holder)
    assert (info.kind, info.limit, info.fence, info.waiters, info.holding) == ("mutex", 1, grant.fence, 1, 1)
    [holder] = info.holders
    assert (holder.owner, holder.mode, holder.holds, holder.fence) == (grant.token, "exclusive", 1, grant.fence)
    assert holder.lease == 60 and 50 < holder.ttl <= 60 and 0 <= holder.age < 10 and 50 < info.ttl <= 60
    assert holder.session is None and holder.slot is None
    await actor.do(lock.release)
    assert await waiting
    # The other lock types, a session, no deadline, a slot.
    rw = api.locks.RWLock(client, "rw", timeout=60, session=True).read()
    await actor.do(rw.acquire)
    info = await actor.do(rw.info)
    assert (info.kind, info.limit, info.holders[0].mode) == ("rw", 0, "read") and info.holders[0].session > 0
    slots = api.locks.Semaphore(client, "sem", 3, timeout=None, slot=True)
    await actor.do(slots.acquire)
    info = await actor.do(slots.info)
    assert (info.kind, info.limit, info.ttl) == ("semaphore", 3, None)
    assert (info.holders[0].ttl, info.holders[0].slot) == (None, 0)
    both = api.locks.MultiLock(client, ["free", "k"], timeout=60)
    assert (await actor.do(both.info)).holding == 1
    for each in (rw, slots):
        await actor.do(each.release)


async def test_a_token_is_a_string_wherever_it_is_shown(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    for token in ("mine", "ärger", b"\xff\x00mine"):
        lost: List[Any] = []
        lock = api.locks.Lock(client, "k", timeout=60, token=token, on_lost=lost.append)
        await actor.do(lock.acquire)
        shown = await actor.do(lambda: lock.grant.token)
        assert isinstance(shown, str) and isinstance(api.locks.make_token(), str)
        assert shown == (await actor.do(lock.info)).holders[0].owner
        # It names the same owner again.
        await actor.do(api.locks.Lock.from_token(client, "k", shown, timeout=60).extend, 1)
        server.ask("LOCK.BREAK", "k")
        with pytest.raises(api.locks.LockNotOwnedError):
            await actor.do(lock.reacquire)
        await eventually(lambda: lost, "on_lost")
        assert lost[0].token == shown
        with pytest.raises(api.locks.LockNotOwnedError):
            await actor.do(lock.release)


async def test_not_granted_names_the_holder(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 60_000)
    lock = api.locks.Lock(client, "k", timeout=60, blocking=False, tell_holder=True)

    async def entered() -> Any:
        if api.name == "sync":
            return await actor.do(lock.__enter__)
        return await actor.do(lock.__aenter__)

    assert not await actor.do(lock.acquire) and await actor.do(lambda: lock.holder) == "somebody"
    with pytest.raises(api.locks.HeldError, match="held by somebody") as raised:
        await entered()
    assert raised.value.holder == "somebody" and raised.value.lock_name == "k"
    both = api.locks.MultiLock(client, ["free", "k"], timeout=60, tell_holder=True)
    assert not await actor.do(both.acquire, blocking_timeout=0.1) and await actor.do(lambda: both.holder) == "somebody"
    # Never for a grant, and only if it was asked for.
    server.ask("LOCK.RELEASE", "k", "somebody")
    asked = server.calls("lock.info")
    await entered()
    assert await actor.do(lambda: lock.holder) is None
    other = api.locks.Lock(client, "k", timeout=60)
    assert not await actor.do(other.acquire, blocking=False) and await actor.do(lambda: other.holder) is None
    assert server.calls("lock.info") == asked
    # A user without the permission gets no holder, and nothing else changes.
    server.ask("ACL", "SETUSER", "clerk", "on", "nopass", "~*", "&*", "+@all", "-lock.info")
    clerk = api.client(server.port, username="clerk", password="any")
    refused = api.locks.Lock(clerk, "k", timeout=60, tell_holder=True)
    assert await actor.do(refused.acquire, blocking=False) is False and await actor.do(lambda: refused.holder) is None
    await actor.do(lock.release)


KINDS = {
    "mutex": lambda locks, client, **options: locks.Lock(client, "k", **options),
    "reentrant": lambda locks, client, **options: locks.RLock(client, "k", **options),
    "read": lambda locks, client, **options: locks.RWLock(client, "k", **options).read(),
    "write": lambda locks, client, **options: locks.RWLock(client, "k", **options).write(),
    "semaphore": lambda locks, client, **options: locks.Semaphore(client, "k", 2, **options),
    "multi": lambda locks, client, **options: locks.MultiLock(client, ["k", "l"], **options),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_observer_gets_every_event(api: Any, server: Server, kind: str, caplog: Any) -> None:
    client, actor, other = api.client(server.port), api.actor(), api.actor()
    events: List[Any] = []

    def failing(event: Any) -> None:
        events.append(event)
        raise ValueError("the observer's own")

    api.locks.observe(client, failing)
    with caplog.at_level(logging.DEBUG, "redislock"):
        lock = KINDS[kind](api.locks, client, timeout=60, token="mine")
        await actor.do(lock.acquire)
        fence = await actor.do(lambda: lock.grant.fence)
        await actor.do(lock.reacquire)
        rival = api.locks.MultiLock(client, ["k", "l"], timeout=60, token="rival")
        if kind in ("mutex", "multi"):
            waiting = other.start(rival.acquire)
            await eventually(lambda: any(event.event == "queued" for event in events), "queued")
            await actor.do(lock.release)
            assert await waiting
            await other.do(rival.release)
        else:
            with pytest.raises(api.locks.WrongKindError):
                await other.do(rival.acquire)
            await actor.do(lock.release)
    mine = [event for event in events if event.owner == "mine"]
    assert [event.event for event in mine] == ["granted", "renewed", "released"]
    assert {(event.kind, event.keys, event.fence) for event in mine} == {
        (kind, ("k", "l") if kind == "multi" else ("k",), fence)
    }
    assert 0 <= mine[0].wait < 30 and 0 <= mine[2].hold < 30
    rivals = [event.event for event in events if event.owner == "rival"]
    granted = ["queued", "granted", "released"]
    assert rivals == (granted if kind in ("mutex", "multi") else ["not_granted"])
    assert "the observer of locks failed" in caplog.text
    assert f"granted: {kind} k" in caplog.text and f"owner mine, fence {fence}, held for 0." in caplog.text
    # Nothing more.
    api.locks.observe(client, None)
    del events[:]
    await actor.do(lock.acquire)
    await actor.do(lock.release)
    assert not events


async def test_a_loss_is_reported_once_and_a_failed_release_with_its_error(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    events: List[Any] = []
    api.locks.observe(client, events.append)
    for renews in (False, True):
        lock = api.locks.Lock(client, "k", timeout=0.6 if renews else 60, auto_renew=renews)
        await actor.do(lock.acquire)
        server.ask("LOCK.BREAK", "k")
        if renews:
            await eventually(lambda: events[-1].event == "lost", "the loss")
        with pytest.raises(api.locks.LockNotOwnedError):
            await actor.do(lock.release)
    ends = [(event.event, event.fence > 0, event.hold is not None) for event in events if event.event != "granted"]
    assert ends == [("lost", True, True)] * 2


def test_an_observer_is_a_function(api: Any, server: Server) -> None:
    with pytest.raises(TypeError, match="an observer must be a function, not 'print'"):
        api.locks.observe(api.client(server.port), "print")


async def test_opentelemetry(api: Any, server: Server) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from redislock.opentelemetry import OpenTelemetry

    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    meter = MeterProvider([reader]).get_meter("tests")
    client, actor = api.client(server.port), api.actor()
    api.locks.observe(client, OpenTelemetry(provider.get_tracer("tests"), meter))
    lock = api.locks.Lock(client, "k", timeout=60, token="mine")
    await actor.do(lock.acquire)
    fence = await actor.do(lambda: lock.grant.fence)
    assert not await actor.do(api.locks.Lock(client, "k", token="rival").acquire, blocking=False)
    await actor.do(lock.release)
    # A release that is repeated after an error ends its hold once.
    await actor.do(lock.acquire)
    server.ask("ACL", "SETUSER", "default", "-lock.release")
    with pytest.raises(NoPermissionError):
        await actor.do(lock.release)
    server.ask("ACL", "SETUSER", "default", "+lock.release")
    await actor.do(lock.release)
    spans = [(span.name, span.attributes) for span in exporter.get_finished_spans()]
    both = {"redislock.kind": "mutex", "redislock.key": "k"}
    mine = {**both, "redislock.owner": "mine", "redislock.fence": fence}
    assert spans[:3] == [
        ("redislock.acquire", {**mine, "redislock.outcome": "granted"}),
        ("redislock.acquire", {**both, "redislock.owner": "rival", "redislock.outcome": "not_granted"}),
        ("redislock.hold", {**mine, "redislock.outcome": "released"}),
    ]
    [scope] = reader.get_metrics_data().resource_metrics[0].scope_metrics
    found = {
        (metric.name, metric.unit, *point.attributes.values(), point.count)
        for metric in scope.metrics
        for point in metric.data.data_points
        # In seconds: most are below one.
        if point.explicit_bounds[5] < 1 and sorted(point.attributes) == ["redislock.kind", "redislock.outcome"]
    }
    assert found == {
        ("redislock.wait.duration", "s", "mutex", "granted", 2),
        ("redislock.wait.duration", "s", "mutex", "not_granted", 1),
        ("redislock.hold.duration", "s", "mutex", "released", 2),
    }
