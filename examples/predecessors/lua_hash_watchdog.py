"""A reentrant lock in a hash of owner and hold count, managed by Lua scripts and a watchdog thread, like Redisson's.

Known failure: **it is never released.** The watchdog renews the lock as long as the process lives, even if the thread
that acquired it has ended. Here a declined payment ends the thread before the release: the lease would free the lock
within 30 seconds, but the watchdog keeps renewing it.

Thread IDs are also reused, so a later thread may find that it already is the owner.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import Dict

import redis
from sale import LOCK, SOLD, TICKETS, Pay

LEASE_MS = 30_000
RETRY_S = 0.5
PROCESS = str(uuid.uuid4())

ACQUIRE = """
if redis.call("exists", KEYS[1]) == 1 and redis.call("hexists", KEYS[1], ARGV[1]) == 0 then
    return 0
end
redis.call("hincrby", KEYS[1], ARGV[1], 1)
redis.call("pexpire", KEYS[1], ARGV[2])
return 1
"""
RENEW = """
if redis.call("hexists", KEYS[1], ARGV[1]) == 0 then
    return 0
end
return redis.call("pexpire", KEYS[1], ARGV[2])
"""
RELEASE = """
if redis.call("hexists", KEYS[1], ARGV[1]) == 0 then
    return -1
end
local left = redis.call("hincrby", KEYS[1], ARGV[1], -1)
if left == 0 then
    redis.call("del", KEYS[1])
end
return left
"""


class ReentrantLock:
    """Its owner is a thread of this process."""

    _watchdogs: Dict[str, threading.Event] = {}

    def __init__(self, client: redis.Redis, name: str) -> None:
        self._client = client
        self._name = name
        self._acquire = client.register_script(ACQUIRE)
        self._renew = client.register_script(RENEW)
        self._release = client.register_script(RELEASE)

    def acquire(self) -> None:
        owner = self._owner()
        while not self._acquire(keys=[self._name], args=[owner, LEASE_MS]):
            time.sleep(RETRY_S)
        if owner not in self._watchdogs:
            stop = self._watchdogs[owner] = threading.Event()
            threading.Thread(target=self._watch, args=(owner, stop), name="watchdog", daemon=True).start()

    def release(self) -> None:
        owner = self._owner()
        if self._release(keys=[self._name], args=[owner]) <= 0:
            self._watchdogs.pop(owner).set()

    def _watch(self, owner: str, stop: threading.Event) -> None:
        while not stop.wait(LEASE_MS / 3000):
            if not self._renew(keys=[self._name], args=[owner, LEASE_MS]):
                return

    @staticmethod
    def _owner() -> str:
        return f"{PROCESS}:{threading.get_ident()}"


def tickets_left(client: redis.Redis, lock: ReentrantLock) -> int:
    """Also called while the lock is held, so the lock has to be reentrant."""
    lock.acquire()
    left = TICKETS - client.llen(SOLD)
    lock.release()
    return left


def buy(client: redis.Redis, buyer: str, pay: Pay) -> bool:
    lock = ReentrantLock(client, LOCK)
    lock.acquire()
    bought = tickets_left(client, lock) > 0
    if bought:
        pay(buyer)
        client.rpush(SOLD, buyer)
    lock.release()
    return bought
