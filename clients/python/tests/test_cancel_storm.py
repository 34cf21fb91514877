"""Cancellations within 1.5 ms of the beginning of a call, for each way to take a lock, leave no lock.

STORM_CALLS=1000 is the number for a release of this project.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any

import pytest
import redislock.asyncio
from apis import AsyncioApi
from servers import Server, eventually
from test_conformance import background

CANCELS = int(os.environ.get("STORM_CALLS", "300"))
LONGEST_S = 0.0015
WAYS = ["plain", "session", "auto_renew", "rlock", "read", "write", "semaphore", "semaphore slot", "multi", "replicas"]
WAYS += ["shared", "shared wait", "wait", "session wait", "mixed", "run", "shared run", "once", "release", "with"]


def made(client: Any, way: str) -> Any:
    locks = redislock.asyncio
    options: Any = {"timeout": 60, "thread_local": False}
    for option in ("session", "auto_renew", "shared", "mixed"):
        if option in way:
            options[option] = True
    if "replicas" in way:
        options.update(replicas=1, replica_timeout=1)
    if "rlock" in way:
        return locks.RLock(client, "storm", **options)
    if "read" in way:
        return locks.RWLock(client, "storm", **options).read()
    if "write" in way:
        return locks.RWLock(client, "storm", **options).write()
    if "semaphore" in way:
        return locks.Semaphore(client, "storm", 1, slot="slot" in way, **options)
    if "multi" in way:
        return locks.MultiLock(client, ["storm", "storm:2"], **options)
    return locks.Lock(client, "storm", **options)


async def read() -> None:
    return None


async def make() -> int:
    return 1


async def held_for_a_moment(lock: Any) -> None:
    async with lock:
        await asyncio.sleep(0)


@pytest.mark.parametrize("way", WAYS)
async def test_no_cancellation_leaves_a_lock(server: Server, way: str) -> None:
    api, chosen = AsyncioApi(), random.Random(7)
    try:
        client = api.client(server.port)
        outcomes = {"cancelled": 0, "done": 0}
        # Adapts to the duration of a call, so that about half of the cancellations arrive in time.
        longest_s = LONGEST_S
        # Keeps them alive: dropping them would release what they hold.
        locks = []
        for number in range(CANCELS):
            if "wait" in way:
                # Another owner's lock, which is released in the middle of the call.
                server.ask("LOCK.ACQUIRE", "storm", "another", "PX", 60_000)
                releasing = asyncio.ensure_future(client.execute_command("LOCK.RELEASE", "storm", "another"))
            lock = made(client, way)
            locks.append(lock)
            if "run" in way:
                calling = lock.run("PING")
            elif way == "once":
                calling = redislock.asyncio.once(client, "storm", read, make)
            elif way == "with":
                calling = held_for_a_moment(lock)
            elif way == "release":
                assert await lock.acquire(blocking_timeout=60)
                calling = lock.release()
            else:
                calling = lock.acquire()
            task = asyncio.ensure_future(calling)
            # A task that is cancelled before its first step has not started the release.
            await asyncio.sleep(0)
            ends = time.monotonic() + chosen.uniform(0, longest_s)
            while time.monotonic() < ends:
                await asyncio.sleep(0)
            task.cancel()
            [result] = await asyncio.gather(task, return_exceptions=True)
            if isinstance(result, asyncio.CancelledError):
                outcomes["cancelled"] += 1
                longest_s = min(LONGEST_S, longest_s * 1.1)
            elif way == "replicas":
                assert isinstance(result, redislock.NotReplicatedError)
            else:
                assert not isinstance(result, BaseException), result
                outcomes["done"] += 1
                longest_s = max(2e-5, longest_s * 0.9)
                if result is True and "run" not in way:
                    await lock.release()
            if "wait" in way:
                await releasing
            assert lock.grant is None
            assert lock.local.token is None
        assert outcomes["cancelled"] > CANCELS / 4, outcomes
        await eventually(lambda: background(api) == 0, "no task left")
        assert not server.admin.keys() and not server.waiters("storm")
        if "shared" not in way:
            assert not client.connection_pool._in_use_connections
        # And each connection returns the replies to its own requests.
        for number in range(50):
            assert await client.execute_command("ECHO", str(number)) == str(number).encode()
    finally:
        await api.end()
