"""Tokens that are readable in LOCK.INFO: host:pid:random."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Union

LONGEST_TOKEN = 38


def make_token() -> str:
    """A new token: 64 random bits in hex, after at most 38 bytes of the host's name."""
    tail = f":{os.getpid()}:{secrets.token_hex(8)}"
    return socket.gethostname().encode("ascii", "replace").decode()[: LONGEST_TOKEN - len(tail)] + tail


def shown(word: Union[bytes, str]) -> str:
    """A token as a string; bytes that are not UTF-8 become lone surrogates, as in file names."""
    return word.decode("utf-8", "surrogateescape") if isinstance(word, bytes) else str(word)


def token_bytes(token: Union[bytes, str]) -> bytes:
    """The inverse of `shown`."""
    return token if isinstance(token, bytes) else token.encode("utf-8", "surrogateescape")
