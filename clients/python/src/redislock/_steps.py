"""The interface between the protocol and a driver.

The protocol consists of generators, which decide what to send, when, and what a reply means. They never touch the
network, a thread or an event loop. A driver (one sync, one asyncio) executes each step that they yield and sends back
the result, or throws the exception into the generator.

The dataclasses are not frozen, which would make creating one four times as slow; each request creates several.
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
    """The request that a message may answer: the message names one of the keys, and the token. `slice_s`: how long to
    wait for it. `is_new`: no request before this acquire had the token. `command`: the request with this BLOCK in
    milliseconds."""

    names: Sequence[Argument]
    token: bytes
    block_ms: int
    slice_s: float
    is_new: bool
    command: Callable[[int], Command]


class Behind(NamedTuple):
    """A command that is written together with the one before it. `within_s` and `reply_to` are those of `Send`."""

    command: Command
    within_s: Optional[float] = None
    reply_to: Optional[str] = None


@dataclass
class Send:
    """Sends a command and returns its reply, undecoded.

    `within_s`: after this many seconds without a reply the connection counts as lost; None: the socket's own timeout.
    `waits`: the server may delay the reply, so the connection may be busy for a long time.
    `connect_s`: the limit of the single attempt to open a connection outside the pool, if one is needed.
    `reply_to`: decode the reply as the client does for the command of this name.
    `queued`: describes a request that may wait in the queue, for a transport that waits by messages.
    `behind`: further commands of the same packet. The result is then the list of replies, in which an error reply is an
    exception. If the connection ends after the first reply, its error stands for each missing one.
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
    """Runs these steps in the background, even after the caller is gone. Returns a `Background`; raises if it cannot.

    `here_s`: if no thread can be started, the caller runs them, until their first pause after this many seconds.
    `into`: the `Background` is added to this list before it starts, so that it can be stopped even if an exception
    discards the result.
    `pauses`: the steps begin with a pause, and pause most of the time, so they need no thread of their own.
    """

    steps: "Steps[None]"
    name: str
    here_s: Optional[float] = None
    into: Optional[List["Background"]] = None
    pauses: bool = False


@dataclass
class Join:
    """Waits until the background steps have ended, for at most this many seconds; None: no limit."""

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
    """How to undo what a call has started on the server, recorded before the request is sent.

    A signal handler may raise between any two instructions, including those of the driver, where the steps cannot catch
    it. So the outermost frame does the undoing, and no exception can come between the record and the result.

    `undo` is a function and its arguments; None: there is nothing to undo. The function also gets this object and the
    exception. These two are not stored here: a hold in a reference cycle would outlive its owner until the next full
    garbage collection, and be renewed meanwhile.
    """

    undo: Optional[Tuple[Any, ...]] = None

    def undone(self, error: BaseException) -> "Optional[Steps[None]]":
        """The steps that undo it; None: there is nothing to undo."""
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
