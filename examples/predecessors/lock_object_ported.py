"""lock_object.py on redislock: `expires` is `timeout`, `timeout` is `blocking_timeout`.

A release names the owner: it frees nobody else's lock, and raises when its own was lost. Deadlines are the server's.
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
