"""An override of redis-py's lock by a subclass or an assignment takes effect, or is refused where it is made."""

from __future__ import annotations

from typing import Any

import pytest
from servers import Server

SCRIPTS = {
    "lua_release": "release",
    "lua_extend": "extend",
    "lua_reacquire": "reacquire",
    "LUA_RELEASE_SCRIPT": "release",
    "LUA_EXTEND_SCRIPT": "extend",
    "LUA_REACQUIRE_SCRIPT": "reacquire",
    "do_acquire": "acquire",
    "do_release": "release",
    "do_extend": "extend",
    "do_reacquire": "reacquire",
}


@pytest.mark.parametrize("name", [*SCRIPTS, "register_scripts"])
async def test_a_script_is_refused(api: Any, server: Server, name: str) -> None:
    lock = api.locks.Lock(api.client(server.port), "k", timeout=60)
    assert not hasattr(lock, name)
    with pytest.raises(AttributeError, match=f"{name} belongs to redis-py"):
        setattr(lock, name, object())
    for lock_class in (api.locks.Lock, api.locks.RLock, api.locks.Semaphore, api.locks.MultiLock):
        with pytest.raises(TypeError, match=f"Mine: {name} belongs to redis-py"):
            type("Mine", (lock_class,), {name: object()})
        with pytest.raises(TypeError, match=f"Mine: {name} belongs to redis-py"):
            type("Mine", (type("Mixin", (), {name: object()}), lock_class), {})


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_class_with_a_method_of_its_own_keeps_its_script(api: Any, server: Server, name: str) -> None:
    def method(self: Any, *args: Any) -> str:
        return getattr(self, name)

    lock = type("Mine", (api.locks.Lock,), {SCRIPTS[name]: method, name: "the class's"})(api.client(server.port), "k")
    assert getattr(lock, SCRIPTS[name])() == "the class's"
    mixin = type("Mixin", (), {SCRIPTS[name]: method, name: "the class's"})
    lock = type("Mine", (mixin, api.locks.Lock), {})(api.client(server.port), "k")
    assert getattr(lock, SCRIPTS[name])() == "the class's"
    lock = type("Mine", (api.locks.Lock,), {SCRIPTS[name]: method})(api.client(server.port), "k")
    setattr(lock, name, "the lock's")
    assert getattr(lock, SCRIPTS[name])() == "the lock's"


async def test_with_calls_the_methods_of_a_subclass(api: Any, server: Server) -> None:
    calls = []

    class Counted(api.locks.Lock):  # type: ignore[misc, name-defined]
        def acquire(self, *args: Any, **options: Any) -> Any:
            calls.append("acquire")
            return super().acquire(*args, **options)

        def release(self, *args: Any, **options: Any) -> Any:
            calls.append("release")
            return super().release(*args, **options)

    lock = Counted(api.client(server.port), "k", timeout=60)
    for fails in (False, True):
        try:
            if api.name == "sync":
                with lock:
                    assert server.info("k") and not fails
            else:
                async with lock:
                    assert server.info("k") and not fails
        except AssertionError:
            assert fails
        assert server.info("k") is None
    assert calls == ["acquire", "release"] * 2


async def test_what_is_fixed_at_construction_cannot_be_assigned(api: Any, server: Server) -> None:
    client = api.client(server.port)
    with pytest.raises(AttributeError):
        api.locks.Lock(client, "k").name = "other"
    with pytest.raises(AttributeError):
        api.locks.Semaphore(client, "k", 2).limit = 3


async def test_options_may_be_assigned(api: Any, server: Server) -> None:
    lock, actor = api.locks.Lock(api.client(server.port), "k", timeout=60, thread_local=False), api.actor()
    lock.timeout, lock.blocking, lock.owner = 30, False, "mine"
    assert await actor.do(lock.acquire)
    assert [(holder["owner"], holder["lease"]) for holder in server.holders("k")] == [("mine", 30_000)]
    lock.local.token = "somebody"
    assert not await actor.do(lock.owned)
    lock.local.token = b"mine"
    await actor.do(lock.release)
    assert server.info("k") is None
