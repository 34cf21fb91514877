"""The examples of a worker that ends by SIGTERM: nothing is left in the queue, and no lock for its lease to end. And
owners that end without a release: nobody renews their locks."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis
import redislock
from servers import ROOT, Server, until

EXAMPLES = ROOT / "clients/python/examples"


@pytest.mark.parametrize("when", ["waiting", "working"])
@pytest.mark.parametrize("example", ["shutdown.py", "shutdown_asyncio.py"])
def test_a_worker_that_is_told_to_end(server: Server, tmp_path: Path, example: str, when: str) -> None:
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


def test_a_hold_that_is_dropped_is_renewed_no_more_without_a_garbage_collection(server: Server) -> None:
    """A thread that ends without a release takes its hold along: at once, not with the next full collection."""

    def leaves_its_lock(client: redis.Redis) -> None:
        lock = redislock.RLock(client, "left", timeout=0.6, auto_renew=True)
        lock.acquire()
        lock.acquire()
        lock.release()

    gc.disable()
    try:
        thread = threading.Thread(target=leaves_its_lock, args=(redis.Redis(port=server.port),))
        thread.start()
        thread.join()
        renews = "redislock renew left"
        until(lambda: not any(each.name == renews for each in threading.enumerate()), "the end of its renewals")
        until(lambda: not server.admin.exists("left"), "the end of the lease")
    finally:
        gc.enable()
