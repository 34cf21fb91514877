"""Single-flight: if many callers miss the same value, one computes it and the others wait for it.

The lock only decides which caller computes the value, and when the others look again. Only `read` finds it.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, TypedDict, Union

from ._hold import Done, clock
from ._locks import LockBase, Name, Number, OnLost
from ._steps import Call, Steps, Unfinished
from .errors import NotMadeError, named


class OnceOptions(TypedDict, total=False):
    """The keyword arguments of `once` and `single_flight`. Times are in seconds."""

    timeout: Number
    """The lease: how long after the death of the caller that computes the value another one starts. Default 30"""
    blocking_timeout: Optional[Number]
    """How long to wait for a value that another caller computes; None: indefinitely. Default None"""
    auto_renew: bool
    """Renew after each third of the lease while the value is computed. False: another caller computes it when the lease
    expires. Default True, or False with session"""
    session: bool
    """Alternatively, bind the lock to a dedicated connection: if the process that computes the value dies, another
    caller starts at once. Default False"""
    shared: bool
    """Only in redislock.asyncio, as for `Lock`. Default False"""
    on_lost: Optional[OnLost]
    """Called once, with the `Grant`, if the lock is lost while the value is computed: another caller may compute it as
    well. Default None"""


def lock_options(
    timeout: Number = 30,
    blocking_timeout: Optional[Number] = None,
    auto_renew: Optional[bool] = None,
    session: bool = False,
    on_lost: Optional[OnLost] = None,
    shared: bool = False,
) -> Any:
    """The options of the lock that `once` uses."""
    if not timeout:
        raise ValueError("once needs a timeout: without a lease, a caller that dies would keep all others waiting")
    return {
        "timeout": timeout,
        "blocking_timeout": blocking_timeout,
        "auto_renew": not session if auto_renew is None else auto_renew,
        "session": session,
        "on_lost": on_lost,
        "shared": shared,
        # The lock object serves a single call.
        "thread_local": False,
    }


def name_of(name: Union[Name, Callable[..., Name]], args: Any, kwargs: Any) -> Name:
    return name(*args, **kwargs) if callable(name) else name


def making_once(
    unfinished: Unfinished, lock: LockBase, read: Callable[[], Any], make: Callable[[], Any]
) -> Steps[Any]:
    """The value, computed by this caller or by another one."""
    value = yield Call(read)
    until = None if lock.blocking_timeout is None else clock() + lock.blocking_timeout
    while value is None:
        left_s = None if until is None else max(0.0, until - clock())
        answer = yield from lock._acquiring(unfinished, 1, True, left_s, None, None, coalesce=True)
        if answer is True:
            return (yield from _making(unfinished, lock, read, make))
        value = yield Call(read)
        # Done, but no value (it was evicted, or the lock was held for something else): try again.
        if value is None and not isinstance(answer, Done):
            message = f"no value after {lock.blocking_timeout} s: another caller holds the lock {str(lock.name)!r}"
            raise named(NotMadeError, message, str(lock.name))
    return value


def _making(
    unfinished: Unfinished, lock: LockBase, read: Callable[[], Any], make: Callable[[], Any]
) -> Steps[Any]:
    try:
        # Another caller may have stored the value while this one was acquiring the lock.
        value = yield Call(read)
        if value is None:
            value = yield Call(make)
    except GeneratorExit:
        raise
    except BaseException as error:
        yield from lock._releasing_after(unfinished, 1, True, True, True, error)
        raise
    if not (yield from lock._releasing_done(unfinished)):
        # Another caller may have computed the value as well: return what all other callers read.
        found = yield Call(read)
        return value if found is None else found
    return value
