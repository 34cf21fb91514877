"""The examples of a worker that ends on SIGTERM: no request stays in the queue, and no lock stays held until its lease
expires. And owners that end without a release: nothing renews their locks."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Iterator

import pytest
import redis
import redislock
import redislock.asyncio
from apis import AsyncioApi
from redislock._sync._renewer import NAME
from servers import ROOT, Server, until

EXAMPLES = ROOT / "clients/python/examples"


@pytest.mark.parametrize("when", ["waiting", "working"])
@pytest.mark.parametrize("example", ["shutdown.py", "shutdown_asyncio.py"])
def test_a_worker_that_gets_sigterm(server: Server, tmp_path: Path, example: str, when: str) -> None:
    step = tmp_path / "step"
    step.write_text("#!/bin/sh\necho begun >>steps\nsleep 0.5\necho ended >>steps\n")
    step.chmod(0o755)
    if when == "waiting":
        server.ask("LOCK.ACQUIRE", "worker", "somebody", "PX", 60_000)
    words = [sys.executable, str(EXAMPLES / example), str(server.port)]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        try:
            if when == "waiting":
                until(lambda: server.waiters("worker"), "a waiter")
            elif example == "shutdown.py":
                until(lambda: (tmp_path / "steps").exists(), "a step")
            else:
                assert worker.stdout and worker.stdout.readline() == "a step\n"
            worker.send_signal(signal.SIGTERM)
            _, said = worker.communicate(timeout=30)
        finally:
            worker.kill()
    assert worker.returncode == 0, said
    assert not server.waiters("worker")
    assert [holder["owner"] for holder in server.holders("worker")] == (["somebody"] if when == "waiting" else [])
    if when == "working" and example == "shutdown.py":
        begun, ended = ((tmp_path / "steps").read_text().split().count(word) for word in ("begun", "ended"))
        assert begun == ended, "the step was cut"


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def expires(server: Server) -> None:
    until(lambda: not any(each.name == NAME for each in threading.enumerate()), "the end of its renewals")
    until(lambda: not server.admin.exists("left"), "the end of the lease")


def test_the_hold_of_a_thread_ends_with_it(server: Server, no_collection: None) -> None:
    def leaves_its_lock(client: redis.Redis) -> None:
        lock = redislock.RLock(client, "left", timeout=0.6, auto_renew=True)
        lock.acquire()
        lock.acquire()
        lock.release()

    thread = threading.Thread(target=leaves_its_lock, args=(redis.Redis(port=server.port),))
    thread.start()
    thread.join()
    expires(server)


def test_the_hold_of_a_dropped_lock_ends_with_it(server: Server, no_collection: None) -> None:
    assert redislock.Lock(redis.Redis(port=server.port), "left", timeout=0.6, auto_renew=True).acquire()
    expires(server)


def test_the_hold_of_a_dropped_asyncio_lock_ends_with_it(server: Server, no_collection: None) -> None:
    async def leaves_its_lock() -> None:
        client = AsyncioApi().client(server.port)
        assert await redislock.asyncio.Lock(client, "left", timeout=0.6, auto_renew=True).acquire()
        give_up_at = time.monotonic() + 10
        while server.admin.exists("left"):
            assert time.monotonic() < give_up_at, "the lock is still renewed"
            await asyncio.sleep(0.05)
        await client.aclose()

    asyncio.run(leaves_its_lock())
