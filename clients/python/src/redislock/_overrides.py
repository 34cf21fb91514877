"""Refuses overrides that work with redis-py's lock and would silently be ignored here.

There each method is a server-side script, which a subclass or an assignment may replace. Here each method is a command
of the module. Scripts are accepted in a class that overrides the method itself, which then decides what to do.
"""

from __future__ import annotations

from typing import Any, Dict

_METHODS: Dict[str, str] = {
    "do_acquire": "acquire",
    "do_release": "release",
    "lua_release": "release",
    "LUA_RELEASE_SCRIPT": "release",
    "do_extend": "extend",
    "lua_extend": "extend",
    "LUA_EXTEND_SCRIPT": "extend",
    "do_reacquire": "reacquire",
    "lua_reacquire": "reacquire",
    "LUA_REACQUIRE_SCRIPT": "reacquire",
    "register_scripts": "",
}


def _refusal(name: str) -> str:
    method = _METHODS[name]
    said = f"{name} belongs to redis-py and would be ignored: redislock's locks use server commands, not scripts"
    if method == "extend":
        return f"{said}. extend(seconds, replace_ttl=True) sets a new lease; override extend() for another rule"
    return f"{said}. Override {method}()" if method else said


def _is_overridden(kind: type, method: str) -> bool:
    return bool(method) and not _is_ours(getattr(kind, method).__module__)


def _is_ours(module: str) -> bool:
    return module.startswith("redislock.")


class Refused:
    """An attribute of redis-py's lock that raises an error when it is assigned."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, lock: Any, kind: type) -> Any:
        if lock is None or self._name not in lock.__dict__:
            raise AttributeError(self._name)
        return lock.__dict__[self._name]

    def __set__(self, lock: Any, value: Any) -> None:
        if not _is_overridden(type(lock), _METHODS[self._name]):
            raise AttributeError(_refusal(self._name))
        lock.__dict__[self._name] = value


class Overridable:
    """The base of the classes that replace redis-py's lock."""

    do_acquire = Refused()
    do_release = Refused()
    lua_release = Refused()
    LUA_RELEASE_SCRIPT = Refused()
    do_extend = Refused()
    lua_extend = Refused()
    LUA_EXTEND_SCRIPT = Refused()
    do_reacquire = Refused()
    lua_reacquire = Refused()
    LUA_REACQUIRE_SCRIPT = Refused()
    register_scripts = Refused()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Any class before the package's own in the MRO counts: redis-py would use its script as well.
        own = next(number for number, kind in enumerate(cls.__mro__) if _is_ours(kind.__module__))
        for name, method in _METHODS.items():
            if any(name in kind.__dict__ for kind in cls.__mro__[:own]) and not _is_overridden(cls, method):
                raise TypeError(f"{cls.__name__}: {_refusal(name)}")
