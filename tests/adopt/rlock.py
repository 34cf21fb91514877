"""A Python lock that is compatible with Redisson's RLock: the same scripts (RedissonLock of 3.52 and 4.7, verbatim),
unlock message and hash field. No published Python package implements it.

    python rlock.py NAME turns|hold|"hand over" PORT KEY TURNS        see `redisson.py` for the modes
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from typing import Any

import redis

ACQUIRE = (
    "if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then "
    "redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; "
    "return redis.call('pttl', KEYS[1]);"
)
RELEASE = (
    "local val = redis.call('get', KEYS[3]); if val ~= false then return tonumber(val);end; "
    "if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; "
    "local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); "
    "if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); redis.call('set', KEYS[3], 0, 'px', ARGV[5]); "
    "return 0; else redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); "
    "redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end;"
)


class RLock:
    """A lock of one thread. `woken`: how many unlock messages ended a wait."""

    def __init__(self, client: Any, key: str, lease_ms: int) -> None:
        self.client, self.key, self.lease_ms = client, key, lease_ms
        self.field = f"{uuid.uuid4()}:{threading.get_ident()}"
        self.channel = f"redisson_lock__channel:{{{key}}}"
        self.woken = 0

    def lock(self) -> None:
        if self._try() is None:
            return
        with self.client.pubsub() as messages:
            messages.subscribe(self.channel)
            while messages.get_message(timeout=None)["type"] != "subscribe":
                pass
            while True:
                left_ms = self._try()
                if left_ms is None:
                    return
                # Like Redisson: waits for the message, or until the holder's lease expires.
                message = messages.get_message(timeout=left_ms / 1000)
                self.woken += message is not None and message["data"] == b"0"

    def unlock(self) -> None:
        latch = f"redisson_unlock_latch:{{{self.key}}}:{uuid.uuid4()}"
        keys = (self.key, self.channel, latch)
        released = self.client.eval(RELEASE, 3, *keys, 0, self.lease_ms, self.field, "publish", 13_500)
        assert released is not None, "it does not hold the lock"

    def _try(self) -> Any:
        return self.client.eval(ACQUIRE, 1, self.key, self.lease_ms, self.field)


def main() -> None:
    _, mode, port, key, turns = sys.argv[1:6]
    client = redis.Redis(port=int(port))
    lock = RLock(client, key, 2_000 if mode != "hand over" else 60_000)
    if mode == "hold":
        lock.lock()
        print("held", flush=True)
        time.sleep(600)
    if mode == "hand over":
        lock.lock()
        print("held", flush=True)
        sys.stdin.readline()
        lock.unlock()
    for _ in range(int(turns)):
        lock.lock()
        assert client.incr("inside") == 1, "not alone"
        assert client.decr("inside") == 0, "not alone"
        lock.unlock()
    print(f"woken by {lock.woken} messages, done", flush=True)


main()
