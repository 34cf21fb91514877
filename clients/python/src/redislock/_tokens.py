"""Tokens that are readable in LOCK.INFO: host:pid:random."""

from __future__ import annotations

import os
import secrets
import socket

LONGEST_TOKEN = 38


def make_token() -> bytes:
    """A new token: 64 random bits in hex, after at most 38 bytes of the host's name."""
    tail = f":{os.getpid()}:{secrets.token_hex(8)}".encode()
    return socket.gethostname().encode("ascii", "replace")[: LONGEST_TOKEN - len(tail)] + tail
