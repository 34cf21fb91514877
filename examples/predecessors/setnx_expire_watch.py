"""SETNX, then EXPIRE; released by WATCH, GET, MULTI, DEL, EXEC: the lock from before Redis 2.6.12.

Known failure: **it is never released.** A process that dies between SETNX and EXPIRE leaves a lock without expiry: all
others poll for it until an operator deletes the key.
"""

from __future__ import annotations

import time
import uuid

import redis
from sale import LOCK, SOLD, TICKETS, Pay

LEASE_S = 30
RETRY_S = 0.5


def acquire(client: redis.Redis) -> str:
    token = str(uuid.uuid4())
    while not client.setnx(LOCK, token):
        time.sleep(RETRY_S)
    client.expire(LOCK, LEASE_S)
    return token


def release(client: redis.Redis, token: str) -> bool:
    with client.pipeline() as pipe:
        while True:
            try:
                pipe.watch(LOCK)
                if pipe.get(LOCK) != token:
                    return False
                pipe.multi()
                pipe.delete(LOCK)
                pipe.execute()
                return True
            except redis.WatchError:
                continue


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
