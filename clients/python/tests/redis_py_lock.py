"""Runs redis-py's own tests of its lock, from its source distribution, against redislock.Lock.

Loaded as a plugin by `clients/python/test`; the tests are redis-py's own files, none of them changed.
"""

from __future__ import annotations

from typing import Any

import pytest
import redislock
import redislock.asyncio

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
        if "asyncio" in item.module.__name__:
            item.module.Lock = redislock.asyncio.Lock
        else:
            item.module.Lock = redislock.Lock
        reason = SKIPPED.get(item.originalname)
        if reason is not None and item.cls is not None and item.cls.__name__ == "TestLock":
            item.add_marker(pytest.mark.skip(reason=reason))
