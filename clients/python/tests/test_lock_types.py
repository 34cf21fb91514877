"""The tests of each lock type, for the sync and the asyncio client."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import pytest
from apis import AsyncioApi
from redis.exceptions import LockError, LockNotOwnedError, NoPermissionError, ResponseError
from servers import Server, eventually, fields


async def test_a_reentrant_lock_is_free_when_it_was_released_as_often(api: Any, server: Server) -> None:
    client, actor, rival = api.client(server.port), api.actor(), api.actor()
    lock = api.locks.RLock(client, "r", timeout=30)
    for holds in (1, 2, 3):
        assert await actor.do(lock.acquire)
        assert (await actor.do(lambda: lock.grant)).holds == holds
    # The same object in another thread or task is another owner.
    assert not await rival.do(lock.acquire, blocking=False)
    for left in (2, 1):
        await actor.do(lock.release)
        assert server.holders("r")[0]["holds"] == left
    await actor.do(lock.release)
    assert server.info("r") is None
    with pytest.raises(LockError):
        await actor.do(lock.release)
    assert await rival.do(lock.acquire, blocking=False)
    await rival.do(lock.release)


async def test_a_reentrant_lock_that_was_lost_is_not_taken_again(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    reported: Any = []
    lock = api.locks.RLock(client, "r", timeout=30, on_lost=reported.append)
    await actor.do(lock.acquire)
    server.ask("LOCK.BREAK", "r")
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.acquire)
    assert server.info("r") is None and len(reported) == 1
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.release)
    assert await actor.do(lock.acquire, blocking=False)
    await actor.do(lock.release)


async def test_readers_share_and_a_writer_does_not(api: Any, server: Server) -> None:
    client, one, two = api.client(server.port), api.actor(), api.actor()
    lock = api.locks.RWLock(client, "rw", timeout=30)
    assert await one.do(lock.read().acquire) and await two.do(lock.read().acquire)
    assert len(server.holders("rw")) == 2
    assert not await two.do(lock.write().acquire, blocking=False)
    await one.do(lock.read().release)
    # The only reader may acquire WRITE, with a new fence, and keep READ.
    fence = await two.do(lambda: lock.read().fence)
    assert await two.do(lock.write().acquire) and (await two.do(lambda: lock.write().fence)) > fence
    assert await two.do(lock.read().acquire)
    await two.do(lock.write().release)
    assert not await one.do(lock.write().acquire, blocking=False) and await one.do(lock.read().acquire)
    await one.do(lock.read().release)
    for _ in range(2):
        await two.do(lock.read().release)
    assert server.info("rw") is None


async def test_a_reader_that_waits_for_write_keeps_read_or_reports_its_loss(api: Any, server: Server) -> None:
    client, actor, rival = api.client(server.port), api.actor(), api.actor()
    reported: Any = []

    async def upgraded(timeout: float, end: Any, on_lost: Any = None) -> Any:
        """A reader waits for WRITE behind another reader; `end` ends READ, and a writer is granted before WRITE."""
        lock = api.locks.RWLock(client, "rw", timeout=timeout, on_lost=on_lost)
        between = api.locks.RWLock(client, "rw", timeout=60)
        server.ask("RWLOCK.ACQUIRE", "rw", "other", "READ", "PX", 60_000)
        await actor.do(lock.read().acquire)
        token = (await actor.do(lambda: lock.read().grant)).token
        turn = rival.start(between.write().acquire)
        await eventually(lambda: len(server.waiters("rw")) == 1, "a writer")
        waiting = actor.start(lock.write().acquire)
        await eventually(lambda: len(server.waiters("rw")) == 2, "the upgrade")
        end(token)
        await eventually(lambda: [each["owner"] for each in server.holders("rw")] == ["other"], "the end of READ")
        server.ask("RWLOCK.RELEASE", "rw", "other", "READ")
        assert await turn
        await rival.do(between.write().release)
        with pytest.raises(LockNotOwnedError):
            await waiting
        # WRITE was released, and READ is lost.
        assert server.info("rw") is None and await actor.do(lambda: lock.read().lost)
        for view in (lock.read(), lock.write()):
            with pytest.raises(LockNotOwnedError):
                await actor.do(view.acquire)
        with pytest.raises(LockNotOwnedError):
            await actor.do(lock.read().release)
        return lock

    await upgraded(0.8, lambda token: None)
    lock = await upgraded(60, lambda token: server.ask("LOCK.BREAK", "rw", "OWNER", token), reported.append)
    await upgraded(60, lambda token: server.ask("RWLOCK.RELEASE", "rw", token, "READ"), reported.append)
    assert len(reported) == 2
    # A hold that is kept is not a loss.
    server.ask("RWLOCK.ACQUIRE", "rw", "other", "READ", "PX", 60_000)
    for _ in range(2):
        await actor.do(lock.read().acquire)
    waiting = actor.start(lock.write().acquire)
    await eventually(lambda: server.waiters("rw"), "the upgrade")
    server.ask("RWLOCK.RELEASE", "rw", "other", "READ")
    assert await waiting and (await actor.do(lambda: lock.read().grant)).holds == 2
    for view in (lock.write(), lock.read(), lock.read()):
        await actor.do(view.release)
    assert server.info("rw") is None and len(reported) == 2


async def test_a_reader_keeps_read_when_its_upgrade_fails(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.RWLock(client, "rw", timeout=30)
    assert await actor.do(lock.read().acquire)
    lock.write().replicas, lock.write().replica_timeout = 1, 50
    with pytest.raises(api.locks.NotReplicatedError):
        await actor.do(lock.write().acquire)
    grant = await actor.do(lambda: lock.read().grant)
    # The upgrade keeps its fence.
    assert [(each["mode"], each["fence"]) for each in server.holders("rw")] == [("read", grant.fence)]
    assert await actor.do(lambda: lock.write().grant) is None and await actor.do(lock.read().owned)
    assert await actor.do(lock.read().acquire, blocking=False)
    for _ in range(2):
        await actor.do(lock.read().release)
    assert server.info("rw") is None


async def test_a_semaphore_counts_permits(api: Any, server: Server) -> None:
    client, one, two = api.client(server.port), api.actor(), api.actor()
    semaphore = api.locks.Semaphore(client, "s", limit=3, timeout=30)
    assert await one.do(semaphore.acquire, 2) and await one.do(semaphore.acquire)
    assert (await one.do(lambda: semaphore.grant)).holds == 3
    waiting = two.start(semaphore.acquire, 2, blocking_timeout=60)
    await eventually(lambda: server.waiters("s"), "a waiter")
    with pytest.raises(LockError):
        await one.do(semaphore.release, 4)
    await one.do(semaphore.release, 2)
    assert await waiting
    await two.do(semaphore.release, 2)
    await one.do(semaphore.release)
    assert server.info("s") is None
    with pytest.raises(ValueError):
        api.locks.Semaphore(client, "s", limit=1, permits=2)


async def test_several_locks_are_taken_all_or_none(api: Any, server: Server) -> None:
    client, one, two = api.client(server.port), api.actor(), api.actor()
    both, single = api.locks.MultiLock(client, ["a", "b"], timeout=30), api.locks.Lock(client, "b", timeout=30)
    assert await two.do(single.acquire)
    assert not await one.do(both.acquire, blocking=False) and server.info("a") is None
    await two.do(single.release)
    assert await one.do(both.acquire) and await one.do(both.owned) and await one.do(both.locked)
    assert server.holders("a")[0]["fence"] == server.holders("b")[0]["fence"] == await one.do(lambda: both.fence)
    assert await one.do(both.extend, 30)
    assert server.admin.pttl("b") > 30_000
    await one.do(both.release)
    assert server.admin.dbsize() == 0
    assert await one.do(both.acquire)
    server.ask("LOCK.BREAK", "b")
    with pytest.raises(LockNotOwnedError):
        await one.do(both.release)
    assert server.admin.dbsize() == 0


async def test_what_waiting_cannot_solve_is_an_error_of_its_own(api: Any, server: Server) -> None:
    client, one, two = api.client(server.port), api.actor(), api.actor()
    locks = api.locks
    a, b = locks.Lock(client, "a", timeout=30, token="1"), locks.Lock(client, "b", timeout=30, token="2")
    assert await one.do(a.acquire) and await two.do(b.acquire)
    waiting = one.start(locks.Lock(client, "b", timeout=30, token="1").acquire)
    await eventually(lambda: server.waiters("b"), "a waiter")
    with pytest.raises(locks.DeadlockError):
        await two.do(locks.Lock(client, "a", timeout=30, token="2").acquire)
    assert server.ask("LOCK.CANCEL", "b", "1") == 1
    with pytest.raises(locks.WaitCancelledError, match="cancelled"):
        await waiting
    with pytest.raises(locks.WrongKindError):
        await two.do(locks.RLock(client, "a").acquire)
    server.admin.config_set("lock.max-waiters-per-key", 1)
    try:
        waiting = one.start(locks.Lock(client, "b", timeout=30).acquire, blocking_timeout=60)
        await eventually(lambda: server.waiters("b"), "a waiter")
        with pytest.raises(locks.MaxWaitersError):
            await api.actor().do(locks.Lock(client, "b", timeout=30).acquire)
    finally:
        server.admin.config_set("lock.max-waiters-per-key", 0)
    await two.do(b.release)
    assert await waiting


async def test_with_releases_and_reports_a_loss(api: Any, server: Server, caplog: Any) -> None:
    client, actor = api.client(server.port), api.actor()

    async def entered(lock: Any, broken: bool) -> None:
        if api.name == "sync":
            await actor.do(body, lock, broken)
            return
        async with lock as taken:
            assert taken is lock and server.info("k")
            if broken:
                server.ask("LOCK.BREAK", "k")

    def body(lock: Any, broken: bool) -> None:
        with lock as taken:
            assert taken is lock and server.info("k")
            if broken:
                server.ask("LOCK.BREAK", "k")

    lock = api.locks.Lock(client, "k", timeout=30, blocking_timeout=0.1)
    await entered(lock, broken=False)
    assert server.info("k") is None
    with pytest.raises(LockNotOwnedError):
        await entered(lock, broken=True)
    await entered(api.locks.Lock(client, "k", timeout=30, raise_on_release_error=False), broken=True)
    assert "no longer owned" in caplog.text
    await api.actor().do(api.locks.Lock(client, "k", timeout=30).acquire)
    with pytest.raises(LockError, match="Unable to acquire lock within the time specified") as raised:
        await entered(lock, broken=False)
    assert raised.value.lock_name == "k"


async def test_the_lease_counts_from_the_grant_and_not_from_the_request(api: Any, server: Server) -> None:
    client, one, two = api.client(server.port, socket_timeout=None), api.actor(), api.actor()
    lock, other = api.locks.Lock(client, "k", timeout=60), api.locks.Lock(client, "k", timeout=20)
    await one.do(lock.acquire)
    waiting = two.start(other.acquire)
    await eventually(lambda: server.waiters("k"), "a waiter")
    await eventually(lambda: fields(server.ask("LOCK.WAITERS", "k")[0])["waited"] > 2500, "a tenth of the lease")
    await one.do(lock.release)
    assert await waiting
    expires = (await two.do(lambda: other.grant)).expires
    ends = time.monotonic() + server.holders("k")[0]["ttl"] / 1000
    # Counted from the request, it would be 2.5 s early.
    assert ends - 2.4 < expires < ends + 0.1
    await two.do(other.release)


async def test_a_token_of_another_process_releases(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    await actor.do(api.locks.Lock(client, "k", timeout=30).acquire, token="given")
    handed_over = api.locks.Lock(client, "k", timeout=30)
    handed_over.local.token = b"given"
    if api.name == "sync":
        handed_over.extend(10)
        handed_over.release()
    else:
        await handed_over.extend(10)
        await handed_over.release()
    assert server.info("k") is None


async def test_a_failed_renewal_is_logged_with_the_name_of_its_lock(api: Any, server: Server, caplog: Any) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.Lock(client, "the lock", timeout=1.5, auto_renew=True)
    await actor.do(lock.acquire)
    server.ask("ACL", "SETUSER", "default", "-lock.renew")
    try:
        await eventually(lambda: "the lock: not renewed" in caplog.text, "the warning")
    finally:
        server.ask("ACL", "SETUSER", "default", "+lock.renew")
    await actor.do(lock.release)


async def test_renewals_have_the_length_that_was_given_last(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    reported: Any = []
    # A shorter lease takes effect immediately: a renewal after a third of the old length would come too late.
    lock = api.locks.Lock(client, "k", timeout=60, auto_renew=True, on_lost=reported.append)
    await actor.do(lock.acquire)
    await actor.do(lock.extend, 0.6, replace_ttl=True)
    await eventually(lambda: server.calls("lock.renew") >= 5, "renewals")
    assert server.holders("k")[0]["lease"] == 600 and not await actor.do(lambda: lock.lost) and not reported
    # A longer lease is not shortened again.
    await actor.do(lock.extend, 60)
    calls = server.calls("lock.renew")
    assert 60_000 <= server.holders("k")[0]["lease"] <= 60_600
    await actor.do(lock.extend, 1.5, replace_ttl=True)
    await eventually(lambda: server.calls("lock.renew") >= calls + 3, "renewals")
    assert server.holders("k")[0]["lease"] == 1500
    await actor.do(lock.reacquire)
    assert server.holders("k")[0]["lease"] == 60_000
    await actor.do(lock.release)
    assert server.info("k") is None and not reported


async def test_a_nested_acquire_does_not_shorten_the_lease(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.RLock(client, "r", timeout=10, thread_local=False)
    assert await actor.do(lock.acquire)
    await actor.do(lock.extend, 60, replace_ttl=True)
    assert await actor.do(lock.acquire)
    assert server.admin.pttl("r") > 50_000 and lock.grant.remaining > 50
    for _ in range(2):
        await actor.do(lock.release)
    # A hold without a deadline stays one.
    server.ask("RLOCK.ACQUIRE", "r", "mine", "HOLDS", 1, "PERSIST")
    lock = api.locks.RLock.from_token(client, "r", "mine", timeout=10)
    assert await actor.do(lock.acquire)
    assert server.admin.pttl("r") == -1 and lock.grant.remaining == math.inf
    # The lease of another hold says nothing about this one.
    for _ in range(2):
        await actor.do(lock.release)
    assert await actor.do(lock.acquire) and lock.grant.remaining <= 10
    await actor.do(lock.release)


async def test_a_hold_whose_release_failed_is_renewed_once_it_is_acquired_again(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.RLock(client, "r", timeout=1.5, auto_renew=True, thread_local=False)
    assert await actor.do(lock.acquire)
    server.ask("ACL", "SETUSER", "default", "-rlock.release")
    try:
        with pytest.raises(NoPermissionError):
            await actor.do(lock.release)
    finally:
        server.ask("ACL", "SETUSER", "default", "+rlock.release")
    assert await actor.do(lock.acquire)
    renewals, began = server.calls("rlock.renew"), time.monotonic()
    assert not await actor.do(lock.wait_lost, 0.2) and time.monotonic() - began >= 0.2
    await eventually(lambda: server.calls("rlock.renew") >= renewals + 4, "renewals for longer than the lease")
    assert not lock.lost
    for _ in range(2):
        await actor.do(lock.release)
    assert server.info("r") is None


async def test_from_token_of_each_lock_type(api: Any, server: Server) -> None:
    client, here, there = api.client(server.port), api.actor(), api.actor()
    locks = api.locks
    semaphore = locks.Semaphore(client, "s", 3, permits=2)
    taken = (locks.RLock(client, "r"), semaphore, locks.MultiLock(client, ["a", "b"]))
    for lock in taken:
        assert await here.do(lock.acquire)
    r, s, m = [(await here.do(lambda lock=lock: lock.grant)).token for lock in taken]
    lock = locks.RLock.from_token(client, "r", r)
    # Acquired again by the same owner; each hold is released.
    assert await there.do(lock.acquire) and lock.grant.holds == 2 and server.holders("r")[0]["holds"] == 2
    for _ in range(2):
        await there.do(lock.release)
    permits = locks.Semaphore.from_token(client, "s", s, 3, permits=2)
    assert await there.do(permits.owned) and permits.grant.holds == 2
    await there.do(permits.release)
    await there.do(locks.MultiLock.from_token(client, ["a", "b"], m).release)
    assert server.admin.dbsize() == 0
    with pytest.raises(LockNotOwnedError):
        await there.do(locks.RLock.from_token(client, "r", r).acquire)
    assert server.admin.dbsize() == 0
    for mode in ("READ", "WRITE"):
        rw = locks.RWLock(client, "rw")
        view = rw.read() if mode == "READ" else rw.write()
        assert await here.do(view.acquire)
        token = (await here.do(lambda view=view: view.grant)).token
        other = locks.RWLock.from_token(client, "rw", token, mode)
        await there.do((other.read() if mode == "READ" else other.write()).release)
        assert server.info("rw") is None


async def test_a_lock_from_a_token_is_acquired_again_however_often_it_is_held(api: Any, server: Server) -> None:
    client, here, there = api.client(server.port), api.actor(), api.actor()
    locks = api.locks
    reentrant, semaphore = locks.RLock(client, "r"), locks.Semaphore(client, "s", 6)
    for lock in (reentrant, semaphore):
        for _ in range(3):
            assert await here.do(lock.acquire)
    r, s = [(await here.do(lambda lock=lock: lock.grant)).token for lock in (reentrant, semaphore)]
    for asks_first in (False, True):
        for lock in (locks.RLock.from_token(client, "r", r), locks.Semaphore.from_token(client, "s", s, 6, permits=2)):
            if asks_first:
                assert await there.do(lock.owned)
            before = server.holders(lock.name)[0]["holds"]
            for _ in range(2):
                assert await there.do(lock.acquire, blocking=False)
                await there.do(lock.release)
            assert lock.grant.holds == server.holders(lock.name)[0]["holds"] == before == 3
    # From then on this object counts the holds of each mode: the server returns only their sum.
    writing = locks.RWLock(client, "rw")
    assert await here.do(writing.write().acquire)
    w = (await here.do(lambda: writing.write().grant)).token
    other = locks.RWLock.from_token(client, "rw", w, "WRITE")
    for holds in (1, 2):
        assert await there.do(other.read().acquire) and other.read().grant.holds == holds
    assert other.write().grant.holds == 1


async def test_a_callback_of_the_event_loop_holds_nothing(server: Server) -> None:
    api = AsyncioApi()
    lock = api.locks.Semaphore(api.client(server.port), "s", 1)
    assert await lock.acquire()
    seen: "asyncio.Future[Any]" = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: seen.set_result((lock.lost, lock.grant)))
    assert await asyncio.wait_for(seen, 10) == (False, None)
    await lock.release()
    await api.end()


async def test_a_lock_from_a_token_is_renewed_from_the_first_reacquire_on(api: Any, server: Server) -> None:
    client, here, there = api.client(server.port), api.actor(), api.actor()
    reported: Any = []
    first = api.locks.Lock(client, "k", timeout=60)
    assert await here.do(first.acquire)
    token = (await here.do(lambda: first.grant)).token
    lock = api.locks.Lock.from_token(client, "k", token, timeout=0.9, auto_renew=True, on_lost=reported.append)
    await there.do(lock.reacquire)
    await eventually(lambda: server.calls("lock.renew") >= 4, "renewals for longer than the lease")
    assert lock.grant.remaining <= 0.9 and not lock.lost
    server.ask("LOCK.BREAK", "k")
    await eventually(lambda: reported, "the callback")
    assert lock.lost and [grant.fence for grant in reported] == [await here.do(lambda: first.fence)]
    with pytest.raises(LockNotOwnedError):
        await there.do(lock.release)


async def test_a_lease_is_added_to_only_where_there_is_one(api: Any, server: Server) -> None:
    client, here, there = api.client(server.port), api.actor(), api.actor()
    first = api.locks.Lock(client, "k")
    assert await here.do(first.acquire)
    token = (await here.do(lambda: first.grant)).token
    lock = api.locks.Lock.from_token(client, "k", token, timeout=30)
    # It is held without a lease: nothing can be added.
    with pytest.raises(LockError, match="no timeout") as raised:
        await there.do(lock.extend, 1)
    assert not isinstance(raised.value, LockNotOwnedError) and not lock.lost
    assert await there.do(lock.extend, 20, replace_ttl=True) and 10 < lock.grant.remaining <= 20
    assert await there.do(lock.extend, 20) and 30 < lock.grant.remaining <= 40
    for words in ((0, True), (-1, True), (-60,)):
        with pytest.raises(LockError, match="release"):
            await there.do(lock.extend, *words)
    assert await there.do(lock.extend, -10) and 20 < lock.grant.remaining <= 30
    await there.do(lock.release)
    # A negative lease is refused; 0 means no lease, as in redis-py.
    for timeout in (-1, -0.001):
        with pytest.raises(ValueError, match="timeout"):
            api.locks.Lock(client, "k", timeout=timeout)
    zero = api.locks.Lock(client, "k", timeout=0)
    assert await here.do(zero.acquire) and server.info("k")["ttl"] == -1
    await here.do(zero.release)


@pytest.mark.parametrize("became", ["a", "b"])
async def test_several_locks_of_which_one_became_something_else(api: Any, server: Server, became: str) -> None:
    client, actor = api.client(server.port), api.actor()
    both = api.locks.MultiLock(client, ["a", "b"], timeout=30)
    for method, args in (("extend", (1,)), ("reacquire", ()), ("release", ())):
        assert await actor.do(both.acquire)
        server.admin.set(became, "else")
        with pytest.raises(LockNotOwnedError):
            await actor.do(getattr(both, method), *args)
        if method != "release":
            with pytest.raises(LockNotOwnedError):
                await actor.do(both.release)
        # The other lock is released: otherwise it would stay held until its lease expires.
        assert server.admin.keys() == [became]
        server.admin.delete(became)


async def test_exec_under_a_key_that_became_something_else_reports_the_loss(api: Any, server: Server) -> None:
    client, actor = api.client(server.port), api.actor()
    lock = api.locks.Lock(client, "k", timeout=30)
    assert await actor.do(lock.acquire)
    server.admin.set("v", "text")
    # An error of the inner command is not a loss.
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await actor.do(lock.exec, "LPUSH", "v", "x")
    assert not await actor.do(lambda: lock.lost)
    server.admin.set("k", "else")
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.exec, "SET", "v", "lost")
    assert await actor.do(lambda: lock.lost) and server.admin.get("v") == "text"
