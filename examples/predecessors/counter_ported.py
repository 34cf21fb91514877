"""counter.py on redislock. The server decides and names the holder; no reply is compared by the program.

Clients with and without decode_responses may share it. Waiters are queued and woken in order; no client polls.
"""

from __future__ import annotations

import redis
import redislock
from sale import LOCK, SOLD, TICKETS, Pay

LEASE_S = 30


def buy(client: redis.Redis, buyer: str, pay: Pay) -> bool:
    with redislock.Lock(client, LOCK, timeout=LEASE_S) as lock:
        if client.llen(SOLD) >= TICKETS:
            return False
        pay(buyer)
        lock.exec("RPUSH", SOLD, buyer)
        return True
