"""`lock_options` of a client's class are defaults: an option of a lock replaces those that it excludes."""

from __future__ import annotations

from typing import Any

import pytest
from servers import Server


def client_of(api: Any, server: Server, **defaults: Any) -> Any:
    class Client(api.locks.Redis):  # type: ignore[misc]
        lock_options = defaults

    return api.closes(Client(port=server.port))


@pytest.mark.parametrize(
    "defaults, own, made",
    [
        ({"timeout": 30, "auto_renew": True}, {"session": True}, {"session": True, "auto_renew": False, "timeout": 30}),
        ({"timeout": 30, "session": True}, {"auto_renew": True}, {"session": False, "auto_renew": True}),
        ({"timeout": 30, "session": True}, {"at_least": 5}, {"session": False, "at_least": 5}),
        ({"timeout": 30, "at_least": 5}, {"session": True}, {"session": True, "at_least": None}),
        ({"timeout": 30, "at_least": 5}, {"token": "mine"}, {"owner": "mine", "at_least": None}),
        ({"timeout": 30, "token": "mine"}, {"at_least": 5}, {"owner": None, "at_least": 5}),
        ({"mixed": True}, {"session": True, "timeout": 30}, {"mixed": False, "session": True}),
        ({"timeout": 30, "session": True}, {"mixed": True}, {"mixed": True, "session": False}),
        (
            {"timeout": 30, "auto_renew": True, "at_least": 5},
            {"timeout": None},
            {"auto_renew": False, "at_least": None},
        ),
        ({"timeout": 30, "session": True}, {"timeout": 0}, {"session": False, "timeout": 0}),
        # An option that excludes nothing keeps the defaults.
        ({"timeout": 30, "auto_renew": True}, {"session": False}, {"session": False, "auto_renew": True}),
        ({"timeout": 30, "at_least": 5}, {"token": None, "blocking": False}, {"at_least": 5, "blocking": False}),
        ({"timeout": 30, "auto_renew": True}, {"auto_renew": False, "at_least": 3}, {"auto_renew": False}),
    ],
)
async def test_the_option_of_a_lock_replaces_a_default(
    api: Any, server: Server, defaults: Any, own: Any, made: Any
) -> None:
    client, actor = client_of(api, server, **defaults), api.actor()
    lock = client.lock("k", **own)
    assert {name: getattr(lock, name) for name in made} == made
    assert await actor.do(lock.acquire)
    assert bool(server.holders("k")[0]["session"]) == lock.session
    await actor.do(lock.release)
    # Both in one call are still an error.
    if own.get("session") and not defaults.get("mixed"):
        with pytest.raises(ValueError):
            client.lock("k", **own, auto_renew=True, timeout=30)


async def test_arguments_in_the_order_of_redis_py(api: Any, server: Server) -> None:
    client = client_of(api, server, timeout=30, blocking_timeout=7, auto_renew=True)
    lock = client.lock("k", 10, 0.2, False, 3, None, False)
    found = (lock.timeout, lock.sleep, lock.blocking, lock.blocking_timeout, lock.thread_local, lock.auto_renew)
    assert found == (10, 0.2, False, 3, False, True)
    assert client.lock("k").blocking_timeout == 7
