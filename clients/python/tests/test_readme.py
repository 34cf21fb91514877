"""The Python programs of README.md, docs/start.md and the client's own README run as printed, on a server's port."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import List, Tuple

import pytest
from servers import ROOT, Server, until


def programs(*documents: str) -> List[Tuple[str, str]]:
    return [
        (document, program)
        for document in documents
        for program in re.findall(r"^```python\n(.*?)^```$", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)
        # A block without imports is a fragment of a program.
        if "import " in program
    ]


PROGRAMS = programs("README.md", "docs/start.md", "clients/python/README.md")


WAIT = [program for _, program in PROGRAMS if "single_flight" not in program]
SINGLE_FLIGHTS = [program for _, program in PROGRAMS if "single_flight" in program]


def test_there_are_five() -> None:
    own = ["clients/python/README.md"] * 3
    assert [document for document, _ in PROGRAMS] == ["README.md", "docs/start.md"] + own
    assert (len(WAIT), len(SINGLE_FLIGHTS)) == (4, 1)


def test_they_are_typed_strictly_and_so_are_the_recipes(tmp_path: Path) -> None:
    recipes = programs("docs/recipes.md")
    assert recipes
    for number, (_, program) in enumerate(PROGRAMS + recipes):
        (tmp_path / f"program_{number}.py").write_text(program)
    # A recipe may use a library that is not installed.
    words = [sys.executable, "-m", "mypy", "--strict", "--disable-error-code", "import-not-found"]
    words += ["--no-error-summary", "--cache-dir", "cache", "."]
    checked = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("program", WAIT)
def test_it_waits_for_its_turn_holds_the_lock_and_releases_it(server: Server, program: str) -> None:
    here = program.replace("Redis()", f"Redis(port={server.port})")
    assert here != program, "it connects to the default port"
    server.ask("LOCK.ACQUIRE", "report", "somebody", "PX", 60_000)
    running = subprocess.Popen([sys.executable, "-c", here], stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: server.waiters("report") or running.poll() is not None, "a waiter")
        fence = server.info("report")["fence"]
        assert server.ask("LOCK.RELEASE", "report", "somebody") == 1
        printed, _ = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0
    assert re.fullmatch(r".* fence \d+\n", printed) and int(printed.split()[-1]) > fence, printed
    assert server.info("report") is None


@pytest.mark.parametrize("program", SINGLE_FLIGHTS)
def test_it_makes_the_value_once_and_reads_it_then(server: Server, program: str) -> None:
    here = program.replace("Redis()", f"Redis(port={server.port})")
    server.ask("LOCK.ACQUIRE", "fill:report", "somebody", "PX", 60_000)
    running = [subprocess.Popen([sys.executable, "-c", here], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        until(lambda: len(server.waiters("fill:report")) == 3, "three waiters")
        assert server.ask("LOCK.RELEASE", "fill:report", "somebody", "FAILED") == 1
        assert [each.communicate(timeout=60)[0] for each in running] == ["b'a slow query'\n"] * 3
    finally:
        for each in running:
            each.kill()
            each.wait()
    assert server.calls("set") == 1 and server.info("fill:report") is None
