"""If no thread can be started (RLIMIT_NPROC), an acquire that needs one raises and leaves no lock behind."""

from __future__ import annotations

import subprocess
import sys

import pytest
from servers import Server

WORKER = """
import os, resource, sys, threading, time, redis, redislock
client, case, option = redis.Redis(port=int(sys.argv[1])), sys.argv[2], sys.argv[3]
options = {"auto_renew": {"auto_renew": True}, "session": {"session": True}, "on_lost": {"on_lost": print}}[option]

def once(**options):
    options.setdefault("auto_renew", False)
    redislock.once(client, "k", lambda: None, lambda: 1, timeout=60, **options)

def upgrade(**options):
    lock = redislock.RWLock(client, "k", timeout=60, token="me", **options)
    with lock.read():
        extend(lock.read())

def extend(lock):
    # What keeps this hold alive continues when another thread cannot start.
    kept = list(lock.local.hold.background)
    if option == "session":
        limited(lambda: lock.extend(30, replace_ttl=True))
        assert kept and lock.local.hold.background == kept
    else:
        # The thread that renews serves this one as well.
        limited(lambda: lock.extend(30, replace_ttl=True), needs_thread=False)
        assert kept and lock.local.hold.background and lock.local.hold.background != kept
    assert not any(each.is_over() for each in lock.local.hold.background)

def limited(call, needs_thread=True):
    resource.setrlimit(resource.RLIMIT_NPROC, (0, most))
    try:
        call()
    except RuntimeError as error:
        assert needs_thread and "thread" in str(error), error
    else:
        if needs_thread:
            raise SystemExit("a thread was started: the limit does not bind")
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))

def acquire(lock):
    limited(lock.acquire)
    assert lock.grant is None and not lock.owned()
    locks.append(lock)

cases = {
    "mutex": lambda: acquire(redislock.Lock(client, "k", timeout=60, **options)),
    "reentrant": lambda: acquire(redislock.RLock(client, "k", timeout=60, **options)),
    "read": lambda: acquire(redislock.RWLock(client, "k", timeout=60, **options).read()),
    "semaphore": lambda: acquire(redislock.Semaphore(client, "k", 2, timeout=60, **options)),
    "multi": lambda: acquire(redislock.MultiLock(client, ["k", "l"], timeout=60, **options)),
    "once": lambda: limited(lambda: once(**options)),
    "renewed by hand": lambda: upgrade(**options),
}
locks = []
# Imports the lazily imported modules before the user changes.
with redislock.Lock(client, "first", timeout=60, **options): pass
while threading.active_count() > 1: time.sleep(0.01)
if os.getuid() == 0:
    # The limit does not bind root.
    os.setgid(65534)
    os.setuid(65534)
most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
cases[case]()
print("raised", flush=True)
sys.stdin.readline()
for lock in locks:
    with lock: assert lock.grant
print("acquired", flush=True)
"""

CASES = ["mutex", "reentrant", "read", "semaphore", "multi", "once", "renewed by hand"]


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_NPROC counts threads on Linux")
@pytest.mark.parametrize("option", ["auto_renew", "session", "on_lost"])
@pytest.mark.parametrize("case", CASES)
def test_a_grant_whose_thread_cannot_start_is_released(server: Server, case: str, option: str) -> None:
    words = [sys.executable, "-c", WORKER, str(server.port), case, option]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "raised\n"
        # The process goes on: only its withdrawal frees the lock.
        assert server.info("k") is None and server.info("l") is None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "acquired\n"
    assert process.returncode == 0
