"""Single-flight for threads."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable, TypeVar, Union

from .._connections import SyncClient
from .._locks import Name
from .._once import OnceOptions, lock_options, making_once, name_of
from ._driver import run_undoing
from ._locks import Lock

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Unpack

    P = ParamSpec("P")

T = TypeVar("T")


def once(
    redis: SyncClient, name: Name, read: Callable[[], object], make: Callable[[], T], **options: Unpack[OnceOptions]
) -> T:
    """The value that `read` finds. If it finds None, one of all callers makes the value, and the others wait for it.

    `read` looks for the value (None: not there); `make` makes it, stores it where `read` finds it, and returns it. The
    lock `name` decides which caller makes it; `OnceOptions` lists the other options. An error in `make` is raised to
    its caller alone: the next caller makes the value.

    Raises NotMadeError if `blocking_timeout` is over, what `read` and `make` raise, and what `Lock.acquire` raises.
    If the lock was lost meanwhile, another caller may have made the value too: what `read` finds then is returned, and
    the loss is logged and reported to `on_lost`.
    """
    lock = Lock(redis, name, **lock_options(**options))
    try:
        value: T = run_undoing(making_once, lock, _wrapping_stop(read), _wrapping_stop(make))
        return value
    except WrappedStop as wrapped:
        stop = wrapped.stop
    raise stop


class WrappedStop(Exception):
    """A StopIteration of `read` or `make`: the steps are a generator, which would turn it into a RuntimeError."""

    def __init__(self, stop: StopIteration) -> None:
        self.stop = stop


def _wrapping_stop(call: Callable[[], T]) -> Callable[[], T]:
    def called() -> T:
        try:
            return call()
        except StopIteration as stop:
            raise WrappedStop(stop) from None

    return called


def single_flight(
    redis: SyncClient, name: Union[Name, Callable[P, Name]], read: Callable[P, object], **options: Unpack[OnceOptions]
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`once` as a decorator of `make`: a call returns the value that `read` finds, or that one of all callers makes.

    `read`, and `name` if it is a function, get the arguments of the call. Otherwise as `once`.
    """
    lock_options(**options)

    def decorate(make: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(make)
        def made(*args: P.args, **kwargs: P.kwargs) -> T:
            def make_it() -> T:
                return make(*args, **kwargs)

            return once(redis, name_of(name, args, kwargs), lambda: read(*args, **kwargs), make_it, **options)

        return made

    return decorate
