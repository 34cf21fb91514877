"""Locks that do not know the module, unchanged, on a server that adopts their keys: the five of examples/predecessors,
and redis-py's own. The matrix of libraries is `make test-adopt`.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any, Iterator, List

import pytest
import redis
from servers import ROOT, Server, until

HERE = ROOT / "examples/predecessors"
KEY = "lock:tickets"
# The counter is not a lock with a token but a number: it stays a string.
PROGRAMS = [
    ("set_nx_lua", "lock:*", True),
    ("setnx_expire_watch", "lock:*", True),
    ("counter", "lock:*", False),
    ("lua_hash_watchdog", "hash:lock:*", True),
    ("lock_object", "lock:*", True),
]


@pytest.fixture()
def adopting() -> Iterator[Server]:
    server = Server("--lock.adopt", "lock:*")
    yield server
    server.stop()


# One after another: a sale alone may occupy every core.
@pytest.mark.xdist_group("sale")
@pytest.mark.parametrize("program, patterns, is_native", PROGRAMS)
def test_a_predecessor_sells_ten_tickets_as_it_is(
    adopting: Server, program: str, patterns: str, is_native: bool
) -> None:
    adopting.admin.config_set("lock.adopt", patterns)
    sale = [sys.executable, str(HERE / "sale.py"), program, "--port", str(adopting.port), "--buyers", "100"]
    found = subprocess.run(sale, capture_output=True, text=True)
    assert found.returncode == 0 and found.stderr == "", found
    assert found.stdout.startswith(f"{program}: 10 of 10 tickets sold to 10 of 100 buyers"), found
    adopted = int(adopting.admin.info("lock")["lock_adopted_acquires"])
    assert (adopted >= 100) == is_native, adopted


def test_redis_pys_lock_is_native_and_hands_over_to_a_waiter(adopting: Server) -> None:
    client = redis.Redis(port=adopting.port)
    lock = client.lock(KEY, timeout=60)
    assert lock.acquire(blocking=False)
    token = lock.local.token.decode()
    assert [holder["owner"] for holder in adopting.holders(KEY)] == [token]
    granted: List[Any] = []
    waiter = threading.Thread(
        target=lambda: granted.append(
            redis.Redis(port=adopting.port).execute_command("LOCK.ACQUIRE", KEY, "native", "PX", 60000, "BLOCK", 60000)
        )
    )
    waiter.start()
    until(lambda: adopting.waiters(KEY) == ["native"], "a waiter")
    assert lock.locked() and lock.owned()
    lock.extend(60)
    lock.reacquire()
    lock.release()
    waiter.join(60)
    assert granted[0][0] == b"native"
    assert not client.lock(KEY, timeout=60).acquire(blocking=False)
    assert adopting.ask("LOCK.RELEASE", KEY, "native") == 1
    # redis-py itself reports that the release is too late.
    assert lock.acquire(blocking=False)
    adopting.ask("LOCK.BREAK", KEY)
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        lock.release()


def test_pollers_wait_in_the_queue_with_adopt_wait(adopting: Server) -> None:
    adopting.admin.config_set("lock.adopt-wait", 5000)
    lock = redis.Redis(port=adopting.port).lock(KEY, timeout=60)
    assert lock.acquire(blocking=False)
    others = [redis.Redis(port=adopting.port).lock(KEY, timeout=60, sleep=0.01) for _ in range(3)]
    order: List[int] = []

    def turn(number: int) -> None:
        with others[number]:
            order.append(number)

    threads = []
    for number in range(3):
        threads.append(threading.Thread(target=turn, args=(number,)))
        threads[-1].start()
        until(lambda: len(adopting.waiters(KEY)) == number + 1, "a waiter")
    lock.release()
    for thread in threads:
        thread.join(60)
    assert order == [0, 1, 2]
