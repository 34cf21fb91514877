"""The worker of the Python client: `worker.py sync|asyncio PORT SEED`. README.md says what it prints.

Threads or tasks acquire, hold and release locks until a line arrives on stdin.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from typing import Any, Dict

import redis
import redis.asyncio
import redislock
import redislock.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import LockError, LockNotOwnedError, RedisError

LINES = 6
KEYS = 4
stopping = threading.Event()


def now() -> int:
    return int(time.time() * 1000)


def report(**event: Any) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


class Plan:
    """One random step of a thread or task, from its own random numbers."""

    def __init__(self, rng: random.Random) -> None:
        self.key = f"k{rng.randrange(KEYS)}"
        kind = rng.random()
        self.session = kind < 0.1
        self.renewed = 0.1 <= kind < 0.3
        self.lease_s = 1.5 if kind < 0.3 else 60.0 if kind < 0.5 else 3.0
        self.wait_s = 0.0 if rng.random() < 0.1 else rng.uniform(0.1, 2.0)
        self.cancel_s = rng.uniform(0.0, max(self.wait_s, 0.05)) if rng.random() < 0.25 else None
        self.hold_s = rng.uniform(0.0, 2.5) if self.renewed and rng.random() < 0.2 else rng.uniform(0.0, 0.06)

    def options(self) -> Dict[str, Any]:
        return {"timeout": self.lease_s, "auto_renew": self.renewed, "session": self.session, "thread_local": False}


def asked(plan: Plan, began: int, outcome: str, cancelled: int = 0) -> None:
    report(e="acquire", key=plan.key, wait=round(plan.wait_s * 1000), began=began, ended=now(), outcome=outcome,
         cancelled=cancelled)


def held(plan: Plan, fence: int, since: int, until: int) -> None:
    report(e="held", key=plan.key, fence=fence, since=since, until=until, session=plan.session)


def given_back(began: int, outcome: str) -> None:
    report(e="release", began=began, ended=now(), outcome=outcome)


def outcome_of(error: BaseException) -> str:
    return "lost" if isinstance(error, LockNotOwnedError) else "failed"


def unexpected(error: BaseException) -> None:
    report(e="unexpected", what=f"{type(error).__name__}: {error}")


def line(client: Any, rng: random.Random) -> None:
    while not stopping.is_set():
        plan = Plan(rng)
        lock = redislock.Lock(client, plan.key, **plan.options())
        began = now()
        try:
            granted = lock.acquire(blocking=plan.wait_s > 0, blocking_timeout=plan.wait_s or None)
        except (RedisError, LockError):
            asked(plan, began, "failed")
            continue
        asked(plan, began, "granted" if granted else "refused")
        if not granted:
            continue
        since, until = now(), 0
        ends = time.monotonic() + plan.hold_s
        while not lock.lost:
            until = now()
            if time.monotonic() >= ends:
                break
            time.sleep(0.005)
        if until:
            held(plan, lock.fence, since, until)
        while True:
            began = now()
            try:
                lock.release()
                given_back(began, "released")
            except (RedisError, LockError) as error:
                given_back(began, outcome_of(error))
                if outcome_of(error) == "failed" and not plan.session:
                    continue
            break


def sync(port: int, seed: int) -> None:
    client = redis.Redis(port=port, socket_timeout=2, retry=redis.retry.Retry(NoBackoff(), 0))

    def work(number: int) -> None:
        try:
            line(client, random.Random(f"{seed} {number}"))
        except BaseException as error:
            unexpected(error)

    lines = [threading.Thread(target=work, args=(number,)) for number in range(LINES)]
    for each in lines:
        each.start()
    sys.stdin.readline()
    stopping.set()
    for each in lines:
        each.join()

    def left() -> int:
        return sum(thread.name.startswith("redislock") for thread in threading.enumerate())

    ends = time.monotonic() + 20
    while left() and time.monotonic() < ends:
        time.sleep(0.05)
    report(e="end", left=left())
    client.close()


async def async_line(client: Any, rng: random.Random) -> None:
    while not stopping.is_set():
        plan = Plan(rng)
        lock = redislock.asyncio.Lock(client, plan.key, **plan.options())
        began = now()
        acquiring = asyncio.ensure_future(
            lock.acquire(blocking=plan.wait_s > 0, blocking_timeout=plan.wait_s or None)
        )
        cancelled = 0
        if plan.cancel_s is not None:
            await asyncio.wait([acquiring], timeout=plan.cancel_s)
            if not acquiring.done():
                cancelled = now()
                acquiring.cancel()
        try:
            granted = await acquiring
        except asyncio.CancelledError:
            asked(plan, began, "cancelled", cancelled)
            continue
        except (RedisError, LockError):
            asked(plan, began, "failed", cancelled)
            continue
        asked(plan, began, "granted" if granted else "refused", cancelled)
        if not granted:
            continue
        since, until = now(), 0
        ends = time.monotonic() + plan.hold_s
        while not lock.lost:
            until = now()
            if time.monotonic() >= ends:
                break
            await asyncio.sleep(0.005)
        if until:
            held(plan, lock.fence, since, until)
        while True:
            began = now()
            try:
                await lock.release()
                given_back(began, "released")
            except (RedisError, LockError) as error:
                given_back(began, outcome_of(error))
                if outcome_of(error) == "failed" and not plan.session:
                    continue
            break


async def asynchronous(port: int, seed: int) -> None:
    client = redis.asyncio.Redis(port=port, socket_timeout=2, retry=redis.asyncio.retry.Retry(NoBackoff(), 0))

    async def work(number: int) -> None:
        try:
            await async_line(client, random.Random(f"{seed} {number}"))
        except BaseException as error:
            unexpected(error)

    def stop() -> None:
        sys.stdin.readline()
        stopping.set()

    threading.Thread(target=stop, daemon=True).start()
    ours = asyncio.current_task()
    await asyncio.gather(*(work(number) for number in range(LINES)))

    def left() -> int:
        return len(asyncio.all_tasks() - {ours})

    ends = time.monotonic() + 20
    while left() and time.monotonic() < ends:
        await asyncio.sleep(0.05)
    report(e="end", left=left())
    await client.aclose() if hasattr(client, "aclose") else await client.close()


if __name__ == "__main__":
    kind, port, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if kind == "sync":
        sync(port, seed)
    else:
        asyncio.run(asynchronous(port, seed))
