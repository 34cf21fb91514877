"""django-redis's cache.lock and celery-once, as installed, with one import or setting changed."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redislock
import redislock.asyncio
from servers import Server


def test_the_lock_class_argument(server: Server) -> None:
    lock = redis.Redis(port=server.port).lock("x", timeout=30, lock_class=redislock.Lock)
    assert isinstance(lock, redislock.Lock)
    with lock:
        assert server.ask("TYPE", "x") == "redislock"


async def test_a_client_whose_lock_is_ours(api: Any, server: Server) -> None:
    client, actor = api.closes(api.locks.Redis(port=server.port)), api.actor()
    lock = client.lock("x", 30, blocking_timeout=5)
    assert isinstance(lock, api.locks.Lock)
    assert await actor.do(lock.acquire)
    assert server.ask("TYPE", "x") == "redislock"
    await actor.do(lock.release)

    class Mixed(api.locks.Redis):  # type: ignore[misc, name-defined]
        lock_options = {"mixed": True}

    assert api.closes(Mixed(port=server.port)).lock("x").mixed


def test_django_redis(server: Server) -> None:
    django_redis = pytest.importorskip("django_redis")
    from django.conf import settings

    if not settings.configured:
        settings.configure()
    from django_redis.cache import RedisCache

    options = {"OPTIONS": {"REDIS_CLIENT_CLASS": "redislock.Redis"}}
    cache = RedisCache(f"redis://127.0.0.1:{server.port}/0", options)
    lock = cache.lock("report", timeout=30, blocking_timeout=1)
    assert isinstance(lock, redislock.Lock), django_redis.__version__
    with lock:
        assert server.ask("TYPE", lock.name) == "redislock"
        assert not cache.lock("report", timeout=30, blocking_timeout=0.1).acquire()
    assert cache.lock("report", timeout=30).acquire(blocking=False)


def test_celery_once(server: Server, monkeypatch: Any) -> None:
    backend = pytest.importorskip("celery_once.backends.redis")
    from celery_once.tasks import AlreadyQueued

    monkeypatch.setattr(backend, "redis", None)
    monkeypatch.setattr(backend, "Lock", redislock.Lock)
    once = backend.Redis({"url": f"redis://127.0.0.1:{server.port}/0"})
    once.raise_or_lock("task", timeout=60)
    assert server.ask("TYPE", "task") == "redislock"
    with pytest.raises(AlreadyQueued) as queued:
        once.raise_or_lock("task", timeout=60)
    assert 0 < queued.value.countdown <= 60
    once.clear_lock("task")
    once.raise_or_lock("task", timeout=60)


class BeatLock(redislock.Lock):
    """For redbeat, which replaces redis-py's extend by a script that sets the lease instead of adding to it."""

    def extend(self, additional_time: Any, replace_ttl: bool = True) -> bool:
        return super().extend(additional_time, replace_ttl)


class BeatRedis(redislock.Redis):
    def lock(self, name: Any, *args: Any, lock_class: Any = None, **options: Any) -> Any:
        return super().lock(name, *args, lock_class=lock_class or BeatLock, **options)


@pytest.mark.parametrize("kind", [redislock.Redis, BeatRedis])
def test_redbeat(server: Server, kind: Any) -> None:
    redbeat = pytest.importorskip("redbeat.schedulers")
    from celery import Celery

    url = f"redis://127.0.0.1:{server.port}/0"
    app = Celery("tests", broker=url)
    app.conf.update(redbeat_redis_url=url, redbeat_lock_timeout=25, beat_max_loop_interval=5)
    app.redbeat_redis = kind.from_url(url, decode_responses=True)

    class Sender:
        scheduler = redbeat.RedBeatScheduler(app=app)

    scheduler = Sender.scheduler
    if kind is redislock.Redis:
        with pytest.raises(AttributeError, match=r"lua_extend.*replace_ttl=True"):
            redbeat.acquire_distributed_beat_lock(sender=Sender)
        assert server.info(scheduler.lock_key) is None
        return
    redbeat.acquire_distributed_beat_lock(sender=Sender)
    for _ in range(10):
        scheduler.tick()
        assert 20_000 < server.info(scheduler.lock_key)["ttl"] <= 25_000
    scheduler.close()
    assert server.info(scheduler.lock_key) is None
