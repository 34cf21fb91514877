"""A wait counts as one wait, however many requests a client splits it into, in LOCK.TOP, LOCK.WAITERS, the counters and
the input of the alerts RedisLockStuck and RedisLockSlowWaits (contrib/prometheus/redis-lock.lua). Tested with each
client as its users install it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from programs import NODE, ROOT, TARGET, ended, kill
from servers import Server, fields, until

SCRIPT = (ROOT / "contrib/prometheus/redis-lock.lua").read_text()

PYTHON = """
import sys, redis, redislock
r = redis.Redis(port=int(sys.argv[1]), socket_timeout=0.5)
lock = redislock.Lock(r, sys.argv[2], timeout=30, blocking_timeout=float(sys.argv[3]))
print("granted" if lock.acquire() else "not granted", flush=True)
"""

IOREDIS = """
import { Redis } from "ioredis";
import { Lock } from "redis-lock-client";
const redis = new Redis(Number(process.argv[2]));
const hold = await new Lock(redis, process.argv[3], { lease: 30_000 })
  .tryAcquire({ wait: 1000 * process.argv[4] });
console.log(hold ? "granted" : "not granted");
process.exit();
"""

NODE_REDIS = IOREDIS.replace("{ Redis }", "{ createClient }").replace('"ioredis"', '"redis"').replace(
    "new Redis(Number(process.argv[2]))",
    "await createClient({ socket: { port: Number(process.argv[2]) } }).connect()",
)

# The length of one request of a wait: 5 s if the connection has no timeout.
SLICE_S: Dict[str, float] = {"python": 0.5, "ioredis": 5, "node-redis": 5, "command line": 5}


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


def start(client: str, server: Server, wait_s: float) -> subprocess.Popen[str]:
    arguments = [str(server.port), "key", str(wait_s)]
    if client == "python":
        words = [sys.executable, "-c", PYTHON, *arguments]
    elif client == "command line":
        program = str(TARGET / "quick/redis-lock")
        words = [program, "-p", arguments[0], "run", "--wait", f"{wait_s}s", "key", "--", "echo", "granted"]
    else:
        # Inside the package, where its own name and its dependencies resolve.
        file = ROOT / "clients/node/build" / f"wait-{client}-{server.port}.mjs"
        file.write_text(IOREDIS if client == "ioredis" else NODE_REDIS)
        words = [NODE, str(file), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def counts(server: Server) -> Dict[str, int]:
    info: Any = server.admin.info("lock")
    return {name: info[f"lock_{name}"] for name in ("superseded", "wait_timeouts", "cancelled", "wait_ms_max")}


def has_no_position(server: Server) -> bool:
    info: Any = server.admin.info("lock")
    return bool(info["lock_waiters"] == info["lock_kept_places"] == 0)


def longest_ms(server: Server) -> Tuple[int, int, int]:
    """The current wait in LOCK.TOP, LOCK.WAITERS and the exporter's script."""
    [lock] = [fields(lock) for lock in server.ask("LOCK.TOP")] or [{"longest": 0}]
    waiters: List[Any] = [fields(waiter) for waiter in server.ask("LOCK.WAITERS", "key")] or [{"waited": 0}]
    exported = fields(server.ask("EVAL", SCRIPT, 0))
    return lock["longest"], waiters[0]["waited"], int(exported.get("lock_top_longest_ms", 0))


@pytest.mark.parametrize("client", SLICE_S)
def test_a_wait_may_be_longer_than_one_of_its_requests(server: Server, client: str) -> None:
    past_a_slice = SLICE_S[client] * 1000 + 1000
    server.ask("LOCK.ACQUIRE", "key", "holder", "EX", 300)
    waiting = start(client, server, 60)
    try:
        until(lambda: min(longest_ms(server)) > past_a_slice, "the wait is counted from its beginning")
        assert set(counts(server).values()) == {0}
        server.ask("LOCK.RELEASE", "key", "holder")
        assert ended(waiting) == (0, "granted\n")
        reported = counts(server)
        assert reported.pop("wait_ms_max") > past_a_slice
        assert set(reported.values()) == {0}
    finally:
        kill(waiting)


@pytest.mark.parametrize("client", SLICE_S)
def test_a_wait_times_out_once(server: Server, client: str) -> None:
    server.ask("LOCK.ACQUIRE", "key", "holder", "EX", 300)
    status, printed = ended(start(client, server, SLICE_S[client] + 1))
    assert "granted\n" not in printed or "not granted\n" in printed, printed
    until(lambda: has_no_position(server), "the reserved position has ended")
    reported = counts(server)
    # A client that gives up a moment before the server does withdraws its request.
    assert reported.pop("wait_timeouts") + reported.pop("cancelled") == 1
    assert reported == {"superseded": 0, "wait_ms_max": 0}
