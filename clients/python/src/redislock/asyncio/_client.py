"""redis-py's asyncio client with our `lock`: for frameworks that let an application choose the client's class."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Optional

import redis.asyncio

from ._locks import Lock


class Redis(redis.asyncio.Redis):
    """`redis.asyncio.Redis` with `redislock.asyncio.Lock` as its lock. `lock_options`: the options of every lock."""

    lock_options: ClassVar[Dict[str, Any]] = {}

    def lock(self, name: Any, *args: Any, lock_class: Optional[Any] = None, **options: Any) -> Any:
        """As `redis.asyncio.Redis.lock`, plus the options of `redislock.asyncio.Lock`."""
        return (lock_class or Lock)(self, name, *args, **{**self.lock_options, **options})
