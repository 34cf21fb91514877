"""The programs of examples/predecessors: each sells ten tickets to 100 buyers, the old ones until their known failure
is provoked. The ported ones meet the same fault and sell ten.

No fault depends on luck: a slow buyer is stopped until the other buyers have reached the intended state.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from typing import Any, List, Optional

import pytest
import redis
from servers import ROOT, Server, until

HERE = ROOT / "examples/predecessors"
PROGRAMS = ["set_nx_lua", "setnx_expire_watch", "counter", "lua_hash_watchdog", "lock_object"]
LOCK, SOLD, TICKETS = "lock:tickets", "sold", 10


# One after another: a sale alone may occupy every core.
@pytest.mark.xdist_group("sale")
@pytest.mark.parametrize("program", [name + suffix for name in PROGRAMS for suffix in ("", "_ported")])
def test_sells_ten_tickets_to_100_buyers(server: Server, program: str) -> None:
    sale = [sys.executable, str(HERE / "sale.py"), program, "--port", str(server.port), "--buyers", "100"]
    found = subprocess.run(sale, capture_output=True, text=True)
    assert found.returncode == 0 and found.stderr == "", found
    assert found.stdout.startswith(f"{program}: 10 of 10 tickets sold to 10 of 100 buyers"), found


@pytest.fixture()
def program(monkeypatch: Any) -> Any:
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module


class Buyer:
    """One call of `buy` in a separate thread, which stops in the payment until `go`."""

    def __init__(self, buy: Any, client: Any, name: str) -> None:
        self.paying, self.go = threading.Event(), threading.Event()
        self.declined = False
        self.bought: Optional[bool] = None
        self.error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._buy, args=(buy, client, name), daemon=True)
        self._thread.start()

    def _buy(self, buy: Any, client: Any, name: str) -> None:
        try:
            self.bought = buy(client, name, self._pay)
        except Exception as error:
            self.error = error

    def _pay(self, name: str) -> None:
        self.paying.set()
        assert self.go.wait(60)
        if self.declined:
            raise Declined

    def pays(self) -> "Buyer":
        until(lambda: self.paying.is_set() or self.error is not None, "the payment")
        if self.error is not None:
            raise self.error
        return self

    def buys(self) -> Optional[bool]:
        """Lets it pay; returns whether it got a ticket."""
        self.go.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.bought

    def is_declined(self) -> None:
        """Makes the payment fail, which ends the thread."""
        self.declined = True
        with pytest.raises(Declined):
            self.buys()


class Declined(Exception):
    pass


def client_of(server: Server) -> Any:
    return redis.Redis(port=server.port, decode_responses=True)


def one_ticket_left(server: Server) -> None:
    server.admin.rpush(SOLD, *(f"early-{number}" for number in range(TICKETS - 1)))


def sold(server: Server) -> List[str]:
    return [name for name in server.admin.lrange(SOLD, 0, -1) if not name.startswith("early")]


# set_nx_lua: the lease ends while the holder works.


def test_set_nx_lua_oversells_when_a_payment_outlasts_the_lease(server: Server, program: Any, monkeypatch: Any) -> None:
    before = program("set_nx_lua")
    monkeypatch.setattr(before, "LEASE_MS", 200)
    one_ticket_left(server)
    slow = Buyer(before.buy, client_of(server), "slow").pays()
    until(lambda: not server.admin.exists(LOCK), "the end of the lease")
    assert Buyer(before.buy, client_of(server), "quick").buys() is True
    assert slow.buys() is True
    assert sold(server) == ["quick", "slow"], "two buyers have the last ticket, and no error was reported"


def test_set_nx_lua_ported_refuses_the_late_buyer(server: Server, program: Any, monkeypatch: Any) -> None:
    ported = program("set_nx_lua_ported")
    monkeypatch.setattr(ported, "LEASE_S", 0.2)
    one_ticket_left(server)
    slow = Buyer(ported.buy, client_of(server), "slow").pays()
    until(lambda: not server.admin.exists(LOCK), "the end of the lease")
    monkeypatch.setattr(ported, "LEASE_S", 30)
    assert Buyer(ported.buy, client_of(server), "quick").buys() is True
    assert slow.buys() is False
    assert sold(server) == ["quick"]


# setnx_expire_watch: the holder's process dies.


class DiesAt(redis.Redis):
    """A client whose process is killed, as by kill -9, before one command."""

    fatal = ""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if args[0] == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute_command(*args, **options)


def buy_and_die(name: str, port: int, fatal: str) -> None:
    sys.path.insert(0, str(HERE))
    client = DiesAt(port=port, decode_responses=True)
    client.fatal = fatal
    program = importlib.import_module(name)
    program.LEASE_S = 600
    program.buy(client, "dead", lambda buyer: None)


def killed_buyer(name: str, server: Server, fatal: str) -> None:
    process = multiprocessing.get_context("spawn").Process(target=buy_and_die, args=(name, server.port, fatal))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def test_setnx_expire_watch_is_never_released_after_a_crash(server: Server, program: Any) -> None:
    before = program("setnx_expire_watch")
    killed_buyer("setnx_expire_watch", server, "EXPIRE")
    assert server.admin.ttl(LOCK) == -1, "a lock without an end"
    buyer = Buyer(before.buy, client_of(server), "next")
    asked = server.calls("setnx")
    until(lambda: server.calls("setnx") >= asked + 5, "five more attempts")
    assert not buyer.paying.is_set() and server.admin.exists(LOCK)
    # Manually.
    server.admin.delete(LOCK)
    assert buyer.buys() is True


def test_setnx_expire_watch_ported_is_free_when_its_process_is_dead(server: Server, program: Any) -> None:
    ported = program("setnx_expire_watch_ported")
    # The first command after the grant.
    killed_buyer("setnx_expire_watch_ported", server, "LLEN")
    assert server.calls("lock.acquire") == 1
    until(lambda: not server.admin.exists(LOCK), "the end of the session, far before the lease's")
    assert Buyer(ported.buy, client_of(server), "next").buys() is True
    assert sold(server) == ["next"]


# counter: replies are bytes.


def test_counter_is_never_acquired_when_replies_are_bytes(server: Server, program: Any, monkeypatch: Any) -> None:
    before = program("counter")
    monkeypatch.setattr(before, "LAST_RETRY_S", 0.05)
    client: Any = redis.Redis(port=server.port)
    buyer = Buyer(before.buy, client, "alone")
    until(lambda: server.calls("get") >= 20, "twenty attempts of the only buyer")
    assert not buyer.paying.is_set() and sold(server) == []
    # With a decoded reply the lock is granted immediately, and the thread ends.
    get, client.get = client.get, lambda name: get(name).decode()
    assert buyer.buys() is True


def test_counter_ported_does_not_mind_what_replies_are(server: Server, program: Any) -> None:
    ported = program("counter_ported")
    one_ticket_left(server)
    first = Buyer(ported.buy, redis.Redis(port=server.port), "bytes").pays()
    second = Buyer(ported.buy, client_of(server), "decoded")
    until(lambda: server.waiters(LOCK), "a waiter")
    assert first.buys() is True and second.buys() is False
    assert sold(server) == ["bytes"]


# lua_hash_watchdog: the holder's thread ends without a release.


def test_lua_hash_watchdog_is_never_released_after_its_thread(server: Server, program: Any, monkeypatch: Any) -> None:
    before = program("lua_hash_watchdog")
    monkeypatch.setattr(before, "LEASE_MS", 300)
    first = Buyer(before.buy, client_of(server), "declined").pays()
    # Started before the first ends: a later thread may get the same number and would then be the same owner.
    buyer = Buyer(before.buy, client_of(server), "next")
    first.is_declined()
    renewed = server.calls("pexpire")
    until(lambda: server.calls("pexpire") >= renewed + 9, "renewals for three leases")
    assert not buyer.paying.is_set() and server.admin.hlen(LOCK) == 1
    # The watchdog ends when it finds no hold to renew.
    server.admin.delete(LOCK)
    assert buyer.buys() is True
    until(lambda: not any(thread.name == "watchdog" for thread in threading.enumerate()), "the end of the watchdogs")


def test_lua_hash_watchdog_ported_ends_with_its_thread(server: Server, program: Any, monkeypatch: Any) -> None:
    ported = program("lua_hash_watchdog_ported")
    monkeypatch.setattr(ported, "LEASE_S", 1.2)
    first = Buyer(ported.buy, client_of(server), "declined").pays()
    monkeypatch.setattr(ported, "LEASE_S", 30)
    buyer = Buyer(ported.buy, client_of(server), "next")
    until(lambda: server.waiters(LOCK), "a waiter")
    renewed = server.calls("rlock.renew")
    until(lambda: server.calls("rlock.renew") >= renewed + 4, "renewals for longer than the lease")
    assert not buyer.paying.is_set()
    first.is_declined()
    buyer.pays()
    assert buyer.buys() is True
    assert sold(server) == ["next"]


# lock_object: a slow holder's release meets another owner's lock.


def test_lock_object_oversells_when_a_slow_holder_releases(server: Server, program: Any, monkeypatch: Any) -> None:
    before = program("lock_object")
    server.admin.rpush(SOLD, *(f"early-{number}" for number in range(TICKETS - 2)))
    monkeypatch.setattr(before, "EXPIRES_S", 0.2)
    slow = Buyer(before.buy, client_of(server), "slow").pays()
    monkeypatch.setattr(before, "EXPIRES_S", 30)
    second = Buyer(before.buy, client_of(server), "second").pays()
    assert slow.buys() is True
    assert not server.admin.exists(LOCK), "the second buyer's lock, which was to last 30 s"
    third = Buyer(before.buy, client_of(server), "third").pays()
    assert second.buys() is True and third.buys() is True
    assert sold(server) == ["slow", "second", "third"], "of two tickets"


def test_lock_object_ported_frees_only_its_own(server: Server, program: Any, monkeypatch: Any) -> None:
    ported = program("lock_object_ported")
    server.admin.rpush(SOLD, *(f"early-{number}" for number in range(TICKETS - 2)))
    monkeypatch.setattr(ported, "EXPIRES_S", 0.2)
    slow = Buyer(ported.buy, client_of(server), "slow").pays()
    monkeypatch.setattr(ported, "EXPIRES_S", 30)
    second = Buyer(ported.buy, client_of(server), "second").pays()
    third = Buyer(ported.buy, client_of(server), "third")
    until(lambda: len(server.waiters(LOCK)) == 1, "the third in the queue")
    assert slow.buys() is False
    assert not third.paying.is_set() and len(server.waiters(LOCK)) == 1
    assert second.buys() is True and third.buys() is True
    assert sold(server) == ["second", "third"]
