"""lua_hash_watchdog.py on redislock, as careless as that: no `with` and no `finally`, to show what then happens.

`auto_renew` renews a hold only as long as somebody has it. A thread that ends without a release takes its hold along;
the renewals stop, and the lock ends with its lease.
"""

from __future__ import annotations

import redis
import redislock
from sale import LOCK, SOLD, TICKETS, Pay

LEASE_S = 30.0


def tickets_left(client: redis.Redis, lock: redislock.RLock) -> int:
    """Also called while the lock is held: hence a reentrant one."""
    lock.acquire()
    left = TICKETS - client.llen(SOLD)
    lock.release()
    return left


def buy(client: redis.Redis, buyer: str, pay: Pay) -> bool:
    lock = redislock.RLock(client, LOCK, timeout=LEASE_S, auto_renew=True)
    lock.acquire()
    bought = tickets_left(client, lock) > 0
    if bought:
        pay(buyer)
        lock.exec("RPUSH", SOLD, buyer)
    lock.release()
    return bought
