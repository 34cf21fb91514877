"""The words of each family of locks, and what its replies mean. No I/O, no state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Sequence, Tuple

from ._steps import Word

Words = Tuple[Word, ...]


@dataclass(frozen=True)
class Lease:
    """The right to hold for so many milliseconds; None: without a deadline."""

    ms: Optional[int]

    def words(self) -> Words:
        return ("PERSIST",) if self.ms is None else ("PX", self.ms)


class Family:
    """`holds` is always what the owner holds afterwards, so that every command can be sent again."""

    names: Sequence[Word]
    mode = ""
    counts = False
    """Whether holds add up: then a hold belongs to a line of execution, and is taken again inside it."""

    @property
    def key(self) -> Word:
        return self.names[0]

    def acquire(self, token: bytes, holds: int, lease: Lease) -> Words:
        raise NotImplementedError

    def release(self, token: bytes, holds: int) -> Words:
        raise NotImplementedError

    def renew(self, token: bytes, lease: Lease) -> Words:
        raise NotImplementedError

    def was_held(self, reply: Any) -> bool:
        """Whether a release found what it was to release."""
        return int(reply) >= 0

    def held(self, token: bytes) -> Words:
        return ("LOCK.HELD", self.key, token)

    def cancel(self, token: bytes) -> Words:
        return ("LOCK.CANCEL", self.key, token)

    def exists(self) -> Words:
        return ("EXISTS", *self.names)


class Mutex(Family):
    def __init__(self, name: Word) -> None:
        self.names = (name,)

    def acquire(self, token: bytes, holds: int, lease: Lease) -> Words:
        return ("LOCK.ACQUIRE", self.key, token, *lease.words())

    def release(self, token: bytes, holds: int) -> Words:
        return ("LOCK.RELEASE", self.key, token)

    def renew(self, token: bytes, lease: Lease) -> Words:
        return ("LOCK.RENEW", self.key, token, *lease.words())

    def was_held(self, reply: Any) -> bool:
        return int(reply) == 1


class Reentrant(Family):
    counts = True

    def __init__(self, name: Word) -> None:
        self.names = (name,)

    def acquire(self, token: bytes, holds: int, lease: Lease) -> Words:
        return ("RLOCK.ACQUIRE", self.key, token, "HOLDS", holds, *lease.words())

    def release(self, token: bytes, holds: int) -> Words:
        return ("RLOCK.RELEASE", self.key, token, "HOLDS", holds)

    def renew(self, token: bytes, lease: Lease) -> Words:
        return ("RLOCK.RENEW", self.key, token, *lease.words())


class ReadWrite(Family):
    counts = True

    def __init__(self, name: Word, mode: str) -> None:
        self.names = (name,)
        self.mode = mode

    def acquire(self, token: bytes, holds: int, lease: Lease) -> Words:
        return ("RWLOCK.ACQUIRE", self.key, token, self.mode, "HOLDS", holds, *lease.words())

    def release(self, token: bytes, holds: int) -> Words:
        return ("RWLOCK.RELEASE", self.key, token, self.mode, "HOLDS", holds)

    def renew(self, token: bytes, lease: Lease) -> Words:
        return ("RWLOCK.RENEW", self.key, token, *lease.words())


class Permits(Family):
    counts = True

    def __init__(self, name: Word, limit: int) -> None:
        self.names = (name,)
        self.limit = limit

    def acquire(self, token: bytes, holds: int, lease: Lease) -> Words:
        return ("SEM.ACQUIRE", self.key, token, "LIMIT", self.limit, "HOLDS", holds, *lease.words())

    def release(self, token: bytes, holds: int) -> Words:
        return ("SEM.RELEASE", self.key, token, "HOLDS", holds)

    def renew(self, token: bytes, lease: Lease) -> Words:
        return ("SEM.RENEW", self.key, token, *lease.words())


class Several(Family):
    def __init__(self, names: Sequence[Word]) -> None:
        if not names:
            raise ValueError("a MultiLock needs at least one name")
        self.names = tuple(names)

    def acquire(self, token: bytes, holds: int, lease: Lease) -> Words:
        return ("MLOCK.ACQUIRE", len(self.names), *self.names, token, *lease.words())

    def release(self, token: bytes, holds: int) -> Words:
        return ("MLOCK.RELEASE", len(self.names), *self.names, token)

    def renew(self, token: bytes, lease: Lease) -> Words:
        return ("MLOCK.RENEW", len(self.names), *self.names, token, *lease.words())

    def was_held(self, reply: Any) -> bool:
        return int(reply) == len(self.names)
