"""The interface between the protocol and a driver.

The protocol is generators: they decide what is sent, when, and what a reply means, and never touch the network, a
thread or an event loop. A driver (one sync, one asyncio) executes each step that they yield, and returns the result, or
throws the exception into the generator.

Not frozen: that makes a dataclass four times as slow to make, and each request makes several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Generator, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

Argument = Union[bytes, str, int, float, memoryview]
Command = Tuple[Argument, ...]
T = TypeVar("T")

# The limit for connecting.
CONNECT_S = 2.0


class Queued(NamedTuple):
    """What a wait is for: a message about it names one of the keys, and the token."""

    names: Sequence[Argument]
    token: bytes
    block_ms: int


class Behind(NamedTuple):
    """A command that is written together with the one before it. `within_s` and `reply_to` as of `Send`."""

    command: Command
    within_s: Optional[float] = None
    reply_to: Optional[str] = None


@dataclass
class Send:
    """Sends a command and returns its reply, undecoded.

    `within_s`: after this many seconds without a reply the connection counts as lost; None: the socket's own time-out.
    `waits`: the server may delay the reply, so that the connection is busy for long.
    `connect_s`: a connection that is made for it, outside of the pool, is made in one attempt of this many seconds.
    `reply_to`: decode the reply as the client does for the command of that name.
    `queued`: of a request that may wait in the queue, for a transport that waits by messages.
    `behind`: further commands of the same packet. Then the replies are returned in a list. An error reply stands in its
    place; if the connection ends behind the first reply, that error stands in place of each missing one.
    """

    transport: Any
    command: Command
    within_s: Optional[float] = None
    waits: bool = False
    connect_s: float = CONNECT_S
    reply_to: Optional[str] = None
    queued: Optional[Queued] = None
    behind: Sequence[Behind] = ()


@dataclass
class Close:
    """Ends the transport's own connection, if it has one."""

    transport: Any


@dataclass
class Pause:
    """Pauses; ends early if `until_closed`, a transport with its own connection, loses its connection."""

    seconds: float
    until_closed: Any = None


@dataclass
class Spawn:
    """Runs these steps in the background, also after the caller has gone; returns a `Background`. Raises if it cannot.

    `here_s`: if no thread can be started, the caller runs them, until their first pause after so many seconds.
    `into`: it is put there before it starts, so that it can be stopped even if an exception keeps the result away.
    """

    steps: "Steps[None]"
    name: str
    here_s: Optional[float] = None
    into: Optional[List["Background"]] = None


@dataclass
class Join:
    """Waits until the background steps have ended, at most this many seconds; None: without a limit."""

    background: "Background"
    longest_s: Optional[float]


@dataclass
class Notify:
    """Calls the user's function."""

    call: Callable[[Any], Any]
    argument: Any


@dataclass
class Call:
    """Calls the user's function and returns its result; its exception is thrown into the generator."""

    call: Callable[[], Any]


Step = Union[Send, Close, Pause, Spawn, Join, Notify, Call]
Steps = Generator[Step, Any, T]


class Unfinished:
    """What a call leaves on the server until its caller has the result: recorded before the request is sent.

    The handler of a signal raises between any two instructions, in the frames of the driver too, where the steps cannot
    catch it. So it is the outermost frame that undoes, and no exception comes between the record and the result.

    `undo` is a function and its arguments; None: nothing is left. The function also gets this object and the exception.
    They are no part of the record: a hold in a reference cycle would outlive its owner until the next full collection,
    and be renewed.
    """

    undo: Optional[Tuple[Any, ...]] = None

    def undone(self, error: BaseException) -> "Optional[Steps[None]]":
        """The steps that undo; None: nothing is left."""
        if self.undo is None:
            return None
        make, *arguments = self.undo
        steps: Steps[None] = make(self, *arguments, error)
        return steps


class Background:
    """Steps that run in the background."""

    def stop(self) -> None:
        """Ends them at their next pause; does not wait for it."""
        raise NotImplementedError

    def is_over(self) -> bool:
        raise NotImplementedError
