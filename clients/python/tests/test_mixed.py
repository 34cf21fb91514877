"""A migrating service: redis-py's own lock and ours with mixed=True hold the same key."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, List

import pytest
import redis
import redis.asyncio
import redis.lock
import redislock
import redislock.asyncio
from servers import Server, eventually, until

# Half of the new clients are threads, half are tasks of one event loop.
OLD, THREADS, TASKS = 20, 10, 10
EACH = 3


class Turns:
    """The clients' shared record: the owner inside, and how often each owner was inside."""

    def __init__(self) -> None:
        self.taken = {f"old-{n}": 0 for n in range(OLD)}
        self.taken.update({f"new-{n}": 0 for n in range(THREADS + TASKS)})
        self.overlaps: List[Any] = []
        self.done = threading.Event()
        self._inside: List[str] = []
        self._mutex = threading.Lock()

    def enter(self, name: str) -> None:
        with self._mutex:
            self._inside.append(name)
            if len(self._inside) > 1:
                self.overlaps.append(list(self._inside))
            if not self.done.is_set():
                self.taken[name] += 1
                if min(self.taken.values()) >= EACH:
                    self.done.set()

    def leave(self, name: str) -> None:
        with self._mutex:
            self._inside.remove(name)

    def of(self, side: str) -> int:
        return sum(count for name, count in self.taken.items() if name.startswith(side))


def test_twenty_old_and_twenty_new_clients_take_turns(server: Server, record_property: Any) -> None:
    client, turns, before = redis.Redis(port=server.port, max_connections=100), Turns(), handed_over(server)

    def work(name: str, lock: Any) -> None:
        while not turns.done.is_set():
            with lock:
                turns.enter(name)
                time.sleep(0.001)
                turns.leave(name)

    def old(name: str) -> None:
        work(name, redis.lock.Lock(client, "k", timeout=600, sleep=0.02))

    def new(name: str) -> None:
        work(name, redislock.Lock(client, "k", timeout=600, sleep=0.02, mixed=True))

    async def task(name: str, async_client: Any) -> None:
        lock = redislock.asyncio.Lock(async_client, "k", timeout=600, sleep=0.02, mixed=True, thread_local=False)
        while not turns.done.is_set():
            async with lock:
                turns.enter(name)
                await asyncio.sleep(0.001)
                turns.leave(name)

    async def tasks() -> None:
        async with redis.asyncio.Redis(port=server.port) as async_client:
            await asyncio.gather(*(task(f"new-{THREADS + n}", async_client) for n in range(TASKS)))

    threads = [threading.Thread(target=old, args=(f"old-{n}",), daemon=True) for n in range(OLD)]
    threads += [threading.Thread(target=new, args=(f"new-{n}",), daemon=True) for n in range(THREADS)]
    threads.append(threading.Thread(target=lambda: asyncio.run(tasks()), daemon=True))
    for thread in threads:
        thread.start()
    until(turns.done.is_set, f"{EACH} turns of each of the forty: {turns.taken}")
    for thread in threads:
        thread.join()
    all_turns = turns.of("old") + turns.of("new")
    shares = " and ".join(f"{side} {turns.of(side) / all_turns:.0%}" for side in ("old", "new"))
    record_property("summary", f"mixed fleet: of {all_turns} turns 20 old clients and 20 new ones had {shares}")
    assert not turns.overlaps, turns.overlaps[:3]
    # A new client never waits in the queue, where it would get every lock that another new client releases.
    assert handed_over(server) == before and client.exists("k") == 0


def handed_over(server: Server) -> int:
    counters: Any = server.admin.info("lock")
    return int(counters["lock_grants_after_wait"])


async def test_a_string_is_waited_for_only_with_mixed(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    server.admin.set("k", "old", nx=True, px=60_000)
    lock = api.locks.Lock(client, "k", timeout=30, sleep=0.01, mixed=True)
    assert not await actor.do(lock.acquire, blocking=False)
    assert not await actor.do(lock.acquire, blocking_timeout=0.1)
    waiting = actor.start(lock.acquire)
    asked = server.calls("lock.acquire")
    await eventually(lambda: server.calls("lock.acquire") > asked + 2, "polls")
    assert not waiting.done()
    server.admin.delete("k")
    assert await waiting
    # Conversely, an old client finds the key in use.
    assert server.admin.set("k", "old", nx=True, px=60_000) is None
    await actor.do(lock.release)
    with pytest.raises(ValueError):
        api.locks.Lock(client, "k", timeout=1, mixed=True, session=True)
