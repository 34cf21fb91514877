"""The cleanups under way after callers that gave up: the owner's next acquire waits for them. Otherwise a release that
arrives late would end that acquire's grant."""

from __future__ import annotations

import threading
import weakref
from typing import Any, FrozenSet, List, NamedTuple, Sequence

from ._steps import Argument, Background


class Running(NamedTuple):
    keys: FrozenSet[bytes]
    token: bytes
    background: Background


class Cleanups:
    """Those of one client."""

    def __init__(self) -> None:
        self._running: List[Running] = []
        self._mutex = threading.Lock()

    def add(self, keys: Sequence[Argument], token: bytes, background: Background) -> None:
        with self._mutex:
            self._running = [each for each in self._running if not each.background.is_over()]
            self._running.append(Running(_encoded(keys), token, background))

    def of(self, keys: Sequence[Argument], token: bytes) -> List[Background]:
        mine = [each for each in self._running if each.token == token and not each.background.is_over()]
        return [each.background for each in mine if not each.keys.isdisjoint(_encoded(keys))]


def _encoded(keys: Sequence[Argument]) -> FrozenSet[bytes]:
    return frozenset(bytes(key) if isinstance(key, (bytes, memoryview)) else str(key).encode() for key in keys)


_by_client: "weakref.WeakKeyDictionary[Any, Cleanups]" = weakref.WeakKeyDictionary()
_by_client_mutex = threading.Lock()


def cleanups_of(client: Any) -> Cleanups:
    found = _by_client.get(client)
    if found is None:
        with _by_client_mutex:
            found = _by_client.get(client) or _by_client.setdefault(client, Cleanups())
    return found
