"""The running cleanups of cancelled requests. The owner's next acquire waits for them, because a release that arrives
late would end its grant."""

from __future__ import annotations

import threading
from typing import Any, Dict, FrozenSet, List, NamedTuple, Sequence

from ._by_object import ByObject
from ._steps import Argument, Background

# Ended cleanups are removed when this many tokens are listed, and then each time the number has doubled.
FEW = 64


class Running(NamedTuple):
    keys: FrozenSet[bytes]
    background: Background


class Cleanups:
    """The cleanups of one client, by token."""

    def __init__(self) -> None:
        self._running: Dict[bytes, List[Running]] = {}
        self._most = FEW
        self._mutex = threading.Lock()

    def add(self, keys: Sequence[Argument], token: bytes, background: Background) -> None:
        with self._mutex:
            if len(self._running) >= self._most:
                self._running = {other: left for other, each in self._running.items() if (left := _unfinished(each))}
                self._most = max(FEW, 2 * len(self._running))
            mine = _unfinished(self._running.get(token, []))
            self._running[token] = [*mine, Running(_encoded(keys), background)]

    def of(self, keys: Sequence[Argument], token: bytes) -> List[Background]:
        mine = self._running.get(token)
        if mine is None:
            return []
        return [each.background for each in _unfinished(mine) if not each.keys.isdisjoint(_encoded(keys))]


def _unfinished(cleanups: List[Running]) -> List[Running]:
    return [each for each in cleanups if not each.background.is_over()]


def _encoded(keys: Sequence[Argument]) -> FrozenSet[bytes]:
    return frozenset(bytes(key) if isinstance(key, (bytes, memoryview)) else str(key).encode() for key in keys)


_by_client: ByObject[Cleanups] = ByObject(lambda _: Cleanups())


def cleanups_of(client: Any) -> Cleanups:
    return _by_client.of(client)
