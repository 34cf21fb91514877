"""If the server cannot be reached, a warning says why immediately, and so does the error at the end of the wait. A
cause that will not go away ends the wait."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Iterator, List

import pytest
from apis import AsyncioApi
from redis.exceptions import AuthenticationError, LockError, ReadOnlyError, RedisClusterException, RedisError
from servers import Cluster, Server, eventually, free_port

WAIT_S = 1.0
# An acquire may take two seconds longer than its time limit, and an allowance for a busy machine.
LATE_S = 2.0 + 2.0


def warnings(caplog: Any, prefix: str) -> List[str]:
    """Those about locks with names that begin with the prefix, and those of other libraries. The cleanup after an
    earlier test may still log about its own lock."""
    logged = [each for each in caplog.records if each.levelno >= logging.WARNING]
    return [each.getMessage() for each in logged if each.name != "redislock" or each.getMessage().startswith(prefix)]


def ways(api: Any, client: Any) -> Any:
    """Each way to acquire, by name."""

    def lock(way: str, **options: Any) -> Any:
        return api.locks.Lock(client, f"{{k}}{way}", timeout=30, **options)

    made = {
        "plain": lock("plain").acquire,
        "rlock": api.locks.RLock(client, "{k}rlock", timeout=30).acquire,
        "session": lock("session", session=True).acquire,
        "mixed": lock("mixed", mixed=True).acquire,
        "run": lambda **options: lock("run").run("PING", **options),
    }
    if api.name == "asyncio":
        made["shared"] = lock("shared", shared=True).acquire
    return made


async def all_ways(api: Any, client: Any, each: Any) -> None:
    await asyncio.gather(*(each(name, api.actor(), ask) for name, ask in ways(api, client).items()))


@pytest.fixture(scope="module")
def replica(shared_server: Server) -> Iterator[Server]:
    made = Server("--replicaof", "127.0.0.1", str(shared_server.port))
    yield made
    made.stop()


@pytest.mark.parametrize("what", ["closed port", "TLS", "replica", "unknown host"])
async def test_the_error_at_the_end_of_the_wait_names_the_cause(
    api: Any, server: Server, replica: Server, caplog: Any, what: str
) -> None:
    port, options, words = {
        "closed port": (free_port(), {}, "refused|Connect call failed|Error 111"),
        # The server waits for the rest of what is not a command.
        "TLS": (server.port, {"ssl": True}, "[Tt]imeout|[Nn]ot connected|SSL|handshake|[Cc]losed"),
        "replica": (replica.port, {}, "read only replica"),
        # If the lookup takes too long, the library only names the connection.
        "unknown host": (6379, {"host": "no-such-host.invalid"}, "no-such-host.invalid|Timeout connecting"),
    }[what]
    if what == "replica":
        await eventually(lambda: replica.admin.info("replication")["master_link_status"] == "up")

    async def fails(name: str, actor: Any, ask: Any) -> None:
        began = time.monotonic()
        with pytest.raises(RedisError, match=words) as refused:
            await actor.do(ask, blocking_timeout=WAIT_S)
        # The lookup of a host name has the system's timeout.
        late_s = LATE_S if what != "unknown host" else 30.0
        assert WAIT_S <= time.monotonic() - began < WAIT_S + late_s, name
        assert what == "replica" or refused.value.__cause__ is not None or name == "shared", name
        assert what != "replica" or isinstance(refused.value, ReadOnlyError)
        said = warnings(caplog, f"{{k}}{name}:")
        # A handshake without a reply and a slow lookup of a host name are one attempt: nothing is repeated.
        assert len(said) == 1 or (what in ("TLS", "unknown host") and not said), (name, said)
        assert all("retrying" in each for each in said)

    await all_ways(api, api.client(port, **options), fails)


async def test_a_wait_without_a_limit_warns_once(api: Any, caplog: Any) -> None:
    port, actor = free_port(), api.actor()
    acquiring = actor.start(api.locks.Lock(api.client(port), "unlimited", timeout=30).acquire)
    await eventually(lambda: warnings(caplog, "unlimited:"), "a warning")
    server = Server(port=port)
    try:
        assert await acquiring
        (said,) = warnings(caplog, "unlimited:")
        assert "connecting to localhost" in said
    finally:
        server.stop()


async def refused_at_once(api: Any, client: Any, words: str) -> None:
    async def fails(name: str, actor: Any, ask: Any) -> None:
        began = time.monotonic()
        with pytest.raises(RedisError, match=words) as refused:
            await actor.do(ask, blocking_timeout=60)
        assert refused.value.__cause__ is not refused.value
        # redis-py itself retries a wrong password for three seconds.
        assert time.monotonic() - began < 2.0, name

    await all_ways(api, client, fails)


async def test_what_the_server_refuses_is_not_waited_for(api: Any, server: Server, caplog: Any) -> None:
    server.ask("ACL", "SETUSER", "reader", "on", ">right", "~*", "&*", "+@all", "-lock.acquire", "-rlock.acquire")
    server.ask("ACL", "SETUSER", "default", "resetpass", ">secret")
    try:
        wrong = api.client(server.port, username="reader", password="wrong")
        await refused_at_once(api, wrong, "invalid username-password|WRONGPASS")
        await refused_at_once(api, api.client(server.port), "[Aa]uthentication required|already authenticated")
        await refused_at_once(api, api.client(server.port, username="reader", password="right"), "permissions")
        assert not warnings(caplog, "{k}")
    finally:
        server.admin.auth("secret")
        server.ask("ACL", "SETUSER", "default", "nopass")
        server.ask("ACL", "DELUSER", "reader")


async def test_sentinels_that_refuse_the_user_are_not_waited_for(api: Any) -> None:
    sentinel = Server(sentinel=True, module=False)
    try:
        sentinel.ask("ACL", "SETUSER", "clerk", "on", ">right", "+@all")
        asked = {"username": "clerk", "password": "wrong", "retry": None}
        client = api.sentinel([("127.0.0.1", sentinel.port)], sentinel_kwargs=asked).master_for("main")
        began = time.monotonic()
        with pytest.raises(RedisError):
            await api.actor().do(api.locks.Lock(api.closes(client), "k", timeout=30).acquire, blocking_timeout=60)
        assert time.monotonic() - began < 10.0
    finally:
        sentinel.stop()


async def test_a_cluster_that_refuses_the_user_is_not_waited_for() -> None:
    # The sync client queries the nodes when it is created.
    api, cluster = AsyncioApi(), Cluster()
    try:
        port = cluster.nodes[0].port
        client = api.closes(api.cluster(host="127.0.0.1", port=port, username="nobody", password="wrong"))
        ways: List[Any] = [{}, {"session": True}]
        for option in ways:
            began = time.monotonic()
            with pytest.raises(RedisClusterException) as refused:
                await api.locks.Lock(client, "k", timeout=30, **option).acquire(blocking_timeout=60)
            # The error itself says that no node was reachable.
            assert isinstance(refused.value.__cause__, AuthenticationError) and time.monotonic() - began < 10.0
    finally:
        await api.end()
        cluster.stop()


async def test_a_single_server_client_reports_that_it_met_a_cluster(api: Any) -> None:
    cluster = Cluster()
    try:

        async def fails(name: str, actor: Any, ask: Any) -> None:
            began = time.monotonic()
            with pytest.raises(LockError, match="node of a cluster"):
                await actor.do(ask, blocking_timeout=60)
            assert time.monotonic() - began < 30.0, name

        for node in cluster.nodes:
            for name, ask in ways(api, api.client(node.port)).items():
                # If it is the node of the key, only the channel of the messages belongs to another node.
                if node is cluster.nodes[1] or name == "shared":
                    await fails(name, api.actor(), ask)
    finally:
        cluster.stop()
