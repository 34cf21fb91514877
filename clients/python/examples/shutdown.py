"""A worker that ends cleanly on SIGTERM: it leaves the queue, or finishes its step and releases the lock."""

import signal
import subprocess
import sys
import threading

import redis
import redislock


def terminated(*_: object) -> None:
    # While the worker waits: SystemExit ends the wait. While it works: after the step.
    stopping.set()
    if not working.is_set():
        sys.exit(0)


stopping, working = threading.Event(), threading.Event()
signal.signal(signal.SIGTERM, terminated)
client = redis.Redis(port=int(sys.argv[1]) if len(sys.argv) > 1 else 6379)
while not stopping.is_set():
    with redislock.Lock(client, "worker", timeout=30, auto_renew=True) as lock:
        working.set()
        while not stopping.is_set() and not lock.lost:
            # In a separate process session, so that a signal from the terminal or the service does not end the step.
            subprocess.run(["./step"], check=True, start_new_session=True)
    working.clear()
