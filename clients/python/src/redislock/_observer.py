"""What happens to the locks of a client, for its observer and for the debug log."""

from __future__ import annotations

import logging
import threading
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence, Tuple

from ._replies import described
from ._steps import Argument
from ._tokens import shown

logger = logging.getLogger("redislock")


@dataclass(frozen=True)
class LockEvent:
    """An event of a lock. Times in seconds.

        queued ──▶ granted ──▶ renewed … ──▶ released, or lost
          └──▶ not_granted
    """

    event: str
    """queued (there is no answer after 0.1 s), granted, not_granted, renewed, lost or released"""
    kind: str
    """mutex, reentrant, read, write, semaphore or multi"""
    keys: Tuple[str, ...]
    owner: str
    """The token"""
    fence: Optional[int] = None
    """Of the grant; None: there was none, or it is not known (`from_token`)"""
    wait: Optional[float] = None
    """Of granted and not_granted: since the call of the acquire"""
    hold: Optional[float] = None
    """Of lost and released: since the grant; None: it is not known (`from_token`)"""
    error: Optional[BaseException] = None
    """Why it was not granted, unless the time was over or the work was done by another holder; why the server could not
    be asked to release it, so that its lease ends it"""


Observer = Callable[[LockEvent], Any]

_mutex = threading.Lock()
_observers: "weakref.WeakKeyDictionary[Any, Observer]" = weakref.WeakKeyDictionary()
# False: no client has had one.
_observing = False


def observe(client: Any, observer: Optional[Observer]) -> None:
    """Calls the observer with each `LockEvent` of the client's locks, in the thread or task where it happens. A client
    has one observer; None takes it away. It must not block. What it raises is logged, and changes no outcome. An
    acquire that is refused before it is sent to the server is not told."""
    global _observing
    if observer is not None and not callable(observer):
        raise TypeError(f"an observer must be a function, not {observer!r}")
    with _mutex:
        if observer is None:
            _observers.pop(client, None)
        else:
            _observers[client] = observer
            _observing = True


class Observed:
    """One lock's view of its client's observer. No reference to the lock: a hold has it too."""

    def __init__(self, client: Any, kind: str, names: Sequence[Argument]) -> None:
        self._client = client
        self._kind = kind
        self._names = names

    def by_observer(self) -> bool:
        return _observing and self._client in _observers

    def tell(
        self,
        event: str,
        owner: bytes,
        fence: Optional[int] = None,
        wait: Optional[float] = None,
        hold: Optional[float] = None,
        error: Optional[BaseException] = None,
    ) -> None:
        observer = _observers.get(self._client) if _observing else None
        logs = logger.isEnabledFor(logging.DEBUG)
        if observer is None and not logs:
            return
        names = tuple(map(_text, self._names))
        told = LockEvent(event, self._kind, names, shown(owner), fence or None, wait, hold, error)
        if logs:
            logger.debug("%s", _line(told))
        if observer is not None:
            try:
                observer(told)
            except Exception:
                logger.exception("the observer of locks failed")


def _text(name: Argument) -> str:
    return shown(bytes(name)) if isinstance(name, (bytes, memoryview)) else str(name)


def _line(told: LockEvent) -> str:
    line = f"{told.event.replace('_', ' ')}: {told.kind} {' '.join(told.keys)}, owner {told.owner}"
    if told.fence is not None:
        line += f", fence {told.fence}"
    if told.wait is not None:
        line += f", after {told.wait:.3f} s"
    if told.hold is not None:
        line += f", held for {told.hold:.3f} s"
    return line if told.error is None else f"{line}: {described(told.error)}"
