"""The programs of docs/any-language.md acquire the lock, wait for it and release it on a real server, while
connections, replies and servers fail. A language whose interpreter or Redis library is not installed is skipped."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any, Awaitable, Callable, Iterator, List

import pytest
from programs import ANY_LANGUAGE, IN_ANY_LANGUAGE, Folder, ended, kill
from servers import Proxy, Server, eventually, fields, until

# How to find out whether it can run here, and the packages that provide it on Debian.
PLAYED = {
    ("PHP", "php"): (["php", "-r", "exit(extension_loaded('redis') ? 0 : 1);"], "php-cli php-redis"),
    ("Ruby", "ruby"): (["ruby", "-e", 'require "redis"'], "ruby ruby-redis"),
}
# No test of this project can run these; the page says so.
NOT_PLAYED = {("C#", "csharp"), ("A minimal safe client", "text")}

KEY = "report"


@pytest.fixture(params=PLAYED, ids=[language for _, language in PLAYED])
def program(request: Any) -> Any:
    (title, language), (probe, packages) = request.param, PLAYED[request.param]
    if not shutil.which(probe[0]) or subprocess.run(probe, capture_output=True).returncode != 0:
        pytest.skip(f"no {language} with its Redis library here: apt-get install {packages}")
    return title, language


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    # A machine that is busy with other tests may take longer than a second to reconnect.
    server.ask("CONFIG", "SET", "lock.keep-place", 30_000)
    yield server
    server.stop()


class Playing:
    """Processes that run the program, all in one directory, and the output of their work."""

    def __init__(self, program: Any, path: Path, port: int) -> None:
        self.program = program
        self.folder = Folder(path, port)
        self.folder.script("make-report", "echo $1 >>begun; until [ -e go ]; do sleep 0.02; done")
        self.running: List[Any] = []

    def start(self) -> Any:
        self.running.append(self.folder.start(*self.program))
        return self.running[-1]

    def fences(self) -> List[int]:
        """The fences of the grants under which the work has started."""
        return [int(line) for line in self.folder.lines("begun")]

    def go(self) -> None:
        (self.folder.path / "go").touch()

    def stop(self) -> None:
        for running in self.running:
            kill(running)
            running.wait()


@pytest.fixture
def playing(program: Any, server: Server, tmp_path: Path) -> Iterator[Playing]:
    playing = Playing(program, tmp_path, server.port)
    yield playing
    playing.stop()


@pytest.fixture
def is_impatient(program: Any, monkeypatch: Any) -> None:
    """Waits for a second instead of a minute."""
    text = IN_ANY_LANGUAGE[program]
    impatient = text.replace("30_000, 60)", "30_000, 1)")
    assert impatient != text
    monkeypatch.setitem(IN_ANY_LANGUAGE, program, impatient)


def behind_a_proxy(
    program: Any, server: Server, path: Path, scenario: Callable[[Proxy, Playing], Awaitable[None]]
) -> None:
    async def play() -> None:
        async with Proxy(server.port) as proxy:
            playing = Playing(program, path, proxy.port)
            try:
                await scenario(proxy, playing)
            finally:
                playing.stop()

    asyncio.run(play())


def test_every_program_of_the_page_is_run_or_marked_as_not_run() -> None:
    assert set(IN_ANY_LANGUAGE) == set(PLAYED) | NOT_PLAYED
    assert "**Not run:**" in ANY_LANGUAGE.read_text().split("## C#")[1].split("```")[0]


def test_the_pseudo_code_has_at_most_thirty_lines() -> None:
    text = IN_ANY_LANGUAGE["A minimal safe client", "text"]
    assert len([line for line in text.split("\n") if line.strip()]) <= 30


def test_the_next_process_is_granted_when_the_lease_of_a_killed_one_expires(server: Server, playing: Playing) -> None:
    killed = playing.start()
    until(playing.fences, "the first one works")
    [holder] = server.holders(KEY)
    next_one = playing.start()
    until(lambda: server.waiters(KEY), "the next one waits")
    kill(killed)
    killed.wait()
    calls = server.calls("lock.acquire")
    until(lambda: server.calls("lock.acquire") > calls, "the next one asks again")
    assert [each["owner"] for each in server.holders(KEY)] == [holder["owner"]]
    assert len(playing.fences()) == 1
    # This test shortens the lease of 30 s.
    assert 0 < server.ask("PTTL", KEY) <= 30_000
    server.ask("PEXPIRE", KEY, 200)
    until(lambda: len(playing.fences()) == 2, "the next one works")
    assert playing.fences()[1] > playing.fences()[0]
    playing.go()
    status, printed = ended(next_one)
    assert status == 0, printed
    assert server.info(KEY) is None


def test_a_waiter_keeps_its_position_over_short_waits_and_a_broken_connection(server: Server, playing: Playing) -> None:
    server.ask("LOCK.ACQUIRE", KEY, "holder", "PX", 300_000)
    first = playing.start()
    until(lambda: len(server.waiters(KEY)) == 1, "the first one waits")
    playing.start()
    until(lambda: len(server.waiters(KEY)) == 2, "the second one waits")
    order = server.waiters(KEY)
    calls = server.calls("lock.acquire")
    until(lambda: server.calls("lock.acquire") >= calls + 2 and server.waiters(KEY) == order, "both have asked again")

    def connection() -> Any:
        """The connection of the first process, while both wait."""
        waiting = [fields(waiter) for waiter in server.ask("LOCK.WAITERS", KEY)]
        return [waiter["owner"] for waiter in waiting] == order and waiting[0]["client"]

    broken = until(connection)
    assert server.ask("CLIENT", "KILL", "ID", broken) == 1
    until(lambda: connection() not in (False, broken), "it waits in its position on another connection")
    server.ask("LOCK.RELEASE", KEY, "holder")
    until(playing.fences, "the first one works")
    assert [each["owner"] for each in server.holders(KEY)] == order[:1]
    playing.go()
    assert ended(first)[0] == 0
    until(lambda: len(playing.fences()) == 2, "the second one works")


def test_a_lost_reply_to_an_acquire_makes_no_second_hold(program: Any, server: Server, tmp_path: Path) -> None:
    async def scenario(proxy: Proxy, playing: Playing) -> None:
        proxy.cut_reply(b"LOCK.ACQUIRE")
        running = playing.start()
        await eventually(playing.fences, "it works")
        assert (proxy.cuts, server.calls("lock.acquire")) == (1, 2)
        assert [holder["fence"] for holder in server.holders(KEY)] == playing.fences()
        playing.go()
        status, printed = await asyncio.to_thread(ended, running)
        assert status == 0, printed
        assert server.info(KEY) is None

    behind_a_proxy(program, server, tmp_path, scenario)


def test_a_release_whose_reply_is_lost_is_a_release(program: Any, server: Server, tmp_path: Path) -> None:
    async def scenario(proxy: Proxy, playing: Playing) -> None:
        proxy.cut_reply(b"LOCK.RELEASE")
        running = playing.start()
        playing.go()
        status, printed = await asyncio.to_thread(ended, running)
        assert status == 0, printed
        assert (proxy.cuts, server.calls("lock.release")) == (1, 2)
        assert server.info(KEY) is None

    behind_a_proxy(program, server, tmp_path, scenario)


@pytest.mark.usefixtures("is_impatient")
def test_a_cancelled_caller_leaves_no_hold(program: Any, server: Server, tmp_path: Path) -> None:
    async def scenario(proxy: Proxy, playing: Playing) -> None:
        proxy.hold_reply(b"LOCK.ACQUIRE")
        running = playing.start()
        await eventually(lambda: server.holders(KEY), "it was granted the lock")
        status, printed = await asyncio.to_thread(ended, running)
        assert status != 0 and playing.fences() == [], printed
        assert proxy.held == 1
        assert server.info(KEY) is None

    behind_a_proxy(program, server, tmp_path, scenario)


@pytest.mark.usefixtures("is_impatient")
def test_a_caller_that_is_not_granted_in_time_reports_it(server: Server, playing: Playing) -> None:
    server.ask("LOCK.ACQUIRE", KEY, "holder", "PX", 300_000)
    status, printed = ended(playing.start())
    assert (status, printed) == (1, "not granted within a minute\n")
    assert playing.fences() == [] and server.waiters(KEY) == []


def test_a_lost_lock_is_reported_at_the_release(server: Server, playing: Playing) -> None:
    running = playing.start()
    until(playing.fences, "it works")
    assert server.ask("LOCK.BREAK", KEY) == 1
    playing.go()
    status, printed = ended(running)
    assert status != 0 and "the lock report was lost" in printed, printed


def test_a_waiter_keeps_waiting_while_its_server_is_a_replica(server: Server, playing: Playing) -> None:
    def connections() -> Any:
        return server.admin.info("stats")["total_connections_received"]

    def refusals() -> Any:
        return server.admin.info("errorstats").get("errorstat_READONLY", {"count": 0})["count"]

    server.ask("LOCK.ACQUIRE", KEY, "holder", "PX", 300_000)
    running = playing.start()
    until(lambda: server.waiters(KEY), "it waits")
    before = connections()
    # The server is gone: it keeps what it has.
    server.ask("REPLICAOF", "127.0.0.1", 1)
    until(lambda: refusals() >= 3, "it was refused")
    # Behind a name or a proxy the next connection may lead to the primary.
    assert connections() >= before + 3
    server.ask("REPLICAOF", "NO", "ONE")
    until(lambda: server.waiters(KEY), "it waits again")
    server.ask("LOCK.RELEASE", KEY, "holder")
    playing.go()
    status, printed = ended(running)
    assert status == 0 and len(playing.fences()) == 1, printed


def test_a_permanent_error_is_raised_immediately(server: Server, playing: Playing) -> None:
    server.ask("SET", KEY, "of another program")
    status, printed = ended(playing.start())
    assert status != 0 and "WRONGTYPE" in printed, printed
    server.ask("DEL", KEY)
    server.ask("LOCK.ACQUIRE", KEY, "holder", "PX", 300_000)
    running = playing.start()
    [token] = until(lambda: server.waiters(KEY), "it waits")
    assert server.ask("LOCK.CANCEL", KEY, token) == 1
    status, printed = ended(running)
    assert status != 0 and "UNBLOCKED cancelled" in printed, printed
    assert playing.fences() == []
