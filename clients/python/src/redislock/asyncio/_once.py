"""Single-flight for asyncio."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Coroutine, TypeVar, Union

from .._connections import AsyncioClient
from .._locks import Name
from .._once import OnceOptions, lock_options, making_once, name_of
from ._driver import run_undoing
from ._locks import Lock

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Unpack

    P = ParamSpec("P")

T = TypeVar("T")


async def once(
    redis: AsyncioClient,
    name: Name,
    read: Callable[[], Awaitable[object]],
    make: Callable[[], Awaitable[T]],
    **options: Unpack[OnceOptions],
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
    value: T = await run_undoing(making_once, lock, read, make)
    return value


def single_flight(
    redis: AsyncioClient,
    name: Union[Name, Callable[P, Name]],
    read: Callable[P, Awaitable[object]],
    **options: Unpack[OnceOptions],
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """`once` as a decorator of `make`: a call returns the value that `read` finds, or that one of all callers makes.

    `read`, and `name` if it is a function, get the arguments of the call. Otherwise as `once`.
    """
    lock_options(**options)

    def decorate(make: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @functools.wraps(make)
        async def made(*args: P.args, **kwargs: P.kwargs) -> T:
            def make_it() -> Awaitable[T]:
                return make(*args, **kwargs)

            return await once(redis, name_of(name, args, kwargs), lambda: read(*args, **kwargs), make_it, **options)

        return made

    return decorate
