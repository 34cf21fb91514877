"""A lock object with two timeouts; its key holds the time at which the lock may be taken over (SETNX, GETSET).

Known failure: **it oversells.** Its release deletes the key without checking the owner. A holder that took longer than
`expires` frees the lock of the client that took over, although that hold has not expired; a third client acquires it.

It also compares the clocks of different machines.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Optional, Type

import redis
from sale import LOCK, SOLD, TICKETS, Pay

EXPIRES_S = 30.0
TIMEOUT_S = 60.0
RETRY_S = 0.5


class LockTimeout(Exception):
    pass


class Lock:
    """`expires`: seconds after which others may take it over; `timeout`: seconds to wait for it."""

    def __init__(self, client: redis.Redis, key: str, expires: float, timeout: float) -> None:
        self.client = client
        self.key = key
        self.expires = expires
        self.timeout = timeout

    def __enter__(self) -> None:
        timeout = self.timeout
        while timeout >= 0:
            ends = str(time.time() + self.expires)
            if self.client.setnx(self.key, ends):
                return
            current = self.client.get(self.key)
            # If it has expired, take it over, unless another client was faster.
            if current and float(current) < time.time():
                if self.client.getset(self.key, ends) == current:
                    return
            timeout -= RETRY_S
            time.sleep(RETRY_S)
        raise LockTimeout(self.key)

    def __exit__(
        self,
        exc_type: Optional[Type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.client.delete(self.key)


def buy(client: redis.Redis, buyer: str, pay: Pay) -> bool:
    with Lock(client, LOCK, EXPIRES_S, TIMEOUT_S):
        if client.llen(SOLD) >= TICKETS:
            return False
        pay(buyer)
        client.rpush(SOLD, buyer)
        return True
