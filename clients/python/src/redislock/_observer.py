"""The events of a client's locks, for its observer and the debug log."""

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
    """An event of a lock. Times are in seconds.

        queued ──▶ granted ──▶ renewed … ──▶ released, or lost
          └──▶ not_granted
    """

    event: str
    """queued (no reply within 0.1 s), granted, not_granted, renewed, lost or released"""
    kind: str
    """mutex, reentrant, read, write, semaphore or multi"""
    keys: Tuple[str, ...]
    owner: str
    """The owner ID"""
    fence: Optional[int] = None
    """Fencing token of the grant; None: there was no grant, or it is unknown (`from_token`)"""
    wait: Optional[float] = None
    """Of granted and not_granted: time since acquire was called"""
    hold: Optional[float] = None
    """Of lost and released: time since the grant; None: unknown (`from_token`)"""
    error: Optional[BaseException] = None
    """Of not_granted: why, unless the wait timed out or another holder did the work. Of released: why the server could
    not be reached, so that the lock is held until its lease expires"""


Observer = Callable[[LockEvent], Any]

_mutex = threading.Lock()
_observers: "weakref.WeakKeyDictionary[Any, Observer]" = weakref.WeakKeyDictionary()
# False: no client has ever had an observer.
_observing = False


def observe(client: Any, observer: Optional[Observer]) -> None:
    """Sets the observer of a client: it is called with each `LockEvent` of the client's locks.

    A client has one observer; None removes it. It runs in the thread or task of the event and must not block. An
    exception that it raises is logged and changes no outcome. An acquire that fails before anything is sent to the
    server causes no event. Raises TypeError if `observer` is not callable.
    """
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
    """The observer as one lock sees it. Holds refer to it as well, so it has no reference to the lock."""

    def __init__(self, client: Any, kind: str, names: Sequence[Argument]) -> None:
        self._client = client
        self._kind = kind
        self._names = names

    def by_observer(self) -> bool:
        return _observing and self._client in _observers

    def notify(
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
        lock_event = LockEvent(event, self._kind, names, shown(owner), fence or None, wait, hold, error)
        if logs:
            logger.debug("%s", _line(lock_event))
        if observer is not None:
            try:
                observer(lock_event)
            except Exception:
                logger.exception("the observer of locks failed")


def _text(name: Argument) -> str:
    return shown(bytes(name)) if isinstance(name, (bytes, memoryview)) else str(name)


def _line(event: LockEvent) -> str:
    line = f"{event.event.replace('_', ' ')}: {event.kind} {' '.join(event.keys)}, owner {event.owner}"
    if event.fence is not None:
        line += f", fence {event.fence}"
    if event.wait is not None:
        line += f", after {event.wait:.3f} s"
    if event.hold is not None:
        line += f", held for {event.hold:.3f} s"
    return line if event.error is None else f"{line}: {described(event.error)}"
