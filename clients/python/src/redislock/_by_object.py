"""State attached to an object of redis-py, such as a client or a pool."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, Generic, TypeVar

T = TypeVar("T")


class ByObject(Generic[T]):
    """One state for each object, created on first use. It lives as long as the object."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._states: "weakref.WeakKeyDictionary[Any, T]" = weakref.WeakKeyDictionary()
        self._mutex = threading.Lock()

    def of(self, key: Any) -> T:
        state = self._states.get(key)
        if state is None:
            with self._mutex:
                state = self._states.get(key) or self._states.setdefault(key, self._make(key))
        return state
