"""One thread renews all holds of the process: no hold delays another; it survives a fork, and ends when idle."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from typing import Any

import redis
import redislock
from redislock._sync import _renewer
from servers import Proxy, Server, eventually, until


def threads() -> int:
    return sum(each.name == _renewer.NAME for each in threading.enumerate())


def renewals(server: Server) -> int:
    return server.calls("lock.renew")


def lock_of(server: Server, name: str, **options: Any) -> redislock.Lock[Any]:
    options = {"timeout": 0.6, "auto_renew": True, **options}
    return redislock.Lock(redis.Redis(port=server.port), name, **options)


def test_many_holds_need_no_more_threads_and_none_when_they_end(server: Server) -> None:
    until(lambda: not threads(), "the end of earlier ones")
    client = redis.Redis(port=server.port)
    locks = [redislock.Lock(client, f"k{number}", timeout=1.5, auto_renew=True) for number in range(50)]
    for lock in locks:
        assert lock.acquire()
    most, ends = 0, time.monotonic() + 3
    while time.monotonic() < ends:
        most = max(most, threads())
        time.sleep(0.01)
    assert not any(lock.lost for lock in locks) and renewals(server) >= 100
    # Far fewer than holds; how many run at the same time depends on the machine.
    assert 1 <= most <= 15, most
    for lock in locks:
        lock.release()
    assert not _renewer._renewer._paused
    until(lambda: not threads(), "the end of the threads")
    # The next hold has a thread again.
    assert locks[0].acquire()
    time.sleep(2)
    assert not locks[0].lost
    locks[0].release()


async def test_a_server_that_is_silent_delays_no_renewal_at_another(server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, named = redis.Redis(port=proxy.port), {"timeout": 30, "auto_renew": True, "thread_local": False}
        silent: Any = [redislock.Lock(client, f"silent {number}", **named) for number in range(5)]
        for each in silent:
            await asyncio.to_thread(each.acquire)
        renewing = [renewal for each in silent for renewal in each.local.hold.background]
        proxy.silence()
        for renewal in renewing:
            # As after a third of the lease.
            renewal.due = renewal.early = 0
        lock = lock_of(server, "k")
        assert lock.acquire()
        await eventually(lambda: all(renewal._running.locked() for renewal in renewing), "renewals without a reply")
        before = renewals(server)
        await eventually(lambda: renewals(server) >= before + 8, "renewals for longer than the lease")
        assert not lock.lost and all(renewal._running.locked() for renewal in renewing)
        lock.release()
        proxy.speak()
        for each in silent:
            await asyncio.to_thread(each.release)


def test_on_lost_that_blocks_delays_no_renewal(server: Server) -> None:
    reported, goes_on = threading.Event(), threading.Event()

    def on_lost(grant: Any) -> None:
        reported.set()
        goes_on.wait(60)

    lost, lock = lock_of(server, "lost", on_lost=on_lost), lock_of(server, "k")
    assert lost.acquire() and lock.acquire()
    server.ask("LOCK.BREAK", "lost")
    assert reported.wait(60)
    before = renewals(server)
    until(lambda: renewals(server) >= before + 8, "renewals for longer than the lease")
    assert not lock.lost
    goes_on.set()
    lock.release()


def test_on_lost_that_ends_its_thread_ends_no_renewal(server: Server) -> None:
    def on_lost(grant: Any) -> None:
        sys.exit(3)

    lost, lock = lock_of(server, "lost", on_lost=on_lost), lock_of(server, "k")
    assert lost.acquire() and lock.acquire()
    server.ask("LOCK.BREAK", "lost")
    until(lambda: lost.lost, "the loss")
    before = renewals(server)
    until(lambda: renewals(server) >= before + 8, "renewals for longer than the lease")
    assert not lock.lost
    lock.release()


def test_a_forked_child_renews_its_own_holds(server: Server) -> None:
    parents = lock_of(server, "parent")
    assert parents.acquire()
    (renewal,) = parents.local.hold.background
    # As if the fork happened during a renewal, which never ends in the child.
    renewal._running.acquire()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            lock = lock_of(server, "child")
            assert lock.acquire() and renewal.is_over()
            time.sleep(1.5)
            assert not lock.lost and server.holders("child")
            began = time.monotonic()
            renewal.join(60)
            assert time.monotonic() - began < 30
            lock.release()
            status = 0
        finally:
            os._exit(status)
    renewal._running.release()
    assert os.waitpid(child, 0)[1] == 0
    assert not parents.lost
    parents.release()


ENDS_WITH_A_HOLD = """
import sys, redis, redislock
lock = redislock.Lock(redis.Redis(port=int(sys.argv[1])), "k", timeout=0.3, auto_renew=True)
assert lock.acquire()
until = __import__("time").monotonic() + float(sys.argv[2])
while __import__("time").monotonic() < until: pass
"""


def test_a_process_that_ends_with_a_hold_ends_in_silence(server: Server) -> None:
    # At different moments of a renewal.
    for busy_s in (0, 0.1, 0.2, 0.25):
        words = [sys.executable, "-c", ENDS_WITH_A_HOLD, str(server.port), str(busy_s)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
        until(lambda: server.info("k") is None, "the end of the lease")


def test_what_is_stopped_is_not_kept(server: Server) -> None:
    lock = lock_of(server, "k", timeout=60, on_lost=print)
    for _ in range(20):
        with lock:
            assert len(_renewer._renewer._paused) == 2
        assert not _renewer._renewer._paused
