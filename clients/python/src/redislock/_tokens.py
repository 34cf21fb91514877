"""Tokens that are readable in LOCK.INFO: host:pid:random."""

from __future__ import annotations

import functools
import os
import socket
import threading
from typing import List, Union

LONGEST_TOKEN = 38
RANDOM_BYTES = 8
# Random bytes are read for many tokens at once: that is a system call, as the host's name is.
AT_ONCE = 256


def make_token() -> str:
    """A new token: 64 random bits in hex, after at most 38 bytes of the host's name."""
    tail = f":{os.getpid()}:{_random.next()}"
    return _host()[: LONGEST_TOKEN - len(tail)] + tail


@functools.lru_cache(maxsize=None)
def _host() -> str:
    return socket.gethostname().encode("ascii", "replace").decode()


class Random:
    """Random bytes in hex, none twice, also not in a forked child."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._left: List[str] = []

    def next(self) -> str:
        with self._mutex:
            if not self._left:
                self._left = os.urandom(AT_ONCE * RANDOM_BYTES).hex(" ", RANDOM_BYTES).split()
            return self._left.pop()


_random = Random()


def _new_random() -> None:
    global _random
    # Another thread of the parent may have held the mutex.
    _random = Random()


os.register_at_fork(after_in_child=_new_random)


def shown(word: Union[bytes, str]) -> str:
    """A token as a string; bytes that are not UTF-8 become lone surrogates, as in file names."""
    return word.decode("utf-8", "surrogateescape") if isinstance(word, bytes) else str(word)


def token_bytes(token: Union[bytes, str]) -> bytes:
    """The inverse of `shown`."""
    return token if isinstance(token, bytes) else token.encode("utf-8", "surrogateescape")
