"""No memory stays in use after a pair of acquire and release, nor for a name after its last hold.

SOAK_PAIRS=100000 is the number for a release of this project; the default finds one object per pair.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import List

import pytest
from servers import Server

PAIRS = int(os.environ.get("SOAK_PAIRS", "800"))
# Of CPython's allocator, which counts them at no cost. A pool of 256 tokens fills and empties.
MOST_BLOCKS = 400

SOAK = """
import asyncio, gc, sys, time
import redis, redis.asyncio, redislock, redislock.asyncio

port, kind, pairs, ways = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
locks = redislock if kind == "sync" else redislock.asyncio
client = (redis if kind == "sync" else redis.asyncio).Redis(port=port)
redislock.observe(client, lambda event: None)

def made(way, number):
    # A new name each time.
    name, options = f"soak:{way}:{number}", {"timeout": 30}
    for option in ("session", "auto_renew", "shared", "mixed", "tell_holder"):
        if option in way:
            options[option] = True
    if "on_lost" in way:
        options["on_lost"] = lambda grant: None
    if "at_least" in way:
        options["at_least"] = 0.1
    if "rlock" in way:
        return locks.RLock(client, name, **options)
    if "read" in way:
        return locks.RWLock(client, name, **options).read()
    if "write" in way:
        return locks.RWLock(client, name, **options).write()
    if "semaphore" in way:
        return locks.Semaphore(client, name, 2, slot="slot" in way, **options)
    if "multi" in way:
        return locks.MultiLock(client, [name, name + ":2"], **options)
    return locks.Lock(client, name, **options)

def pair(way, kept, number):
    if way == "run":
        made(way, number).run("PING")
    elif "once" in way:
        locks.once(client, f"soak:{way}:{number}", lambda: None, lambda: 1)
    else:
        with made(way, number) if number % 2 or "at_least" in way else kept:
            pass

async def pair_async(way, kept, number):
    if way == "run":
        await made(way, number).run("PING")
    elif "once" in way:
        async def read(): return None
        async def make(): return 1
        await locks.once(client, f"soak:{way}:{number}", read, make, shared="shared" in way)
    else:
        async with made(way, number) if number % 2 or "at_least" in way else kept:
            pass

def settled():
    for _ in range(3):
        gc.collect()
    return sys.getallocatedblocks()

async def soak_async(way):
    # Also one object for many pairs.
    kept = made(way, "kept")
    for number in range(300):
        await pair_async(way, kept, -number)
    await asyncio.sleep(0.3)
    before = settled()
    for number in range(pairs):
        await pair_async(way, kept, number)
    await asyncio.sleep(0.3)
    return settled() - before

def soak(way):
    kept = made(way, "kept")
    for number in range(300):
        pair(way, kept, -number)
    time.sleep(0.3)
    before = settled()
    for number in range(pairs):
        pair(way, kept, number)
    time.sleep(0.3)
    return settled() - before

async def all_async():
    for way in ways:
        print(await soak_async(way), way)

if kind == "sync":
    for way in ways:
        print(soak(way), way)
else:
    asyncio.run(all_async())
"""

WAYS = ["plain", "rlock", "read", "write", "semaphore", "semaphore slot", "multi", "session", "auto_renew", "on_lost"]
WAYS += ["at_least", "mixed", "run", "once"]


@pytest.mark.parametrize("kind, ways", [("sync", WAYS), ("asyncio", [*WAYS, "shared", "shared once"])])
def test_pairs_keep_nothing(server: Server, kind: str, ways: List[str]) -> None:
    words = [sys.executable, "-c", SOAK, str(server.port), kind, str(PAIRS), *ways]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    kept = {way: int(blocks) for blocks, _, way in (line.partition(" ") for line in found.stdout.splitlines())}
    assert list(kept) == ways
    assert all(blocks < MOST_BLOCKS for blocks in kept.values()), f"memory blocks that {PAIRS} pairs left: {kept}"
