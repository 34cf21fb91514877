"""The commands of each lock type, and the meaning of their replies. No I/O, no state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Sequence

from ._steps import Argument, Command


@dataclass
class Lease:
    """The length of a lease in milliseconds; None: no deadline."""

    ms: Optional[int]

    def arguments(self) -> Command:
        return ("PERSIST",) if self.ms is None else ("PX", self.ms)

    def shorter(self, other: Lease) -> Lease:
        return self if other.ms is None or (self.ms is not None and self.ms <= other.ms) else other


class LockType:
    """One lock type. `holds` is always the owner's count after the command, so every command can be sent again."""

    kind: str
    """The name of the type in events."""
    mode = ""
    counts = False
    """True if the type counts holds: a hold then belongs to a thread or task, which may acquire the lock again."""
    is_slot = False
    """True if an owner holds one permit, and the reply contains its slot."""

    def __init__(self, *names: Argument) -> None:
        self.names = names
        self.key = names[0]

    def acquire(self, token: bytes, holds: int, lease: Lease) -> Command:
        raise NotImplementedError

    def release(self, token: bytes, holds: int) -> Command:
        raise NotImplementedError

    def release_failed(self, token: bytes) -> Command:
        """As release, but without reporting to waiters with COALESCE that the work was done."""
        raise NotImplementedError

    def renew(self, token: bytes, lease: Lease) -> Command:
        raise NotImplementedError

    def was_held(self, reply: Any) -> bool:
        """True if the release found the hold."""
        return int(reply) >= 0

    def release_each(self, token: bytes) -> Sequence[Command]:
        """One release for each key, for when a key was overwritten by another value: the joint release then changes
        nothing."""
        return ()

    def held(self, token: bytes) -> Command:
        return ("LOCK.HELD", self.key, token)

    def cancel(self, token: bytes) -> Command:
        return ("LOCK.CANCEL", self.key, token)

    def info(self) -> Sequence[Command]:
        return [("LOCK.INFO", name) for name in self.names]

    def exists(self) -> Command:
        return ("EXISTS", *self.names)


class Mutex(LockType):
    kind = "mutex"

    def acquire(self, token: bytes, holds: int, lease: Lease) -> Command:
        return ("LOCK.ACQUIRE", self.key, token, *lease.arguments())

    def release(self, token: bytes, holds: int) -> Command:
        return ("LOCK.RELEASE", self.key, token)

    def release_failed(self, token: bytes) -> Command:
        return ("LOCK.RELEASE", self.key, token, "FAILED")

    def renew(self, token: bytes, lease: Lease) -> Command:
        return ("LOCK.RENEW", self.key, token, *lease.arguments())

    def was_held(self, reply: Any) -> bool:
        return int(reply) == 1


class Reentrant(LockType):
    kind = "reentrant"
    counts = True

    def acquire(self, token: bytes, holds: int, lease: Lease) -> Command:
        return ("RLOCK.ACQUIRE", self.key, token, "HOLDS", holds, *lease.arguments())

    def release(self, token: bytes, holds: int) -> Command:
        return ("RLOCK.RELEASE", self.key, token, "HOLDS", holds)

    def renew(self, token: bytes, lease: Lease) -> Command:
        return ("RLOCK.RENEW", self.key, token, *lease.arguments())


class ReadWrite(LockType):
    counts = True

    def __init__(self, name: Argument, mode: str) -> None:
        super().__init__(name)
        self.mode = mode
        self.kind = mode.lower()

    def acquire(self, token: bytes, holds: int, lease: Lease) -> Command:
        return ("RWLOCK.ACQUIRE", self.key, token, self.mode, "HOLDS", holds, *lease.arguments())

    def release(self, token: bytes, holds: int) -> Command:
        return ("RWLOCK.RELEASE", self.key, token, self.mode, "HOLDS", holds)

    def renew(self, token: bytes, lease: Lease) -> Command:
        return ("RWLOCK.RENEW", self.key, token, *lease.arguments())


class Permits(LockType):
    kind = "semaphore"
    counts = True

    def __init__(self, name: Argument, limit: int) -> None:
        super().__init__(name)
        self.limit = limit

    def acquire(self, token: bytes, holds: int, lease: Lease) -> Command:
        return ("SEM.ACQUIRE", self.key, token, "LIMIT", self.limit, *self.asked_for(holds), *lease.arguments())

    def asked_for(self, holds: int) -> Command:
        return ("HOLDS", holds)

    def release(self, token: bytes, holds: int) -> Command:
        return ("SEM.RELEASE", self.key, token, "HOLDS", holds)

    def renew(self, token: bytes, lease: Lease) -> Command:
        return ("SEM.RENEW", self.key, token, *lease.arguments())


class Slot(Permits):
    is_slot = True

    def asked_for(self, holds: int) -> Command:
        return ("SLOT",)


class MultiMutex(LockType):
    kind = "multi"

    def __init__(self, names: Sequence[Argument]) -> None:
        if not names:
            raise ValueError("a MultiLock needs at least one name")
        super().__init__(*names)

    def acquire(self, token: bytes, holds: int, lease: Lease) -> Command:
        return ("MLOCK.ACQUIRE", len(self.names), *self.names, token, *lease.arguments())

    def release(self, token: bytes, holds: int) -> Command:
        return ("MLOCK.RELEASE", len(self.names), *self.names, token)

    def renew(self, token: bytes, lease: Lease) -> Command:
        return ("MLOCK.RENEW", len(self.names), *self.names, token, *lease.arguments())

    def release_each(self, token: bytes) -> Sequence[Command]:
        return [("LOCK.RELEASE", name, token) for name in self.names]

    def was_held(self, reply: Any) -> bool:
        return int(reply) == len(self.names)
