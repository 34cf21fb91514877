"""setnx_expire_watch.py on redislock. One command acquires the lock and sets its lease atomically.

With `session` the lock belongs to a connection: when a process dies, the lock is released at once instead of at lease
expiry.
"""

from __future__ import annotations

import redis
import redislock
from sale import LOCK, SOLD, TICKETS, Pay

LEASE_S = 30


def buy(client: redis.Redis, buyer: str, pay: Pay) -> bool:
    with redislock.Lock(client, LOCK, timeout=LEASE_S, session=True) as lock:
        if client.llen(SOLD) >= TICKETS:
            return False
        pay(buyer)
        lock.exec("RPUSH", SOLD, buyer)
        return True
