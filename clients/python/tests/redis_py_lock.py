"""Runs redis-py's own tests of its lock, from its source distribution, against redislock.Lock; and unchanged, with
redis-py's own lock, on a server that adopts every key.

    python tests/redis_py_lock.py DIRECTORY_OF_THE_SOURCE_DISTRIBUTION [adopted]

redis-py's test files are not changed: this is a pytest plugin that replaces redis-py's class with ours. On the adopting
server no plugin is loaded and no test is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import redislock
import redislock.asyncio

TESTS = ["tests/test_lock.py", "tests/test_asyncio/test_lock.py"]

STORED = "looks at the stored value itself, which is no string any more"
POLLED = "counts the pauses of a client that polls; ours waits in the server's queue"
SKIPPED = {
    "test_lock": STORED,
    "test_lock_token": STORED,
    "test_lock_token_thread_local_false": STORED,
    "test_context_manager": STORED,
    "test_blocking_timeout": POLLED,
    "test_context_manager_blocking_timeout": POLLED,
}


def pytest_collection_modifyitems(items: Any) -> None:
    for item in items:
        item.module.Lock = redislock.asyncio.Lock if "asyncio" in item.module.__name__ else redislock.Lock
        reason = SKIPPED.get(item.originalname)
        if reason is not None and item.cls.__name__ == "TestLock":
            item.add_marker(pytest.mark.skip(reason=reason))


def main(directory: str, is_adopted: bool) -> int:
    from servers import Server

    server = Server(*["--lock.adopt", "*"] if is_adopted else [])
    try:
        here = os.path.dirname(os.path.abspath(__file__))
        words = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
        words += [] if is_adopted else ["-p", "redis_py_lock"]
        words += ["-W", "ignore", "--redis-url", f"redis://127.0.0.1:{server.port}/0"]
        code = subprocess.call([*words, *TESTS], cwd=directory, env={**os.environ, "PYTHONPATH": here})
        adopted = int(server.admin.info("lock")["lock_adopted_acquires"])
        assert (adopted > 50) == is_adopted, f"{adopted} grants were native"
        return code
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "adopted" in sys.argv[2:]))
