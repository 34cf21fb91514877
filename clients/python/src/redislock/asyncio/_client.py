"""redis-py's asyncio client with our `lock`: for frameworks that let an application choose the client's class."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Optional

import redis.asyncio

from .._locks import UNSET, with_defaults
from ._locks import Lock


class Redis(redis.asyncio.Redis):
    """`redis.asyncio.Redis` whose `lock()` returns a `redislock.asyncio.Lock`.

    A subclass may set `lock_options`, the default options of every lock, such as `{"mixed": True}`.
    """

    lock_options: ClassVar[Dict[str, Any]] = {}

    # The arguments are in the order of redis-py.
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
        """Creates a lock, as `redis.asyncio.Redis.lock`; takes the options of `redislock.asyncio.Lock` as well.

        Each of them replaces the default of `lock_options`, and removes the defaults that it excludes.
        """
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
