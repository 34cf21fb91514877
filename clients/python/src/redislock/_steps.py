"""What the protocol asks of a driver.

The protocol is generators: they decide what is sent, when, and what a reply means, and never touch the network, a
thread or an event loop. Each step that they yield is done by a driver (one sync, one asyncio), which gives back the
result, or throws the exception into the generator.

Not frozen: that makes a dataclass four times as slow to make, and each request makes several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Generator, Optional, Tuple, TypeVar, Union

Argument = Union[bytes, str, int, float, memoryview]
Command = Tuple[Argument, ...]
T = TypeVar("T")


@dataclass
class Send:
    """Send a command and give back its reply, undecoded.

    `within_s`: after so many seconds without a reply the connection counts as lost; None: the socket's own time-out.
    `waits`: the server may hold the reply back, so that the connection is taken for long.
    `connect_s`: make a connection for it, outside of the pool, in one attempt of so many seconds; None: over one of the
    pool. Its connections are made as the client's own `retry` says, which may take minutes.
    `reply_to`: decode the reply as the client does for the command of that name.
    """

    transport: Any
    command: Command
    within_s: Optional[float] = None
    waits: bool = False
    connect_s: Optional[float] = None
    reply_to: Optional[str] = None


@dataclass
class Close:
    """End the transport's own connection, if it has one."""

    transport: Any


@dataclass
class Pause:
    """Wait; over early when `until_closed`, a transport with its own connection, has lost it."""

    seconds: float
    until_closed: Any = None


@dataclass
class Cleanup:
    """Run these steps to their end beside the caller, also when it is cancelled meanwhile, and keep it for so many
    seconds at most."""

    steps: "Steps[None]"
    longest_s: float


@dataclass
class Spawn:
    """Run these steps beside the caller; gives back a `Background`."""

    steps: "Steps[None]"
    name: str


@dataclass
class Notify:
    """Call the user's function."""

    call: Callable[[Any], Any]
    argument: Any


@dataclass
class Call:
    """Call the user's function and give back what it returns; what it raises is thrown."""

    call: Callable[[], Any]


Step = Union[Send, Close, Pause, Cleanup, Spawn, Notify, Call]
Steps = Generator[Step, Any, T]


class Background:
    """Steps that run beside the caller."""

    def stop(self) -> None:
        """End them at their next pause; does not wait for it."""
        raise NotImplementedError
