"""lock_object.py on redislock: `expires` is `timeout`, `timeout` is `blocking_timeout`.

A release names its owner: it never frees another owner's lock, and raises if its own was lost. The server's clock
decides when a lease expires.
"""

from __future__ import annotations

import redis
import redislock
from sale import LOCK, SOLD, TICKETS, Pay

EXPIRES_S = 30.0
TIMEOUT_S = 60.0


def buy(client: redis.Redis, buyer: str, pay: Pay) -> bool:
    try:
        with redislock.Lock(client, LOCK, timeout=EXPIRES_S, blocking_timeout=TIMEOUT_S) as lock:
            if client.llen(SOLD) >= TICKETS:
                return False
            pay(buyer)
            lock.exec("RPUSH", SOLD, buyer)
            return True
    except redislock.LockNotOwnedError:
        return False
