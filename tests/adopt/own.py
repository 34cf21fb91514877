"""Runs the libraries' own tests of their locks, unchanged, from their source distributions: on a server that adopts
every key, and on the same server without adoption. A test that fails is repeated alone, in case it fails only under
load.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import xml.etree.ElementTree
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Set

ALL_KEYS = "*"
PACKAGES = ["pytest==8.4.2", "pytest-asyncio==1.2.0", "pytest-xdist==3.8.0", "process-tests==3.0.0", "coverage"]
PACKAGES += ["gevent", "eventlet"]


class Suite(NamedTuple):
    """A row of the table."""

    name: str
    sdist: str
    folder: str
    tests: List[str]
    # The number of parallel tests. It is large because nearly all of them wait.
    jobs: int


SUITES = [
    Suite("redis-py", "redis==8.1.0", "redis-8.1.0", ["tests/test_lock.py", "tests/test_asyncio/test_lock.py"], 0),
    Suite("python-redis-lock", "python-redis-lock==4.0.1", "python_redis_lock-4.0.1", ["tests/test_redis_lock.py"], 6),
]

# Tests that fail with adoption because replies differ, with the reason.
DIFFERS: Dict[str, str] = {}


class Outcome(NamedTuple):
    """The result of running a suite."""

    passed: Set[str]
    failed: Set[str]
    skipped: Set[str]


def unpacked(suite: Suite, python: str, cache: Path, call: Callable[..., None]) -> Path:
    folder = cache / suite.folder
    if not folder.exists():
        words = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        call([*words, "--dest", str(cache), suite.sdist])
        with tarfile.open(f"{folder}.tar.gz") as archive:
            archive.extractall(cache)
    return folder


def outcome(suite: Suite, python: str, folder: Path, server: Any, tests: List[str], jobs: int) -> Outcome:
    """Runs these tests. The directory of `server` has a program `redis-server`, which starts more servers."""
    report = Path(server.dir, "report.xml")
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--junitxml", str(report)]
    words += ["-n", str(jobs)] if jobs else []
    words += ["--redis-url", f"redis://127.0.0.1:{server.port}/0"] if suite.name == "redis-py" else []
    # The suite's helper programs import the library too.
    environment = {**os.environ, "PATH": f"{server.dir}:{Path(python).parent}:{os.environ['PATH']}"}
    done = subprocess.run([*words, *tests], cwd=folder, capture_output=True, text=True, env=environment)
    assert report.exists(), done.stdout + done.stderr
    found: Dict[str, Set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        has = {child.tag for child in case}
        kind = "failed" if has & {"failure", "error"} else "skipped" if "skipped" in has else "passed"
        found[kind].add(f"{case.get('classname')}.{case.get('name')}")
    report.unlink()
    return Outcome(**found)


def node_id(name: str) -> str:
    """`tests.test_asyncio.test_lock.TestLock.test_x[y]` as pytest takes it."""
    bare, bracket, parameters = name.partition("[")
    parts = bare.split(".")
    module = next(index for index, part in enumerate(parts) if part.startswith("test_") and part != "test_asyncio")
    return "/".join(parts[: module + 1]) + ".py::" + "::".join(parts[module + 1 :]) + bracket + parameters


def run(suite: Suite, python: str, cache: Path, start: Callable[[str], Any], call: Callable[..., None]) -> str:
    """The row of a suite. An assertion fails if adoption makes a difference that is not listed."""
    folder = unpacked(suite, python, cache, call)
    outcomes = {}
    for pattern in ("", ALL_KEYS):
        server = start(pattern)
        first = outcome(suite, python, folder, server, suite.tests, suite.jobs)
        again = Outcome(set(), set(), set())
        if first.failed:
            again = outcome(suite, python, folder, server, [node_id(name) for name in sorted(first.failed)], 0)
        outcomes[pattern] = Outcome(first.passed | again.passed, first.failed - again.passed, first.skipped)
        if suite.name == "redis-py":
            assert not pattern or server.info("adopted_acquires") > 50, "not adopted"
        else:
            assert Path(server.dir, "started").exists(), "its tests have started another redis-server"
        server.stop()
    off, on = outcomes[""], outcomes[ALL_KEYS]
    unlisted = (on.failed - off.failed) - set(DIFFERS)
    assert not unlisted, f"adoption makes a difference: {sorted(unlisted)}"
    assert on.passed, "nothing was tested"
    differ = ", ".join(f"{name}: {DIFFERS[name]}" for name in sorted(on.failed - off.failed)) or "none"
    fails = f", {len(off.failed & on.failed)} fail on both" if off.failed & on.failed else ""
    skipped = f", {len(on.skipped)} skipped" if on.skipped else ""
    return f"{len(on.passed)} pass{fails}{skipped} | {differ}"
