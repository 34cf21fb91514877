"""A counter: the client that increments it to 1 has the lock; all others decrement it again.

Known failure: **it is never acquired.** It compares the counter with "1". redis-py returns bytes unless the client was
created with decode_responses=True, and b"1" is not "1": every buyer polls indefinitely, without an error.

It has no lease either, and concurrent attempts block each other, hence the growing random pauses.
"""

from __future__ import annotations

import random
import time

import redis
from sale import LOCK, SOLD, TICKETS, Pay

FIRST_RETRY_S = 0.05
LAST_RETRY_S = 3.2


def acquire(client: redis.Redis) -> None:
    longest = FIRST_RETRY_S
    while True:
        client.incr(LOCK)
        if client.get(LOCK) == "1":
            return
        client.decr(LOCK)
        time.sleep(random.uniform(0, longest))
        longest = min(2 * longest, LAST_RETRY_S)


def release(client: redis.Redis) -> None:
    client.decr(LOCK)


def buy(client: redis.Redis, buyer: str, pay: Pay) -> bool:
    acquire(client)
    try:
        if client.llen(SOLD) >= TICKETS:
            return False
        pay(buyer)
        client.rpush(SOLD, buyer)
        return True
    finally:
        release(client)
