"""set_nx_lua.py on redislock. The write is `lock.exec`: the server runs it only while the lock is held.

If the lease expires too early, the buyer gets no ticket, and `buy` returns False; nothing is sold twice.
"""

from __future__ import annotations

import redis
import redislock
from sale import LOCK, SOLD, TICKETS, Pay

LEASE_S = 30


def buy(client: redis.Redis, buyer: str, pay: Pay) -> bool:
    try:
        with redislock.Lock(client, LOCK, timeout=LEASE_S) as lock:
            if client.llen(SOLD) >= TICKETS:
                return False
            pay(buyer)
            lock.exec("RPUSH", SOLD, buyer)
            return True
    except redislock.LockNotOwnedError:
        return False
