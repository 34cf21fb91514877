"""Tokens that people can read in LOCK.INFO: host:pid:random."""

from __future__ import annotations

import os
import secrets
import socket

LONGEST_TOKEN = 38


def make_token() -> bytes:
    """A new token: 64 random bits in hex, behind as much of the host's name as fits into 38 bytes."""
    tail = f":{os.getpid()}:{secrets.token_hex(8)}".encode()
    return socket.gethostname().encode("ascii", "replace")[: LONGEST_TOKEN - len(tail)] + tail
