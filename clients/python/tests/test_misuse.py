"""Mistakes that would fail late or take the wrong lock are refused at construction and by the type checker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redislock
import redislock.asyncio
from servers import Server

LOCK_TYPES = {
    "Lock": lambda locks, client: locks.Lock(client, "k"),
    "RLock": lambda locks, client: locks.RLock(client, "k"),
    "RWLock": lambda locks, client: locks.RWLock(client, "k"),
    "Semaphore": lambda locks, client: locks.Semaphore(client, "k", 2),
    "MultiLock": lambda locks, client: locks.MultiLock(client, ["k"]),
    "from_token": lambda locks, client: locks.Lock.from_token(client, "k", "token"),
    "RWLock.from_token": lambda locks, client: locks.RWLock.from_token(client, "k", "token", "READ"),
}


@pytest.mark.parametrize("lock_type", LOCK_TYPES)
def test_a_client_of_the_other_kind_is_refused(lock_type: str) -> None:
    with pytest.raises(TypeError, match=r"class from redislock.asyncio$"):
        LOCK_TYPES[lock_type](redislock, redis.asyncio.Redis())
    with pytest.raises(TypeError, match=r"class from redislock$"):
        LOCK_TYPES[lock_type](redislock.asyncio, redis.Redis())


async def test_once_refuses_a_client_of_the_other_kind() -> None:
    with pytest.raises(TypeError, match="redislock.asyncio"):
        redislock.once(redis.asyncio.Redis(), "k", lambda: None, lambda: 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="redislock$"):
        await redislock.asyncio.once(redis.Redis(), "k", None, None)  # type: ignore[arg-type]


async def test_a_bare_string_is_no_sequence_of_names(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    for names in ("ab", b"ab", memoryview(b"ab")):
        with pytest.raises(TypeError, match=r"\['ab'\]|for one"):
            api.locks.MultiLock(client, names)
        with pytest.raises(TypeError, match="for one"):
            api.locks.MultiLock.from_token(client, names, "token")
    with pytest.raises(ValueError, match="at least one name"):
        api.locks.MultiLock(client, [])
    for names in (["a", b"b"], ("a", "b"), {"a": 1, "b": 2}.keys(), (name for name in "ab")):
        lock = api.locks.MultiLock(client, names, timeout=60)
        assert lock.name in ("a, b", "a, b'b'")
        await actor.do(lock.acquire)
        assert sorted(server.admin.keys()) == ["a", "b"]
        await actor.do(lock.release)


TYPED = """
import redis, redis.asyncio, redislock, redislock.asyncio
sync, of_asyncio = redis.Redis(), redis.asyncio.Redis()
redislock.MultiLock(sync, ["a", b"b"])
redislock.MultiLock(sync, {"a": 1}.keys())
redislock.asyncio.MultiLock(of_asyncio, ("a", "b"))
redislock.Lock(redis.RedisCluster(), "k")
redislock.asyncio.Lock(redis.asyncio.RedisCluster(), "k")
redislock.Lock(redislock.Redis(), "k")
redislock.MultiLock(sync, "ab")
redislock.MultiLock(sync, b"ab")
redislock.asyncio.MultiLock(of_asyncio, "ab")
redislock.Lock(of_asyncio, "k")
redislock.asyncio.Lock(sync, "k")
redislock.RLock(of_asyncio, "k")
redislock.RWLock(of_asyncio, "k")
redislock.Semaphore(of_asyncio, "k", 2)
redislock.asyncio.Semaphore(sync, "k", 2)
redislock.once(of_asyncio, "k", lambda: None, lambda: 1)
"""


def test_the_types_refuse_them(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    words = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", "cache", "typed.py"]
    checked = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    lines = TYPED.splitlines()
    first = lines.index('redislock.MultiLock(sync, "ab")') + 1
    wrong = sorted({int(line.split(":")[1]) for line in checked.stdout.splitlines() if ": error:" in line})
    assert wrong == list(range(first, len(lines) + 1)), checked.stdout
