"""redis-py's client with our `lock`: for frameworks that let an application choose the client's class."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Optional

import redis

from .._locks import UNSET, with_defaults
from ._locks import Lock


class Redis(redis.Redis):
    """`redis.Redis` with `redislock.Lock` as its lock. `lock_options`: the options of every lock, as `{"mixed":
    True}`."""

    lock_options: ClassVar[Dict[str, Any]] = {}

    # The order is that of redis-py.
    def lock(
        self,
        name: Any,
        timeout: Any = UNSET,
        sleep: Any = UNSET,
        blocking: Any = UNSET,
        blocking_timeout: Any = UNSET,
        lock_class: Optional[Any] = None,
        thread_local: Any = UNSET,
        raise_on_release_error: Any = UNSET,
        **options: Any,
    ) -> Any:
        """As `redis.Redis.lock`, plus the options of `redislock.Lock`. They replace those of `lock_options`, and
        those that they exclude."""
        own = with_defaults(
            self.lock_options,
            timeout=timeout,
            sleep=sleep,
            blocking=blocking,
            blocking_timeout=blocking_timeout,
            thread_local=thread_local,
            raise_on_release_error=raise_on_release_error,
            **options,
        )
        return (lock_class or Lock)(self, name, **own)
