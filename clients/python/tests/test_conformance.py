"""The cases of clients/conformance.md, each for the sync and the asyncio client."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from redis.exceptions import LockError, LockNotOwnedError, NoPermissionError, ResponseError
from servers import Cluster, Proxy, Server, eventually, until


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decoded", [False, True], ids=["bytes", "decoded"])
async def test_acquire(api: Any, server: Server, protocol: int, decoded: bool) -> None:
    client = api.client(server.port, protocol=protocol, decode_responses=decoded)
    actor, locks = api.actor(), api.locks
    lock = locks.Lock(client, "k", timeout=10)
    assert await actor.do(lock.acquire)
    first = await actor.do(lambda: lock.grant)
    assert 9 < first.remaining <= 10 and first.holds == 1
    (holder,) = server.holders("k")
    assert holder["owner"] == first.token and holder["fence"] == first.fence
    host, pid, random = first.token.rsplit(":", 2)
    assert len(first.token) <= 38 and int(pid) and len(random) == 16 and host
    assert await actor.do(lock.owned) and await actor.do(lock.locked)
    other, rival = locks.Lock(client, "k", timeout=10), api.actor()
    assert not await rival.do(other.acquire, blocking=False)
    await actor.do(lock.release)
    assert server.info("k") is None and not await actor.do(lock.locked)
    assert await rival.do(other.acquire, blocking=False)
    assert (await rival.do(lambda: other.fence)) > first.fence
    await rival.do(other.release)


async def test_wait(api: Any, server: Server) -> None:
    client, holder, waiter = api.client(server.port), api.actor(), api.actor()
    lock, other = api.locks.Lock(client, "k", timeout=30), api.locks.Lock(client, "k", timeout=30)
    await holder.do(lock.acquire)
    began = time.monotonic()
    assert not await waiter.do(other.acquire, blocking_timeout=0.3)
    assert time.monotonic() - began >= 0.3
    waiting = waiter.start(other.acquire, blocking_timeout=30)
    await eventually(lambda: server.waiters("k"), "a waiter")
    await holder.do(lock.release)
    assert await waiting
    await waiter.do(other.release)


async def test_order(api: Any, server: Server) -> None:
    client, holder = api.client(server.port), api.actor()
    lock = api.locks.Lock(client, "k", timeout=30)
    await holder.do(lock.acquire)
    got = []

    async def turn(number: int, actor: Any) -> None:
        mine = api.locks.Lock(client, "k", timeout=30, token=f"waiter-{number}")
        assert await actor.do(mine.acquire)
        got.append(number)
        await actor.do(mine.release)

    turns = []
    for number in range(5):
        turns.append(asyncio.ensure_future(turn(number, api.actor())))
        await eventually(lambda: len(server.waiters("k")) == number + 1, "one more waiter")
    await holder.do(lock.release)
    await asyncio.gather(*turns)
    assert got == [0, 1, 2, 3, 4]


async def test_position_kept_over_short_sockets(api: Any, server: Server) -> None:
    client, short = api.client(server.port), api.client(server.port, socket_timeout=0.6)
    holder, first, second = api.actor(), api.actor(), api.actor()
    owners = ((client, "holder"), (short, "early"), (client, "late"))
    lock, early, late = (api.locks.Lock(c, "k", timeout=60, token=t) for c, t in owners)
    await holder.do(lock.acquire)
    got = [first.start(early.acquire)]
    await eventually(lambda: server.waiters("k") == ["early"], "the first waiter")
    got.append(second.start(late.acquire))
    await eventually(lambda: "late" in server.waiters("k"), "the second waiter")
    asked = server.calls("lock.acquire")
    await eventually(lambda: server.calls("lock.acquire") >= asked + 5, "five slices more")
    await eventually(lambda: server.waiters("k") == ["early", "late"], "both, in order")
    await eventually(lambda: server.release_before_two("k", "holder"), "both at the release")
    assert await got[0] and not got[1].done()
    await first.do(early.release)
    assert await got[1]
    await second.do(late.release)


@pytest.mark.parametrize("after", [0, 3])
async def test_lost_reply_of_acquire(api: Any, server: Server, after: int) -> None:
    async with Proxy(server.port) as proxy:
        client, actor, locks = api.client(proxy.port), api.actor(), api.locks
        lock, reentrant = locks.Lock(client, "k", timeout=30), locks.RLock(client, "r", timeout=30)
        semaphore = locks.Semaphore(client, "s", limit=5, permits=2)
        for taken, key, holds in ((lock, "k", 1), (reentrant, "r", 1), (reentrant, "r", 2), (semaphore, "s", 2)):
            proxy.cut_reply(b".ACQUIRE", after)
            cuts = proxy.cuts
            assert await actor.do(taken.acquire)
            assert proxy.cuts == cuts + 1
            (holder,) = server.holders(key)
            assert holder["holds"] == holds
        for taken, key in ((lock, "k"), (reentrant, "r"), (reentrant, "r"), (semaphore, "s")):
            assert server.info(key)
            await actor.do(taken.release)
        assert server.admin.dbsize() == 0


async def test_lost_reply_of_release(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor, locks = api.client(proxy.port), api.actor(), api.locks
        lock, reentrant = locks.Lock(client, "k", timeout=30), locks.RLock(client, "r", timeout=30)
        await actor.do(lock.acquire)
        proxy.cut_reply(b"LOCK.RELEASE")
        await actor.do(lock.release)
        assert proxy.cuts == 1 and server.info("k") is None
        for _ in range(3):
            await actor.do(reentrant.acquire)
        for left in (2, 1, 0):
            proxy.cut_reply(b"RLOCK.RELEASE")
            await actor.do(reentrant.release)
            assert [holder["holds"] for holder in server.holders("r")] == ([left] if left else [])
        assert proxy.cuts == 4
        # Releasing a lock that was lost before never succeeds, even if more replies are lost.
        await actor.do(lock.acquire)
        server.ask("LOCK.BREAK", "k")
        with pytest.raises(LockNotOwnedError):
            await actor.do(lock.release)


async def test_failover_while_waiting(api: Any) -> None:
    primary, replica, sentinel = Server(), Server(), Server(sentinel=True)
    try:
        replica.ask("REPLICAOF", "127.0.0.1", primary.port)
        await eventually(lambda: replica.admin.info("replication")["master_link_status"] == "up", "a link")
        sentinel.ask("SENTINEL", "MONITOR", "main", "127.0.0.1", primary.port, 1)
        for name, value in (("down-after-milliseconds", 5000), ("failover-timeout", 30000)):
            sentinel.ask("SENTINEL", "SET", "main", name, value)
        await eventually(lambda: sentinel.admin.sentinel_slaves("main"), "the replica")

        managed = api.sentinel([("127.0.0.1", sentinel.port)])
        client, holder, waiter = api.closes(managed.master_for("main")), api.actor(), api.actor()
        lock, other = api.locks.Lock(client, "k", timeout=120), api.locks.Lock(client, "k", timeout=120)
        await holder.do(lock.acquire)
        fence = await holder.do(lambda: lock.fence)
        waiting = waiter.start(other.acquire)
        await eventually(lambda: primary.waiters("k"), "a waiter")
        primary.ask("WAIT", 1, 5000)
        await eventually(lambda: asked_for_failover(sentinel), "a failover that sentinel agrees to")
        await eventually(lambda: replica.admin.info("replication")["role"] == "master", "a new primary")
        await eventually(lambda: primary.admin.info("replication")["role"] == "slave", "the old one is a replica")
        await eventually(lambda: replica.waiters("k"), "the same waiter at the new primary")
        await holder.do(lock.release)
        assert await waiting
        assert (await waiter.do(lambda: other.fence)) > fence
        await waiter.do(other.release)
    finally:
        for server in (sentinel, replica, primary):
            server.stop()


def asked_for_failover(sentinel: Server) -> bool:
    """Sentinel refuses until it has seen the replica's INFO."""
    try:
        return bool(sentinel.ask("SENTINEL", "FAILOVER", "main"))
    except Exception as error:
        assert "NOGOODSLAVE" in str(error) or "INPROG" in str(error), error
        return False


async def test_cluster_redirect_while_waiting(api: Any) -> None:
    cluster = Cluster()
    try:
        source, target = cluster.nodes
        client = api.closes(api.cluster(host="127.0.0.1", port=source.port))
        holder, waiter = api.actor(), api.actor()
        slot = int(source.ask("CLUSTER", "KEYSLOT", "k"))
        if slot > 8191:
            source, target = target, source
        lock, other = api.locks.Lock(client, "k", timeout=120), api.locks.Lock(client, "k", timeout=120)
        several = api.locks.MultiLock(client, ["{k}1", "{k}2"])
        await holder.do(lock.acquire)
        waiting = waiter.start(other.acquire)
        await eventually(lambda: source.waiters("k"), "a waiter")
        cluster.move_slot(slot, source, target)
        await eventually(lambda: target.waiters("k"), "the same waiter at the slot's new node")
        await holder.do(lock.release)
        assert await waiting
        await waiter.do(other.release)
        assert target.info("k") is None
        assert await holder.do(several.acquire)
        await holder.do(several.exec, "SET", "{k}3", "v")
        await holder.do(several.release)
        assert target.admin.get("{k}3") == "v"
    finally:
        cluster.stop()


async def test_cancellation_leaves_nothing(api: Any, server: Server) -> None:
    holder = api.actor()
    lock = api.locks.Lock(api.client(server.port), "k", timeout=60)
    await holder.do(lock.acquire)
    async with Proxy(server.port) as proxy:
        # Once out of the queue, and once while the grant is on its way, unknown to the caller.
        for granted in (False, True):
            if granted:
                await holder.do(lock.release)
                proxy.hold_reply(b"LOCK.ACQUIRE")
            waiting = await start_waiting(api, proxy.port)
            try:
                if granted:
                    await eventually(lambda: server.holders("k") and proxy.held, "a grant that was not delivered")
                else:
                    await eventually(lambda: server.waiters("k"), "a waiter")
                await waiting.interrupt()
                # Withdrawn by the client: its process goes on.
                await eventually(lambda: not server.waiters("k"), "an empty queue")
                if granted:
                    await eventually(lambda: not server.holders("k"), "a free lock")
                assert server.calls("lock.cancel") == 1 + granted
            finally:
                await waiting.end()


class InterruptedTask:
    def __init__(self, port: int, api: Any) -> None:
        self._lock = api.locks.Lock(api.client(port), "k", timeout=60)
        self._task = asyncio.ensure_future(self._lock.acquire())

    async def interrupt(self) -> None:
        self._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._task

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


# A shell that runs the tests in the background has them ignore SIGINT.
WAITS_FOR_A_LOCK = """
import signal, sys, redis, redislock
signal.signal(signal.SIGINT, signal.default_int_handler)
lock = redislock.Lock(redis.Redis(port=int(sys.argv[1])), "k", timeout=60)
try:
    print("waits", flush=True)
    lock.acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.read()
"""


class InterruptedProcess:
    def __init__(self, process: Any) -> None:
        self._process = process

    async def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)
        assert await self._process.stdout.readline() == b"interrupted\n"

    async def end(self) -> None:
        # It would have lived on until here.
        assert self._process.returncode is None
        self._process.kill()
        await self._process.wait()


async def start_waiting(api: Any, port: int) -> Any:
    if api.name == "asyncio":
        return InterruptedTask(port, api)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WAITS_FOR_A_LOCK, str(port), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and await process.stdout.readline() == b"waits\n"
    return InterruptedProcess(process)


def background(api: Any) -> int:
    """The client's threads or tasks that keep locks alive."""
    if api.name == "sync":
        return sum(thread.name.startswith("redislock") for thread in threading.enumerate())
    from redislock.asyncio import _driver

    return len(_driver._tasks)


async def test_renewal_stops_with_the_lock(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.Lock(client, "k", timeout=0.9, auto_renew=True)
    assert await actor.do(lock.acquire)
    await eventually(lambda: server.calls("lock.renew") >= 4, "renewals for longer than the lease")
    assert await actor.do(lambda: not lock.lost and 0 < lock.grant.remaining <= 0.9)
    await actor.do(lock.release)
    await eventually(lambda: background(api) == 0, "no thread or task left")
    assert server.info("k") is None
    # An owner that forgets to release keeps the lock until its lease expires, not indefinitely.
    forgotten = [api.locks.Lock(client, "k", timeout=0.9, auto_renew=True, thread_local=False)]
    assert await actor.do(lambda: forgotten[0].acquire())
    forgotten.clear()
    await eventually(lambda: gc.collect() is not None and background(api) == 0, "no thread or task left")
    await eventually(lambda: server.info("k") is None, "the lease's end")


async def test_loss_is_reported(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    reported: Any = []
    lock = api.locks.Lock(client, "k", timeout=1.5, auto_renew=True, on_lost=reported.append)
    await actor.do(lock.acquire)
    fence = await actor.do(lambda: lock.fence)
    assert not await actor.do(lambda: lock.lost)
    server.ask("LOCK.BREAK", "k")
    assert await actor.do(lock.wait_lost, 30)
    await eventually(lambda: reported, "the callback")
    assert [grant.fence for grant in reported] == [fence] and await actor.do(lambda: lock.lost)
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.release)
    # Without renewals the local deadline reports the loss, without any reply of the server.
    reported.clear()
    lock = api.locks.Lock(client, "k", timeout=0.4, on_lost=reported.append)
    await actor.do(lock.acquire)
    assert await actor.do(lock.wait_lost, 30)
    await eventually(lambda: reported, "the callback")
    await eventually(lambda: server.info("k") is None, "the lease's end")
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.release)
    # As if the server's clock were behind: its reply to the release is 1, which is not a success.
    await actor.do(lock.acquire)
    assert server.ask("PEXPIRE", "k", 60_000) == 1
    assert await actor.do(lock.wait_lost, 30) and server.info("k") is not None
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.release)
    assert server.info("k") is None
    # A renewal that cannot be sent: the deadline reports the loss.
    reported.clear()
    stopped = Server()
    lock = api.locks.Lock(api.client(stopped.port), "k", timeout=1, auto_renew=True, on_lost=reported.append)
    await actor.do(lock.acquire)
    stopped.stop()
    await eventually(lambda: reported, "the callback")
    assert await actor.do(lambda: lock.lost)
    await eventually(lambda: background(api) == 0, "no thread or task left")


async def test_session(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    reported: Any = []
    lock = api.locks.Lock(client, "k", timeout=1.2, session=True, on_lost=reported.append)
    with pytest.raises(ValueError):
        api.locks.Lock(client, "k", session=True)
    assert await actor.do(lock.acquire)
    (holder,) = server.holders("k")
    assert holder["session"]
    await eventually(lambda: server.holders("k")[0]["age"] > 3000, "a hold that outlives its lease")
    assert not await actor.do(lambda: lock.lost) and server.calls("lock.renew") == 0
    # A client that is stopped for longer than the lease has not lost the lock: the server renews it.
    assert not await actor.do(lambda: time.sleep(1.5) or lock.lost)
    await actor.do(lock.release)
    assert server.info("k") is None and not reported
    await eventually(lambda: not connected(server, holder["session"]), "the end of the connection")
    # The end of the connection reports the loss: a check after a third of this lease would come too late.
    lock = api.locks.Lock(client, "k", timeout=600, session=True, on_lost=reported.append)
    assert await actor.do(lock.acquire)
    server.ask("CLIENT", "KILL", "ID", server.holders("k")[0]["session"])
    await eventually(lambda: reported, "the callback")
    assert await actor.do(lambda: lock.lost) and server.info("k") is None
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.release)
    await eventually(lambda: background(api) == 0, "no thread or task left")


async def test_a_release_while_a_session_is_checked_finds_it(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actor = api.client(proxy.port), api.actor()
        reported: Any = []
        lock = api.locks.Lock(client, "k", timeout=0.9, session=True, on_lost=reported.append)
        assert await actor.do(lock.acquire)
        proxy.hold_reply(b"LOCK.HELD")
        await eventually(lambda: proxy.held, "a check of the session under way")
        await actor.do(lock.release)
        await eventually(lambda: background(api) == 0, "no thread or task left")
        assert server.info("k") is None and not reported


async def test_a_session_whose_check_fails_in_any_way_is_lost(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    reported: Any = []
    lock = api.locks.Lock(client, "k", timeout=0.9, session=True, on_lost=reported.append)
    assert await actor.do(lock.acquire)

    def failing(step: Any) -> None:
        raise AttributeError("'NoneType' object has no attribute '_add_writer'")

    def fail() -> None:
        lock.local.hold.session_transport.send = failing

    await actor.do(fail)
    await eventually(lambda: reported, "the callback")
    assert await actor.do(lambda: lock.lost)
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.release)
    assert server.info("k") is None
    await eventually(lambda: background(api) == 0, "no thread or task left")


async def test_a_session_ends_with_a_release_that_fails(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.Lock(client, "k", timeout=60, session=True)
    await actor.do(lock.acquire)
    server.ask("ACL", "SETUSER", "default", "-lock.release")
    try:
        with pytest.raises(NoPermissionError):
            await actor.do(lock.release)
    finally:
        server.ask("ACL", "SETUSER", "default", "+lock.release")
    await eventually(lambda: server.info("k") is None, "the end of the session")


def connected(server: Server, client_id: int) -> bool:
    return any(int(client["id"]) == client_id for client in server.admin.client_list())


async def test_replicas(api: Any) -> None:
    primary, replica = Server(), Server()
    try:
        replica.ask("REPLICAOF", "127.0.0.1", primary.port)
        await eventually(lambda: replica.admin.info("replication")["master_link_status"] == "up", "a link")
        client, actor, locks = api.client(primary.port), api.actor(), api.locks
        lock = locks.Lock(client, "k", timeout=60, replicas=1, replica_timeout=60_000)
        assert await actor.do(lock.acquire)
        assert replica.holders("k")[0]["fence"] == await actor.do(lambda: lock.fence)
        await actor.do(lock.release)
        assert primary.calls("wait") == 1
        lock = locks.Lock(client, "k", timeout=60, replicas=2, replica_timeout=50)
        with pytest.raises(locks.NotReplicatedError):
            await actor.do(lock.acquire)
        assert primary.info("k") is None and await actor.do(lambda: lock.grant) is None
    finally:
        for server in (replica, primary):
            server.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_replicas_confirm_the_grant_and_not_another_connection(api: Any) -> None:
    primary, replicas = Server(), [Server(), Server()]
    try:
        for replica in replicas:
            replica.ask("REPLICAOF", "127.0.0.1", primary.port)
            await eventually(lambda: replica.admin.info("replication")["master_link_status"] == "up", "a link")
        client, actor = api.client(primary.port, socket_timeout=1), api.actor()
        lock = api.locks.Lock(client, "k", timeout=600, replicas=2, replica_timeout=600_000)
        replicas[1].process.send_signal(signal.SIGSTOP)
        try:
            waiting = actor.start(lock.acquire)
            await eventually(lambda: primary.calls("wait"), "a wait that has to be cut")
            # A connection of this pool has sent nothing, not even HELLO, so that WAIT on it returns immediately.
            silent = {"protocol": 2, "lib_name": None, "lib_version": None, "driver_info": None}
            known = inspect.signature(api.redis).parameters
            other = api.client(primary.port, socket_timeout=1, **{k: v for k, v in silent.items() if k in known})
            client.connection_pool = other.connection_pool
            asked = primary.calls("wait")
            await eventually(lambda: primary.calls("wait") >= asked + 3, "three waits more")
            assert not waiting.done()
        finally:
            replicas[1].process.send_signal(signal.SIGCONT)
        assert await waiting
        await actor.do(lock.release)
    finally:
        for server in (*replicas, primary):
            server.stop()


async def test_exec(api: Any, server: Server) -> None:
    client, actor = api.client(server.port, decode_responses=True), api.actor()
    lock = api.locks.Lock(client, "k", timeout=30)
    with pytest.raises(LockError):
        await actor.do(lock.exec, "SET", "v", 1)
    await actor.do(lock.acquire)
    assert await actor.do(lock.exec, "SET", "v", "held") is True
    assert await actor.do(lock.exec, b"GET", "v") == "held"
    await actor.do(lock.exec, "HSET", "h", "f", "1")
    assert await actor.do(lock.exec, "HGETALL", "h") == {"f": "1"}
    with pytest.raises(ResponseError, match="unknown command .NOSUCH"):
        await actor.do(lock.exec, "NOSUCH")
    server.ask("LOCK.BREAK", "k")
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.exec, "SET", "v", "lost")
    assert server.admin.get("v") == "held" and await actor.do(lambda: lock.lost)


async def test_server_without_the_module(api: Any) -> None:
    server = Server(module=False)
    try:
        client, actor = api.client(server.port), api.actor()
        for lock in (api.locks.Lock(client, "k", timeout=1), api.locks.RLock(client, "k")):
            with pytest.raises(api.locks.ModuleNotLoadedError, match="loadmodule /path/to/libredis_lock.so"):
                await actor.do(lock.acquire)
    finally:
        server.stop()


async def test_key_became_something_else(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    for method, args in (("release", ()), ("extend", (1,)), ("extend", (1, True)), ("reacquire", ())):
        lock = api.locks.Lock(client, "k", timeout=30)
        assert await actor.do(lock.acquire)
        server.admin.set("k", "else")
        with pytest.raises(LockNotOwnedError):
            await actor.do(getattr(lock, method), *args)
        assert server.admin.get("k") == "else"
        assert not await actor.do(lock.owned) and await actor.do(lock.locked)
        for blocking in (False, True):
            with pytest.raises(api.locks.WrongTypeError, match="'k' is a string, not a lock.*mixed=True"):
                await actor.do(api.locks.Lock(client, "k").acquire, blocking=blocking)
        server.admin.delete("k")


async def test_no_polling(api: Any, server: Server) -> None:
    client, holder = api.client(server.port, socket_timeout=None), api.actor()
    lock = api.locks.Lock(client, "k", timeout=60)
    await holder.do(lock.acquire)
    actors = [api.actor() for _ in range(100)]
    locks = [api.locks.Lock(client, "k", timeout=60) for _ in actors]
    turns = [actor.start(waiting.acquire) for actor, waiting in zip(actors, locks)]
    await eventually(lambda: len(server.waiters("k")) == 100, "a hundred waiters")
    began, asked = time.monotonic(), server.calls("lock.acquire")
    await asyncio.sleep(1)
    # A request of a wait lasts 5 s: each waiter may have repeated it once in that time, not more often.
    assert server.calls("lock.acquire") - asked <= 100 * (1 + (time.monotonic() - began) // 5)
    server.ask("LOCK.BREAK", "k")

    async def passed_on(actor: Any, waiting: Any, turn: Any) -> None:
        assert await turn
        await actor.do(waiting.release)

    await asyncio.gather(*(passed_on(*each) for each in zip(actors, locks, turns)))
    assert server.calls("lock.renew") == server.calls("exists") == server.calls("lock.held") == 0


async def test_at_least(api: Any, server: Server) -> None:
    client, actor, rival = api.client(server.port), api.actor(), api.actor()
    # The lease becomes longer, or shorter: the release leaves the rest of the time.
    for timeout, at_least in ((60, 1), (1, 60)):
        lock = api.locks.Lock(client, "k", timeout=timeout, at_least=at_least)
        began, renewals = time.monotonic(), server.calls("lock.renew")
        assert await actor.do(lock.acquire)
        await actor.do(lock.release)
        assert (at_least - 1) * 1000 - 500 < server.admin.pttl("k") <= at_least * 1000
        assert await actor.do(lock.locked) and not await actor.do(lock.owned)
        assert await actor.do(lambda: lock.grant is None and not lock.lost)
        # A time longer than the lease is sent to the server in advance.
        renewals += 1 if at_least < timeout else 2
        assert server.calls("lock.renew") == renewals and server.calls("lock.release") == 0
        other = api.locks.Lock(client, "k", timeout=60)
        assert not await rival.do(other.acquire, blocking=False)
        if at_least == 1:
            assert await rival.do(other.acquire)
            # The server's clock differs from the client's.
            assert time.monotonic() - began >= at_least - 0.02
            await rival.do(other.release)
            server.admin.config_resetstat()
    server.ask("LOCK.BREAK", "k")
    # After the time a release frees the lock.
    lock = api.locks.Lock(client, "k", timeout=60, at_least=0.1)
    assert await actor.do(lock.acquire)
    await asyncio.sleep(0.1)
    await actor.do(lock.release)
    assert server.info("k") is None and server.calls("lock.release") == 1
    # A release after failed work frees it too.
    lock = api.locks.Lock(client, "k", timeout=60, at_least=60)
    assert await actor.do(lock.acquire)
    await actor.do(lock.release, failed=True)
    assert server.info("k") is None
    # A loss is still reported.
    lock = api.locks.Lock(client, "k", timeout=60, at_least=60)
    assert await actor.do(lock.acquire)
    server.ask("LOCK.BREAK", "k")
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.release)
    for named in ({"session": True, "timeout": 1}, {"timeout": None}, {"token": "mine", "timeout": 1}):
        with pytest.raises(ValueError, match="at_least"):
            api.locks.Lock(client, "k", at_least=1, **named)
    with pytest.raises(ValueError, match="at_least"):
        await actor.do(lock.acquire, token="mine")


async def test_from_token(api: Any, server: Server) -> None:
    client, actor, other = api.client(server.port), api.actor(), api.actor()
    first = api.locks.Lock(client, "k", timeout=30)
    assert await actor.do(first.acquire)
    grant = await actor.do(lambda: first.grant)
    asked = sum(server.calls(command) for command in ("lock.held", "lock.renew", "lock.release"))
    lock = api.locks.Lock.from_token(client, "k", grant.token, timeout=60)
    assert asked == 0 and lock.grant is None and not lock.lost
    with pytest.raises(LockError, match="owned"):
        _ = lock.fence
    assert await other.do(lock.owned)
    assert lock.fence == grant.fence and 0 < lock.grant.remaining <= 30
    await other.do(lock.extend, 60, replace_ttl=True)
    assert lock.grant.remaining > 30 and server.holders("k")[0]["ttl"] > 30_000
    assert await other.do(lock.exec, "SET", "v", "used")
    # The hold belongs to the object, and any thread or task may release it.
    await api.actor().do(lock.release)
    assert server.info("k") is None and lock.grant is None
    with pytest.raises(LockNotOwnedError):
        await actor.do(first.release)
    # A loss that was not reported before.
    for method, args in (("release", ()), ("extend", (1,)), ("reacquire", ()), ("exec", ("GET", "v"))):
        gone = api.locks.Lock.from_token(client, "k", "gone", timeout=60)
        with pytest.raises(LockNotOwnedError):
            await other.do(getattr(gone, method), *args)
        assert not await other.do(gone.owned)
    for named in ({"session": True}, {"at_least": 1}):
        with pytest.raises(ValueError, match="from_token"):
            api.locks.Lock.from_token(client, "k", "gone", timeout=60, **named)


async def test_slot(api: Any, server: Server) -> None:
    async with Proxy(server.port) as proxy:
        client, actors = api.client(proxy.port), [api.actor() for _ in range(4)]
        gpus = [api.locks.Semaphore(client, "gpus", 3, timeout=60, slot=True) for _ in actors]
        for index, (actor, gpu) in enumerate(zip(actors[:3], gpus)):
            assert await actor.do(gpu.acquire)
            assert await actor.do(lambda: (gpu.slot, gpu.grant.slot, gpu.grant.holds)) == (index, index, 1)
        assert [holder["slot"] for holder in server.holders("gpus")] == [0, 1, 2]
        waiting = actors[3].start(gpus[3].acquire, blocking_timeout=60)
        await eventually(lambda: server.waiters("gpus"), "a waiter")
        await actors[1].do(gpus[1].release)
        assert await waiting and await actors[3].do(lambda: gpus[3].slot) == 1
        await actors[3].do(gpus[3].extend, 10)
        assert await actors[3].do(lambda: gpus[3].slot) == 1
        await actors[0].do(gpus[0].release)
        # A repeated request gets the slot of the lost reply.
        proxy.cut_reply(b"SEM.ACQUIRE", 3)
        assert await actors[1].do(gpus[1].acquire)
        assert proxy.cuts == 1 and await actors[1].do(lambda: gpus[1].slot) == 0
        assert sorted(holder["slot"] for holder in server.holders("gpus")) == [0, 1, 2]
        with pytest.raises(LockError, match="second slot"):
            await actors[1].do(gpus[1].acquire)
        for actor, gpu in zip(actors[1:], gpus[1:]):
            await actor.do(gpu.release)
            with pytest.raises(LockError, match="slot"):
                await actor.do(lambda gpu=gpu: gpu.slot)
        assert server.info("gpus") is None
        with pytest.raises(ValueError, match="one permit"):
            api.locks.Semaphore(client, "gpus", 3, permits=2, slot=True)


async def test_coalesce(api: Any, server: Server) -> None:
    client, holder, callers, plain = api.client(server.port), api.actor(), [api.actor(), api.actor()], api.actor()
    # A free lock is granted as usual, with or without waiting.
    for named in ({}, {"blocking": False}):
        lock = api.locks.Lock(client, "k", timeout=60)
        assert await holder.do(lock.acquire, coalesce=True, **named) is True
        locks = [api.locks.Lock(client, "k", timeout=60) for _ in callers]
        assert await callers[0].do(locks[0].acquire, blocking_timeout=0.1, coalesce=True) is False
        if named:
            assert await callers[0].do(locks[0].acquire, blocking=False, coalesce=True) is False
            break
        await holder.do(lock.release)
    fence = await holder.do(lambda: lock.fence)
    # A waiter without it keeps its place, and is granted the lock.
    other = api.locks.Lock(client, "k", timeout=60)
    granted = plain.start(other.acquire)
    await eventually(lambda: len(server.waiters("k")) == 1, "one waiter")
    answers = [actor.start(each.acquire, coalesce=True) for actor, each in zip(callers, locks)]
    await eventually(lambda: len(server.waiters("k")) == 3, "three waiters")
    await holder.do(lock.release)
    for answer, actor, each in zip(answers, callers, locks):
        done = await answer
        assert done == api.locks.Done(fence) and not done
        with pytest.raises(LockError):
            await actor.do(each.release)
    assert await granted is True
    # Failed work was not done: the first waiter is granted the lock, the other one continues to wait.
    first = callers[0].start(locks[0].acquire, coalesce=True)
    await eventually(lambda: len(server.waiters("k")) == 1, "one waiter")
    second = callers[1].start(locks[1].acquire, coalesce=True)
    await eventually(lambda: len(server.waiters("k")) == 2, "two waiters")
    await plain.do(other.release, failed=True)
    assert await first is True and len(server.waiters("k")) == 1
    fence = await callers[0].do(lambda: locks[0].fence)
    await callers[0].do(locks[0].release)
    assert await second == api.locks.Done(fence) and server.info("k") is None
    for named in ({"mixed": True}, {"at_least": 1}):
        with pytest.raises(ValueError, match="coalesce"):
            await holder.do(api.locks.Lock(client, "k", timeout=60, **named).acquire, coalesce=True)


class Value:
    """A value in the server that `make` makes, once `ready` is true; `read` and `make` are as the client wants them."""

    def __init__(self, api: Any, server: Server, made: str = "made", ready: Any = lambda: True) -> None:
        self._server, self._made, self._ready = server, made, ready
        # A pool of redis-py refuses the 101st connection.
        self._one_at_a_time = threading.Lock()
        self.makers = 0
        self.error: Any = None
        self.read = self._read if api.name == "sync" else self._read_async
        self.make = self._make if api.name == "sync" else self._make_async

    def _read(self) -> Any:
        with self._one_at_a_time:
            return self._server.admin.get("value")

    async def _read_async(self) -> Any:
        return self._read()

    def read_now(self) -> Any:
        return self._read()

    def _make(self) -> Any:
        self.makers += 1
        until(self._ready, "what the maker waits for")
        return self._stored()

    async def _make_async(self) -> Any:
        self.makers += 1
        await eventually(self._ready, "what the maker waits for")
        return self._stored()

    def _stored(self) -> Any:
        if self.error is not None:
            raise self.error
        self._server.admin.set("value", self._made, nx=True)
        return self._made


def coalesced(server: Server) -> int:
    """The number of requests that got "done"."""
    found: Any = server.admin.info("lock")
    return int(found["lock_coalesced"])


def waiting(server: Server, count: int) -> bool:
    """Nearly all of `count` callers wait: on a busy machine some are always between two requests."""
    found = server.info("fill")
    return found is not None and found["waiters"] >= 0.9 * count


async def test_once(api: Any, server: Server) -> None:
    client, callers = api.client(server.port), [api.actor() for _ in range(1000)]
    value, coalesced_before = Value(api, server, ready=lambda: waiting(server, 999)), coalesced(server)
    made: Any = []
    for first in range(0, 1000, 100):
        made += [actor.start(api.locks.once, client, "fill", value.read, value.make) for actor in callers[first:][:100]]
        # All of them wait at the same time; a busy machine could not connect all of them at the same time.
        await eventually(lambda: waiting(server, len(made) - 1) or made[0].done(), "a hundred waiters more")
    assert await asyncio.gather(*made) == ["made"] * 1000
    # The release answered every waiting request: the lock was not handed from one to the next. A caller that was
    # between two requests finds a free lock and reads, and one that came last may read without a request.
    reported = coalesced(server) - coalesced_before
    assert value.makers == 1 and server.info("fill") is None and reported >= 800
    assert reported + server.calls("lock.release") <= 1000
    # An existing value is read without any request for the lock.
    asked = server.calls("lock.acquire")
    assert await callers[0].do(api.locks.once, client, "fill", value.read, value.make) == "made"
    assert value.makers == 1 and server.calls("lock.acquire") == asked
    # As a decorator; it passes the arguments of the call.
    read, make = (value._read, value._make) if api.name == "sync" else (value._read_async, value._make_async)

    def name(number: int) -> str:
        return f"fill:{number}"

    if api.name == "sync":

        @api.locks.single_flight(client, name, lambda number: read())
        def report(number: int) -> Any:
            return make()

    else:

        @api.locks.single_flight(client, name, lambda number: read())
        async def report(number: int) -> Any:
            return await make()

    server.admin.delete("value")
    value._ready = lambda: server.info("fill:7") is not None
    assert await callers[0].do(report, 7) == "made" and value.makers == 2 and server.info("fill:7") is None
    assert await callers[0].do(report, number=7) == "made" and value.makers == 2


async def test_once_in_time(api: Any, server: Server) -> None:
    client, holder, caller = api.client(server.port), api.actor(), api.actor()
    value = Value(api, server)
    lock = api.locks.Lock(client, "fill", timeout=60)
    assert await holder.do(lock.acquire)
    for seconds in (0, 0.3):
        began = time.monotonic()
        with pytest.raises(api.locks.NotMadeError, match="another caller holds the lock 'fill'"):
            await caller.do(api.locks.once, client, "fill", value.read, value.make, blocking_timeout=seconds)
        assert time.monotonic() - began >= seconds and not value.makers
    # Released, but the value is not there: the lock is requested again, in the rest of the time.
    made = caller.start(api.locks.once, client, "fill", value.read, value.make, blocking_timeout=60)
    await eventually(lambda: waiting(server, 1), "a waiter")
    await holder.do(lock.release)
    assert await made == "made" and value.makers == 1 and server.info("fill") is None
    with pytest.raises(ValueError, match="timeout"):
        await caller.do(api.locks.once, client, "fill", value.read, value.make, timeout=0)


async def test_once_maker_is_slow(api: Any, server: Server) -> None:
    client, callers = api.client(server.port), [api.actor(), api.actor()]
    slow = Value(api, server, ready=lambda: server.calls("lock.renew") >= 4)
    other = Value(api, server, "made again")
    first = callers[0].start(api.locks.once, client, "fill", slow.read, slow.make, timeout=0.9)
    await eventually(lambda: slow.makers, "a maker")
    second = callers[1].start(api.locks.once, client, "fill", other.read, other.make, timeout=0.9)
    assert await first == await second == "made" and not other.makers
    await eventually(lambda: background(api) == 0, "no thread or task left")
    assert server.info("fill") is None


async def test_once_maker_fails(api: Any, server: Server) -> None:
    client, callers = api.client(server.port), [api.actor() for _ in range(3)]
    failing = Value(api, server, ready=lambda: waiting(server, 2))
    failing.error = ZeroDivisionError("of the maker")
    value = Value(api, server, ready=lambda: waiting(server, 1))
    coalesced_before = coalesced(server)
    first = callers[0].start(api.locks.once, client, "fill", failing.read, failing.make)
    await eventually(lambda: failing.makers, "a maker")
    others = [actor.start(api.locks.once, client, "fill", value.read, value.make) for actor in callers[1:]]
    with pytest.raises(ZeroDivisionError, match="of the maker"):
        await first
    assert await asyncio.gather(*others) == ["made", "made"] and value.makers == 1
    # The failed release did not report the value as made.
    assert coalesced(server) == coalesced_before + 1
    await eventually(lambda: background(api) == 0, "no thread or task left")
    assert server.info("fill") is None


MAKES_A_VALUE = """
import asyncio, signal, sys, time, redis, redis.asyncio, redislock, redislock.asyncio
signal.signal(signal.SIGINT, signal.default_int_handler)
port, timeout = int(sys.argv[2]), float(sys.argv[3])

def make():
    print("makes", flush=True)
    time.sleep(600)

async def make_async():
    print("makes", flush=True)
    await asyncio.sleep(600)

async def nothing():
    return None

async def main():
    await redislock.asyncio.once(redis.asyncio.Redis(port=port), "fill", nothing, make_async, timeout=timeout)

try:
    if sys.argv[1] == "sync":
        redislock.once(redis.Redis(port=port), "fill", lambda: None, make, timeout=timeout)
    else:
        asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.read()
"""


async def start_making(api: Any, server: Server, timeout: float) -> Any:
    """A process that makes the value, until something ends it."""
    words = [sys.executable, "-c", MAKES_A_VALUE, api.name, str(server.port), str(timeout)]
    process = await asyncio.create_subprocess_exec(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and await process.stdout.readline() == b"makes\n"
    return process


async def test_once_maker_is_cancelled(api: Any, server: Server) -> None:
    process = await start_making(api, server, 60)
    try:
        value = Value(api, server)
        client, caller = api.client(server.port), api.actor()
        made = caller.start(api.locks.once, client, "fill", value.read, value.make)
        await eventually(lambda: waiting(server, 1), "a waiter")
        coalesced_before = coalesced(server)
        process.send_signal(signal.SIGINT)
        assert await process.stdout.readline() == b"interrupted\n"
        # The process goes on, and the lease is far from expiring.
        assert await made == "made" and process.returncode is None and coalesced(server) == coalesced_before
    finally:
        process.kill()
        await process.wait()
    if api.name == "asyncio":
        server.admin.delete("value")
        slow, value = Value(api, server, ready=lambda: False), Value(api, server)
        task = asyncio.ensure_future(api.locks.once(client, "fill", slow.read, slow.make, timeout=60))
        await eventually(lambda: slow.makers, "a maker")
        made = caller.start(api.locks.once, client, "fill", value.read, value.make)
        await eventually(lambda: waiting(server, 1), "a waiter")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await made == "made" and server.info("fill") is None


async def test_once_maker_dies(api: Any, server: Server) -> None:
    process = await start_making(api, server, 1)
    value = Value(api, server)
    client, caller = api.client(server.port), api.actor()
    made = caller.start(api.locks.once, client, "fill", value.read, value.make)
    await eventually(lambda: waiting(server, 1), "a waiter")
    process.kill()
    await process.wait()
    assert await made == "made" and value.makers == 1 and server.info("fill") is None


async def test_once_maker_loses_its_lock(api: Any, server: Server, caplog: Any) -> None:
    client, callers = api.client(server.port), [api.actor(), api.actor()]
    reported: Any = []
    slow, other = Value(api, server, "first", ready=lambda: other.read_now() is not None), Value(api, server, "second")
    first = callers[0].start(api.locks.once, client, "fill", slow.read, slow.make, timeout=60, on_lost=reported.append)
    await eventually(lambda: slow.makers, "a maker")
    fence = server.holders("fill")[0]["fence"]
    second = callers[1].start(api.locks.once, client, "fill", other.read, other.make)
    await eventually(lambda: waiting(server, 1), "a waiter")
    server.ask("LOCK.BREAK", "fill")
    assert await first == await second == "second" and slow.makers == other.makers == 1
    await eventually(lambda: background(api) == 0, "no thread or task left")
    assert [grant.fence for grant in reported] == [fence] and "fill: lost during the work" in caplog.text
    assert server.info("fill") is None
