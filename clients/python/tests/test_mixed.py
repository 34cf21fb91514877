"""A service that moves over: redis-py's own lock and ours with mixed=True hold the same key."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List

import pytest
import redis
import redis.lock
import redislock
from servers import Server, eventually, until

OLD, NEW = 20, 20
EACH = 8


def test_old_and_new_clients_take_turns(server: Server) -> None:
    client = redis.Redis(port=server.port)
    inside: List[str] = []
    overlaps: List[Any] = []
    turns: Dict[str, int] = {"old": 0, "new": 0}
    first_round: Dict[str, int] = {}
    mutex = threading.Lock()
    done = threading.Event()

    def work(side: str) -> None:
        kind: Any = redis.lock.Lock if side == "old" else redislock.Lock
        options = {} if side == "old" else {"mixed": True}
        lock = kind(client, "k", timeout=60, sleep=0.02, **options)
        while not done.is_set():
            with lock:
                with mutex:
                    inside.append(side)
                    if len(inside) > 1:
                        overlaps.append(list(inside))
                    turns[side] += 1
                    if not first_round and min(turns.values()) >= EACH:
                        first_round.update(turns)
                        done.set()
                time.sleep(0.001)
                with mutex:
                    inside.remove(side)

    threads = [threading.Thread(target=work, args=(side,)) for side in ["old"] * OLD + ["new"] * NEW]
    for thread in threads:
        thread.start()
    until(done.is_set, "both sides' turns")
    for thread in threads:
        thread.join()
    print(f"turns until both sides had {EACH}: {first_round}")
    assert not overlaps, overlaps[:3]
    assert client.exists("k") == 0


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
    # The other way round an old client finds the key taken.
    assert server.admin.set("k", "old", nx=True, px=60_000) is None
    await actor.do(lock.release)
    with pytest.raises(ValueError):
        api.locks.Lock(client, "k", timeout=1, mixed=True, session=True)
