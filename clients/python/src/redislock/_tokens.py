"""Tokens that are readable in LOCK.INFO: host:pid:random."""

from __future__ import annotations

import os
import socket
import threading
from typing import List, Union

LONGEST_TOKEN = 38
RANDOM_BYTES = 8
AT_ONCE = 256


def make_token() -> str:
    """A new owner ID, `host:pid:random`, with 64 random bits in hex; at most 38 bytes."""
    return _tokens.next()


class Tokens:
    """New tokens, all different, even in a forked child. They are made in batches, because the host's name, the process
    ID and random bytes take a system call each."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._left: List[str] = []

    def next(self) -> str:
        with self._mutex:
            if not self._left:
                each = os.urandom(AT_ONCE * RANDOM_BYTES).hex(" ", RANDOM_BYTES).split()
                tail = f":{os.getpid()}:"
                start = _host()[: LONGEST_TOKEN - len(tail) - len(each[0])] + tail
                self._left = [start + random for random in each]
            return self._left.pop()


def _host() -> str:
    return socket.gethostname().encode("ascii", "replace").decode()


_tokens = Tokens()


def _new_tokens() -> None:
    global _tokens
    # Another thread of the parent may have held the mutex.
    _tokens = Tokens()


os.register_at_fork(after_in_child=_new_tokens)


def shown(word: Union[bytes, str]) -> str:
    """A token as a string. Bytes that are not UTF-8 become lone surrogates, as in file names."""
    return word.decode("utf-8", "surrogateescape") if isinstance(word, bytes) else str(word)


def token_bytes(token: Union[bytes, str]) -> bytes:
    """The inverse of `shown`."""
    return token if isinstance(token, bytes) else token.encode("utf-8", "surrogateescape")
