"""redis-py's client, whose `lock` makes ours: for frameworks that let one choose the client's class."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Optional

import redis

from ._locks import Lock


class Redis(redis.Redis):
    """`redis.Redis` with `redislock.Lock` as its lock. `lock_options`: what every lock gets, as `{"mixed": True}`."""

    lock_options: ClassVar[Dict[str, Any]] = {}

    def lock(self, name: Any, *args: Any, lock_class: Optional[Any] = None, **options: Any) -> Any:
        """As `redis.Redis.lock`, with the options of `redislock.Lock` besides."""
        return (lock_class or Lock)(self, name, *args, **{**self.lock_options, **options})
