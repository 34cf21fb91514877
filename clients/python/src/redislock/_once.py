"""Single-flight: of all callers that miss one value, one makes it, and the others wait until it is there.

The lock decides only which caller makes the value, and what the others are told. Only `read` says that it is there.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, TypedDict, Union

from ._hold import Done, clock
from ._locks import LockBase, Name, Number, OnLost
from ._steps import Call, Steps, Unfinished
from .errors import NotMadeError, named


class OnceOptions(TypedDict, total=False):
    """The named arguments of `once` and `single_flight`; times in seconds."""

    timeout: Number
    """The lease: how long after the death of its maker another caller makes the value. 30"""
    blocking_timeout: Optional[Number]
    """How long to wait for the value while another caller makes it; None: for ever. None"""
    auto_renew: bool
    """Renew after each third of the lease while the value is made; False: another caller makes it when the lease is
    over. True, or False with session"""
    session: bool
    """Alternatively, bind the lock to a dedicated connection: when its maker dies, another caller makes the value at
    once. False"""
    shared: bool
    """Of redislock.asyncio: as of a lock. False"""
    on_lost: Optional[OnLost]
    """Called once, with the `Grant`, when the lock was lost while the value was made: another caller may make it too.
    None"""


def lock_options(
    timeout: Number = 30,
    blocking_timeout: Optional[Number] = None,
    auto_renew: Optional[bool] = None,
    session: bool = False,
    on_lost: Optional[OnLost] = None,
    shared: bool = False,
) -> Any:
    """The lock's options that follow from these."""
    if not timeout:
        raise ValueError("once needs a timeout: without a lease, a caller that dies would keep all others waiting")
    return {
        "timeout": timeout,
        "blocking_timeout": blocking_timeout,
        "auto_renew": not session if auto_renew is None else auto_renew,
        "session": session,
        "on_lost": on_lost,
        "shared": shared,
        # The lock is made for one call.
        "thread_local": False,
    }


def name_of(name: Union[Name, Callable[..., Name]], args: Any, kwargs: Any) -> Name:
    return name(*args, **kwargs) if callable(name) else name


def making_once(
    unfinished: Unfinished, lock: LockBase, read: Callable[[], Any], make: Callable[[], Any]
) -> Steps[Any]:
    """The value, made by this caller or by another one."""
    value = yield Call(read)
    until = None if lock.blocking_timeout is None else clock() + lock.blocking_timeout
    while value is None:
        left_s = None if until is None else max(0.0, until - clock())
        answer = yield from lock._acquiring(unfinished, 1, True, left_s, None, None, coalesce=True)
        if answer is True:
            return (yield from _making(unfinished, lock, read, make))
        value = yield Call(read)
        # Done but not there (it was evicted, or the lock was held for something else): ask again.
        if value is None and not isinstance(answer, Done):
            message = f"no value after {lock.blocking_timeout} s: another caller holds the lock {str(lock.name)!r}"
            raise named(NotMadeError, message, str(lock.name))
    return value


def _making(
    unfinished: Unfinished, lock: LockBase, read: Callable[[], Any], make: Callable[[], Any]
) -> Steps[Any]:
    try:
        # The previous caller may have made the value while this one was requesting the lock.
        value = yield Call(read)
        if value is None:
            value = yield Call(make)
    except GeneratorExit:
        raise
    except BaseException as error:
        yield from lock._releasing_after(unfinished, 1, True, True, True, error)
        raise
    if not (yield from lock._releasing_done(unfinished)):
        # Another caller may have made the value too: return what all other callers read.
        found = yield Call(read)
        return value if found is None else found
    return value
