"""lua_hash_watchdog.py on redislock, with the same bug: no `with` and no `finally`, to show the consequence.

`auto_renew` renews a hold only as long as its owner exists. When a thread ends without a release, the renewals stop and
the lease expires.
"""

from __future__ import annotations

import redis
import redislock
from sale import LOCK, SOLD, TICKETS, Pay

LEASE_S = 30.0


def tickets_left(client: redis.Redis, lock: redislock.RLock) -> int:
    """Also called while the lock is held, so the lock has to be reentrant."""
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
