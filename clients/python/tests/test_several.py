"""The README's cases of several users of one lock: tasks that share an object, processes, forks, green threads."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest
import redis
import redislock
import redislock.asyncio
from apis import AsyncioApi
from redis.exceptions import LockNotOwnedError
from servers import Server, until


async def test_tasks_that_share_a_lock_object_share_what_it_holds(server: Server) -> None:
    api = AsyncioApi()
    client = api.client(server.port)
    lock = redislock.asyncio.Lock(client, "k", timeout=60)
    assert await lock.acquire()
    # Lost by its first task, and acquired by the second one through the same object: a release by either ends that
    # hold.
    server.ask("LOCK.BREAK", "k")
    assert await asyncio.ensure_future(lock.acquire())
    assert await lock.owned()
    await lock.release()
    assert server.info("k") is None
    # With one object per task, the loss is reported to the first task, and the second task keeps its hold.
    first, second = (redislock.asyncio.Lock(client, "k", timeout=60) for _ in range(2))
    assert await first.acquire()
    server.ask("LOCK.BREAK", "k")
    assert await second.acquire()
    with pytest.raises(LockNotOwnedError):
        await first.release()
    assert await second.owned()
    await second.release()
    await api.end()


def test_a_lock_is_handed_on_to_another_process_by_its_token(server: Server) -> None:
    lock = redislock.Lock(redis.Redis(port=server.port), "k", timeout=60)
    assert lock.acquire()
    there = """
import redis, redislock, sys
lock = redislock.Lock(redis.Redis(port=int(sys.argv[1])), "k", timeout=60)
lock.local.token = sys.argv[2].encode()
assert lock.owned() and lock.reacquire()
lock.release()
"""
    subprocess.run([sys.executable, "-c", there, str(server.port), lock.local.token.decode()], check=True)
    assert server.info("k") is None
    with pytest.raises(LockNotOwnedError):
        lock.release()


def test_what_is_held_over_a_fork_is_renewed_by_the_parent_alone(server: Server) -> None:
    lock = redislock.Lock(redis.Redis(port=server.port), "k", timeout=0.6, auto_renew=True)
    assert lock.acquire()
    child = os.fork()
    if child == 0:
        time.sleep(1)
        # Its own deadline has passed, and nothing here renews it.
        os._exit(0 if lock.lost and lock.owned() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not lock.lost
    lock.release()


GREEN = """
import sys
if sys.argv[2] == "gevent":
    from gevent import monkey
    monkey.patch_all()
    from gevent import Timeout, joinall, spawn
else:
    import eventlet
    eventlet.monkey_patch()
    from eventlet import Timeout, spawn
    joinall = lambda threads: [thread.wait() for thread in threads]
import time, redis, redislock
client = redis.Redis(port=int(sys.argv[1]))
lock = redislock.Lock(client, "k", timeout=0.6, auto_renew=True)
inside, most = [0], [0]

def work():
    with lock:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.05)
        inside[0] -= 1

def renewed():
    with lock:
        time.sleep(1.5)
        assert not lock.lost

joinall([spawn(work) for _ in range(8)] + [spawn(renewed)])
assert most == [1]
client.execute_command("LOCK.ACQUIRE", "k", "other", "PERSIST")
try:
    with Timeout(0.2):
        lock.acquire()
except Timeout:
    print("given up", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["gevent", "eventlet"])
def test_green_threads_take_turns_renew_and_give_up(server: Server, kind: str) -> None:
    pytest.importorskip(kind)
    words = [sys.executable, "-W", "ignore", "-c", GREEN, str(server.port), kind]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            assert process.stdout.readline() == "given up\n"
            until(lambda: not server.waiters("k"), "an empty queue")
            assert server.calls("lock.cancel") == 1
        finally:
            process.stdin.close()
