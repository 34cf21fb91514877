"""A leader survives whatever ends its leadership: it logs it, pauses and queues again. The program of docs/recipes.md,
and the example for asyncio."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest
from servers import ROOT, Server, until


def recipe() -> str:
    chapter = (ROOT / "docs/recipes.md").read_text().split("\n## Leader election\n")[1]
    [program] = re.findall(r"^```python\n(.*?)^```$", chapter.split("\n## ")[0], re.DOTALL | re.MULTILINE)
    return str(program)


PROGRAMS = {"scheduler": recipe(), "leader": (ROOT / "clients/python/examples/leader.py").read_text()}


@pytest.fixture(params=list(PROGRAMS))
def leader(request: Any, server: Server, tmp_path: Path) -> Iterator[Any]:
    """The name of its lock, the program while another one leads, and the lines of its log."""
    name = request.param
    (tmp_path / "tick").write_text("#!/bin/sh\n")
    (tmp_path / "tick").chmod(0o755)
    program = PROGRAMS[name].replace("Redis()", f"Redis(port={server.port})")
    log = tmp_path / "log"
    server.ask("LOCK.ACQUIRE", name, "another", "PX", 600_000)
    with log.open("w") as out:
        words = [sys.executable, "-c", program, "web-1:8080"]
        process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=out)
    try:
        until(lambda: server.waiters(name), "it waits")
        yield name, process, lambda: log.read_text().splitlines()
    finally:
        process.kill()
        process.wait()


def test_it_survives_every_refusal(server: Server, leader: Any) -> None:
    name, process, log = leader

    def refused(word: str) -> None:
        until(lambda: any(word in line for line in log()), f"a log line with {word}")
        assert process.poll() is None

    [owner] = server.waiters(name)
    assert server.ask("LOCK.CANCEL", name, owner) == 1
    refused("WaitCancelledError")
    # The next request is refused too: the queue is full, then the memory.
    server.ask("LOCK.ACQUIRE", "other", "another", "PX", 600_000)
    other = server.admin.connection_pool.make_connection()
    other.connect()
    other.send_command("LOCK.ACQUIRE", "other", "waiter", "PX", 1000, "BLOCK", 0)
    try:
        until(lambda: server.waiters("other"), "another waiter")
        server.admin.config_set("lock.max-waiters", 1)
        refused("MaxWaitersError")
        server.admin.config_set("maxmemory", 1)
        refused("OutOfMemoryError")
    finally:
        server.admin.config_set("maxmemory", 0)
        server.admin.config_set("lock.max-waiters", 10_000)
        other.disconnect()
    until(lambda: server.waiters(name), "it waits again")
    server.ask("LOCK.RELEASE", name, "another")
    until(lambda: server.holders(name), "it leads")
    # And the loss of the leader's lock.
    assert server.ask("LOCK.BREAK", name) == 1
    refused("LockNotOwnedError")
    until(lambda: server.holders(name), "it leads again")
    assert process.poll() is None
