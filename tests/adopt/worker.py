"""One client of a Python library, unchanged: `worker.py LIBRARY turns|hold PORT KEY TURNS` (modes: `run`)."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import Any, Iterator

import redis

LEASE_S = 2


def of_redis_py(client: Any, key: str) -> Any:
    return client.lock(key, timeout=LEASE_S, sleep=0.005)


def of_python_redis_lock(client: Any, key: str) -> Any:
    import redis_lock

    # The library adds the prefix `lock:` itself.
    return redis_lock.Lock(client, key.removeprefix("lock:"), expire=LEASE_S)


def of_pottery(client: Any, key: str) -> Any:
    from pottery import Redlock

    # The library adds the prefix `redlock:` itself.
    return Redlock(key=key, masters={client}, auto_release_time=LEASE_S)


@contextmanager
def of_redlock_py(client: Any, key: str) -> Iterator[None]:
    import redlock

    manager = redlock.Redlock([client], retry_count=1000, retry_delay=0.005)
    lock = manager.lock(key, LEASE_S * 1000)
    assert lock, "it gave up"
    try:
        yield
    finally:
        manager.unlock(lock)


LIBRARIES = {
    "redis-py": of_redis_py,
    "python-redis-lock": of_python_redis_lock,
    "pottery": of_pottery,
    "redlock-py": of_redlock_py,
}


def main() -> None:
    library, mode, port, key, turns = sys.argv[1:6]
    client = redis.Redis(port=int(port))
    if mode == "hold":
        with LIBRARIES[library](client, key):
            print("held", flush=True)
            time.sleep(600)
    for _ in range(int(turns)):
        with LIBRARIES[library](client, key):
            assert client.incr("inside") == 1, "not alone"
            assert client.decr("inside") == 0, "not alone"
    print("done", flush=True)


main()
