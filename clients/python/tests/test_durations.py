"""Every duration: no value is truncated or wraps, and an invalid one is refused before anything is sent."""

from __future__ import annotations

import datetime
import math
import sys
import time
from typing import Any

import pytest
from redis.exceptions import LockError, ResponseError
from servers import Server, eventually

NO_DURATIONS = [math.nan, datetime.timedelta.max, datetime.timedelta(seconds=1), "5", b"5", [1]]
GREATEST = [sys.float_info.max, 10**400, 2**63]
NONE_OR_LESS = [-1, -0.001, -math.inf, -(10**400)]


def refuses(call: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as refused:
        call()
    assert any(word in str(refused.value) for word in ("seconds", "must be above 0", "finite")), refused.value
    # An error from the server is redis-py's.
    assert not isinstance(refused.value, LockError)


@pytest.mark.parametrize("option", ["timeout", "at_least", "sleep", "replica_timeout"])
async def test_an_invalid_duration_is_refused(api: Any, server: Server, option: str) -> None:
    client = api.client(server.port)
    options = {"timeout": 30, "mixed": option == "sleep", "replicas": int(option == "replica_timeout")}
    # As in redis-py, a lease of 0 means no lease.
    zero = [] if option == "timeout" else [0, 0.0]
    for value in [*NO_DURATIONS, *NONE_OR_LESS, math.inf, *zero]:
        refuses(lambda value=value: api.locks.Lock(client, "k", **{**options, option: value}))
        # Assigned later: the acquire refuses it.
        if option in ("timeout", "sleep"):
            lock, actor = api.locks.Lock(client, "k", **options), api.actor()
            setattr(lock, option, value)
            with pytest.raises((ValueError, TypeError)):
                await actor.do(lock.acquire, blocking_timeout=5)
            assert server.info("k") is None
    for lock_class in (
        api.locks.RLock,
        api.locks.RWLock,
        lambda *args, **named: api.locks.Semaphore(*args, 2, **named),
    ):
        for value in (math.nan, -1, math.inf, datetime.timedelta.max):
            if option != "sleep":
                refuses(lambda value=value: lock_class(client, "k", **{**options, "mixed": False, option: value}))


async def test_a_lease_that_is_too_long_is_refused_and_a_fraction_is_rounded_up(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    for value in GREATEST:
        for lock in (api.locks.Lock(client, "k", timeout=value), api.locks.Semaphore(client, "s", 2, timeout=value)):
            with pytest.raises(ResponseError, match="max-lease"):
                await actor.do(lock.acquire)
        with pytest.raises(ResponseError, match="max-lease"):
            await actor.do(api.locks.Lock(client, "k", timeout=value).run, "PING")
    assert not server.admin.keys()
    for value, milliseconds in ((0.0001, 1), (0.0015, 2), (30.1, 30_100), (1.0009, 1001), (5e-324, 1)):
        lock = api.locks.Lock(client, "k", timeout=value)
        assert lock._lease().ms == milliseconds
    lock = api.locks.Lock(client, "k", timeout=60)
    assert await actor.do(lock.acquire)
    for value in [*NO_DURATIONS, math.inf, -math.inf]:
        with pytest.raises((ValueError, TypeError)):
            await actor.do(lock.extend, value)
    for value in GREATEST:
        for replaces in (True, False):
            with pytest.raises(ResponseError, match="max-lease"):
                await actor.do(lock.extend, value, replaces)
    for value in (-60, -sys.float_info.max, -(10**400)):
        with pytest.raises(LockError, match="to a time in the past"):
            await actor.do(lock.extend, value)
    # Nothing has changed.
    assert 50_000 < server.holders("k")[0]["ttl"] <= 60_000
    await actor.do(lock.release)


async def test_a_wait_of_any_length(api: Any, server: Server) -> None:
    client = api.client(server.port)
    server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 600_000)
    for value in NO_DURATIONS:
        refuses(lambda value=value: api.locks.Lock(client, "k", timeout=30, blocking_timeout=value))
        for call in ("acquire", "run"):
            lock, words = api.locks.Lock(client, "k", timeout=30), ["PING"] if call == "run" else []
            with pytest.raises((ValueError, TypeError)):
                await api.actor().do(getattr(lock, call), *words, blocking_timeout=value)
    for value in [0, *NONE_OR_LESS]:
        began = time.monotonic()
        assert not await api.actor().do(api.locks.Lock(client, "k", timeout=30).acquire, blocking_timeout=value)
        assert time.monotonic() - began < 5
    # Without a limit.
    locks = [api.locks.Lock(client, "k", timeout=30, blocking_timeout=value) for value in [math.inf, *GREATEST]]
    actors = [api.actor() for _ in locks]
    waiting = [actor.start(lock.acquire) for actor, lock in zip(actors, locks)]
    await eventually(lambda: len(server.waiters("k")) == len(locks), "all wait")
    server.ask("LOCK.RELEASE", "k", "somebody")
    held = 0
    while held < len(locks):
        await eventually(lambda: sum(one.done() for one in waiting) > held, "a grant")
        for actor, lock, one in zip(actors, locks, waiting):
            if one.done() and await actor.do(lambda: lock.grant):
                assert one.result() is True
                await actor.do(lock.release)
                held += 1


async def test_a_wait_for_a_loss_of_any_length(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.Lock(client, "k", timeout=60, thread_local=False)
    assert await actor.do(lock.acquire)
    for value in NO_DURATIONS:
        with pytest.raises((ValueError, TypeError)):
            await actor.do(lock.wait_lost, value)
    for value in [0, *NONE_OR_LESS]:
        assert await actor.do(lock.wait_lost, value) is False
    waiting = [api.actor().start(lock.wait_lost, value) for value in [math.inf, *GREATEST]]
    await actor.do(lock.wait_lost, 0.1)
    assert not any(one.done() for one in waiting)
    await actor.do(lock.release)
    assert [await one for one in waiting] == [False] * len(waiting)
