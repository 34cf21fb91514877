"""Locks with a client that caches replies (RESP3, CLIENT TRACKING): the cache answers none of their commands."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redislock
from servers import Server, until

cache = pytest.importorskip("redis.cache", reason="this redis-py caches nothing")


@pytest.fixture()
def client(server: Server, monkeypatch: Any) -> Any:
    found: Any = server.admin.info("server")
    if found.get("server_name") == "valkey":
        pytest.skip("redis-py caches nothing of Valkey")
    # redis-py caches from Redis 7.4 on; the commands that it needs are older.
    monkeypatch.setattr("redis.connection.CacheProxyConnection.MIN_ALLOWED_VERSION", "7.0.0")
    client = redis.Redis(port=server.port, protocol=3, cache_config=cache.CacheConfig())
    client.set("cached", "1")
    assert client.get("cached") == b"1" and client.get_cache().size == 1
    yield client
    client.close()


def test_locked_asks_the_server_each_time(client: Any, server: Server) -> None:
    locks = [redislock.Lock(client, "k", timeout=60), redislock.MultiLock(client, ["k", "l"], timeout=60)]
    for lock in locks:
        assert not lock.locked()
        with lock:
            assert lock.locked() and lock.owned()
        assert not lock.locked()
    # The cache is the client's own, and is not touched.
    assert client.get_cache().size == 1 and client.get("cached") == b"1"
    # An invalidation that arrives before a reply is not mistaken for it.
    server.ask("SET", "cached", "2")
    assert not locks[0].locked()
    until(lambda: client.get("cached") == b"2", "the invalidation")


def test_a_key_of_another_type_is_reported(client: Any, server: Server) -> None:
    server.ask("SET", "k", "a string")
    with pytest.raises(redislock.WrongTypeError, match="is a string"):
        redislock.Lock(client, "k", timeout=60).acquire(blocking=False)


def test_a_session_and_a_wait(client: Any, server: Server) -> None:
    with redislock.Lock(client, "k", timeout=60, session=True) as lock:
        assert lock.exec("GET", "cached") == b"1" and lock.owned()
        assert not redislock.Lock(client, "k", timeout=60).acquire(blocking_timeout=0.2)
    assert redislock.once(client, "once", lambda: None, lambda: "made") == "made"
