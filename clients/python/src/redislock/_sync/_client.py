"""redis-py's client with our `lock`: for frameworks that let an application choose the client's class."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Optional

import redis

from ._locks import Lock


class Redis(redis.Redis):
    """`redis.Redis` with `redislock.Lock` as its lock. `lock_options`: the options of every lock, as `{"mixed":
    True}`."""

    lock_options: ClassVar[Dict[str, Any]] = {}

    def lock(self, name: Any, *args: Any, lock_class: Optional[Any] = None, **options: Any) -> Any:
        """As `redis.Redis.lock`, plus the options of `redislock.Lock`."""
        return (lock_class or Lock)(self, name, *args, **{**self.lock_options, **options})
