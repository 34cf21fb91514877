"""SET NX PX with a token, released by a Lua script that compares it: the lock in Redis's own documentation.

Known failure: **it oversells.** The lease may expire while its holder works (a slow payment, a stopped process). The
next buyer acquires the lock, and the first one does not notice: its write succeeds, and its release returns 0, which
the program ignores.
"""

from __future__ import annotations

import time
import uuid

import redis
from sale import LOCK, SOLD, TICKETS, Pay

LEASE_MS = 30_000
RETRY_S = 0.5
RELEASE = """
if redis.call("get", KEYS[1]) == ARGV[1] then
    return redis.call("del", KEYS[1])
end
return 0
"""


def acquire(client: redis.Redis) -> str:
    token = str(uuid.uuid4())
    while not client.set(LOCK, token, nx=True, px=LEASE_MS):
        time.sleep(RETRY_S)
    return token


def release(client: redis.Redis, token: str) -> None:
    client.eval(RELEASE, 1, LOCK, token)


def buy(client: redis.Redis, buyer: str, pay: Pay) -> bool:
    token = acquire(client)
    try:
        if client.llen(SOLD) >= TICKETS:
            return False
        pay(buyer)
        client.rpush(SOLD, buyer)
        return True
    finally:
        release(client, token)
