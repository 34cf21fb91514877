"""A slot that moves from one node to another (MIGRATING, IMPORTING): where each request is sent, with ASKING."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Any, Iterator

import pytest
from redis.exceptions import AskError, TryAgainError
from servers import Cluster, Server, eventually, until

# One cluster for all tests.
pytestmark = pytest.mark.xdist_group("cluster")


class Migration:
    """A slot whose keys are moving. The target is a new node without slots, which no client lists."""

    _next = itertools.count()

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.source, _, self.target = cluster.nodes
        keys = (f"k{number}" for number in self._next)
        self.key = next(key for key in keys if self.source.ask("CLUSTER", "KEYSLOT", key) < 8192)
        self._slot = self.source.ask("CLUSTER", "KEYSLOT", self.key)

    def begin(self) -> None:
        self._cluster.begin_move(self._slot, self.source, self.target)

    def move_keys(self) -> None:
        self._cluster.move_keys(self._slot, self.source, self.target)

    def end(self) -> None:
        self._cluster.end_move(self._slot, self.source, self.target)

    def undo(self) -> None:
        """Moves the slots back: the target has none again."""
        for node in (self.source, self.target):
            node.admin.flushall()
            node.admin.config_resetstat()
        self._cluster.end_move(self._slot, self.target, self.source)
        self.source.ask("CLUSTER", "BUMPEPOCH")
        # A target that has not heard of it takes the next slot by an older epoch, and loses it again.
        until(lambda: len(set(map(self._source_epoch, self._cluster.nodes))) == 1, "the epoch at each node")

    def _source_epoch(self, node: Server) -> str:
        nodes = [line.split() for line in node.ask("CLUSTER", "NODES").splitlines()]
        return next(words[6] for words in nodes if words[0] == self.source.ask("CLUSTER MYID"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(nodes=3)
    yield made
    made.stop()


@pytest.fixture()
def migration(cluster: Cluster) -> Iterator[Migration]:
    made = Migration(cluster)
    yield made
    made.undo()


async def test_a_free_lock_of_a_moving_slot_is_taken_at_the_new_node(
    api: Any, migration: Migration, caplog: Any
) -> None:
    source, target, key = migration.source, migration.target, migration.key
    client, actor, rival = api.closes(api.cluster(host="127.0.0.1", port=source.port)), api.actor(), api.actor()
    migration.begin()
    lock, other = api.locks.Lock(client, key, timeout=60), api.locks.Lock(client, key, timeout=60)
    assert await actor.do(lock.acquire, blocking=False)
    assert len(target.holders(key)) == 1
    assert not await rival.do(other.acquire, blocking=False)
    assert await actor.do(lock.owned) and await actor.do(lock.locked)
    assert await actor.do(lock.extend, 10)
    assert 0 < await actor.do(lock.exec, "PTTL", key) <= 70_000
    waiting = rival.start(other.acquire, blocking_timeout=120)
    await eventually(lambda: target.waiters(key), "a waiter at the new node")
    await actor.do(lock.release)
    assert await waiting
    migration.end()
    await rival.do(other.release)
    assert target.info(key) is None
    # A redirection is part of every move. The cleanup after an earlier test may still log about its own lock.
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert not [each for each in warnings if each.name != "redislock" or key in each.getMessage()]


async def test_a_waiter_follows_a_lock_that_moves(api: Any, migration: Migration) -> None:
    source, target, key = migration.source, migration.target, migration.key
    client, actor, rival = api.closes(api.cluster(host="127.0.0.1", port=source.port)), api.actor(), api.actor()
    lock, other = api.locks.Lock(client, key, timeout=60), api.locks.Lock(client, key, timeout=60)
    assert await actor.do(lock.acquire)
    fence = await actor.do(lambda: lock.fence)
    waiting = rival.start(other.acquire)
    await eventually(lambda: source.waiters(key), "a waiter")
    migration.begin()
    migration.move_keys()
    await eventually(lambda: target.waiters(key), "the same waiter at the new node")
    # Still not the slot's owner: ASK redirects both holder and waiter there.
    await actor.do(lock.release)
    assert await waiting
    assert (await rival.do(lambda: other.fence)) > fence
    await rival.do(other.release)
    migration.end()
    assert await actor.do(lock.acquire, blocking=False)
    await actor.do(lock.release)


async def test_a_session_keeps_its_connection_to_the_new_node(api: Any, migration: Migration) -> None:
    source, target, key = migration.source, migration.target, migration.key
    client, actor = api.closes(api.cluster(host="127.0.0.1", port=source.port)), api.actor()
    reported: Any = []
    lock = api.locks.Lock(client, key, timeout=4, session=True, on_lost=reported.append)
    migration.begin()
    assert await actor.do(lock.acquire)
    (holder,) = target.holders(key)
    assert holder["session"]
    # While the slot is moving there are no renewals: then the session would end with its lease, and report the loss.
    migration.end()
    await eventually(lambda: target.holders(key)[0]["age"] > 6000, "a session that outlives its lease")
    assert target.calls("lock.held") > 2 and not reported and not await actor.do(lambda: lock.lost)
    await actor.do(lock.release)
    assert target.info(key) is None and not reported


async def test_too_few_replicas_of_the_new_node_release_the_lock(api: Any, migration: Migration) -> None:
    source, target, key = migration.source, migration.target, migration.key
    client, actor = api.closes(api.cluster(host="127.0.0.1", port=source.port)), api.actor()
    migration.begin()
    durable = api.locks.Lock(client, key, timeout=60, replicas=1, replica_timeout=50)
    with pytest.raises(api.locks.NotReplicatedError):
        await actor.do(durable.acquire)
    assert target.info(key) is None and target.calls("wait") == 1


async def test_several_locks_wait_until_all_have_moved(api: Any, migration: Migration) -> None:
    source, target, key = migration.source, migration.target, migration.key
    client, actor, rival = api.closes(api.cluster(host="127.0.0.1", port=source.port)), api.actor(), api.actor()
    names = [f"{{{key}}}1", f"{{{key}}}2"]
    one, both = api.locks.Lock(client, names[0], timeout=60), api.locks.MultiLock(client, names)
    assert await actor.do(one.acquire)
    migration.begin()
    # One key is at the source and the other does not exist: -TRYAGAIN until the slot has moved.
    waiting = rival.start(both.acquire)
    await eventually(lambda: refused(source, "mlock.acquire") > 2, "refusals")
    assert not waiting.done() and not target.info(names[1])
    await actor.do(one.release)
    migration.end()
    assert await waiting
    assert target.info(names[0]) and target.info(names[1])
    await rival.do(both.release)


async def test_run_follows_a_slot_that_moves(api: Any, migration: Migration) -> None:
    source, target, key = migration.source, migration.target, migration.key
    client, actor, rival = api.closes(api.cluster(host="127.0.0.1", port=source.port)), api.actor(), api.actor()
    lock, other = api.locks.Lock(client, key, timeout=60), api.locks.Lock(client, key, timeout=60)
    counter = f"{{{key}}}:n"
    assert await actor.do(lock.run, "INCR", counter) == 1
    assert await actor.do(lock.acquire)
    waiting = rival.start(other.run, "INCR", counter)
    await eventually(lambda: source.waiters(key), "a waiter")
    migration.begin()
    migration.move_keys()
    await eventually(lambda: target.waiters(key), "the same waiter at the new node")
    await actor.do(lock.release)
    assert await waiting == 2
    # ASKING before each command of the packet.
    assert await actor.do(lock.run, "INCR", counter, blocking=False) == 3
    migration.end()
    assert await actor.do(lock.run, "INCR", counter) == 4
    assert source.calls("incr") == 1 and target.calls("incr") == 3 and target.info(key) is None


async def test_a_command_that_no_node_runs_while_its_slot_moves_did_not_run(
    api: Any, migration: Migration, monkeypatch: Any
) -> None:
    source, target, key = migration.source, migration.target, migration.key
    client = api.closes(api.cluster(host="127.0.0.1", port=source.port))
    counter = f"{{{key}}}:new"
    held, brief = (api.locks.Lock(client, f"{{{key}}}:{name}", timeout=60) for name in ("held", "brief"))
    holder = api.actor()
    assert await holder.do(held.acquire) and await holder.do(brief.acquire)
    migration.begin()
    # One lock is at the node that loses the slot, others are free; the counter does not exist.
    monkeypatch.setattr("redislock._protocol.RELEASE_S", 1.5)

    async def says_so(call: Any, actor: Any, **options: Any) -> None:
        before = redirections(source) + redirections(target)
        with pytest.raises(api.locks.NotRunError) as error:
            await actor.do(call, "INCR", counter, **options)
        assert isinstance(error.value.__cause__, (AskError, TryAgainError))
        # After pauses that grow to 250 ms.
        assert 2 <= redirections(source) + redirections(target) - before < 120

    await says_so(api.locks.Lock(client, key, timeout=60).run, api.actor(), blocking_timeout=1.5)
    await says_so(api.locks.Lock(client, key, timeout=60).run, api.actor(), blocking=False)
    await says_so(api.locks.Lock(client, key, timeout=60, session=True).run, api.actor(), blocking_timeout=1.5)
    await says_so(api.locks.RLock(client, f"{{{key}}}:r", timeout=60).run, api.actor(), blocking_timeout=1.5)
    await says_so(held.exec, holder)
    assert await holder.do(brief.extend, 1, replace_ttl=True)
    with pytest.raises(api.locks.LockNotOwnedError):
        await holder.do(brief.exec, "INCR", counter)
    # It runs when the slot has arrived.
    monkeypatch.undo()
    before = redirections(source) + redirections(target)
    lock = api.locks.Lock(client, key, timeout=60)
    running = [api.actor().start(lock.run, "INCR", counter), holder.start(held.exec, "INCR", counter)]
    await eventually(lambda: redirections(source) + redirections(target) > before + 12, "redirections")
    migration.move_keys()
    migration.end()
    assert sorted(await asyncio.gather(*running)) == [1, 2]
    await holder.do(held.release)
    await eventually(lambda: target.info(key) is None, "the end of the hold")


def redirections(server: Server) -> int:
    """How often the node has redirected a request."""
    stats: Any = server.admin.info("errorstats")
    return sum(int(stats.get(f"errorstat_{name}", {}).get("count", 0)) for name in ("ASK", "TRYAGAIN"))


def refused(server: Server, command: str) -> int:
    """The calls that the server or the module itself refused: versions differ."""
    stats: Any = server.admin.info("commandstats").get(f"cmdstat_{command}", {})
    return int(stats.get("rejected_calls", 0)) + int(stats.get("failed_calls", 0))
