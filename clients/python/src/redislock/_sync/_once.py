"""Single-flight for synchronous code."""

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
    """Returns the value that `read` finds. If there is none, one caller computes it with `make` and the others wait.

    Single-flight, or request coalescing, over all processes. If `make` raises, only its own caller gets the error, and
    the next caller computes the value. If the lock is lost meanwhile, another caller may compute the value as well:
    `once` then returns what `read` finds, and the loss is logged and reported to `on_lost`.

    Args:
        redis: The client, as for `Lock`.
        name: The key of the lock, different from the key of the value.
        read: A function that looks for the value and returns None if there is none.
        make: A function that computes the value, stores it where `read` finds it, and returns it.
        timeout: Length of the lease in seconds. Default 30.
        blocking_timeout: How long to wait for a value that another caller computes, in seconds. Default None:
            indefinitely. Does not limit `read` and `make`.
        auto_renew: Renew the lease while the value is computed. Default True, or False with `session`.
        session: Bind the lock to a dedicated connection instead, so that another caller starts at once if the process
            that computes the value dies. Default False.
        on_lost: Called once, with the `Grant`, if the lock is lost while the value is computed. Default None.
        shared: Only in `redislock.asyncio`: wait over the shared connection, as for `Lock`. Default False.

    Raises:
        NotMadeError: There was no value within `blocking_timeout`.
        ValueError: `timeout` is None or 0.

    Otherwise raises what `read` and `make` raise, and the errors of `Lock.acquire`.
    """
    lock = Lock(redis, name, **lock_options(**options))
    try:
        value: T = run_undoing(making_once, lock, _wrapping_stop(read), _wrapping_stop(make))
        return value
    except WrappedStop as wrapped:
        stop = wrapped.stop
    raise stop


class WrappedStop(Exception):
    """Wraps a StopIteration of `read` or `make`. The steps are a generator, which would turn it into a RuntimeError."""

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
    """`once` as a decorator of `make`.

    `read`, and `name` if it is a function, get the arguments of each call. The options and errors are those of `once`.

        @redislock.single_flight(client, lambda number: f"fill:report:{number}", read, blocking_timeout=10)
        def report(number): ...
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
