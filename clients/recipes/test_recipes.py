"""Each program of docs/recipes.md does its task on a real server, and behaves as the page says when something fails.
The programs of all languages run through the same scenario."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest
from programs import PAGE, PROGRAMS, Folder, ended, kill, languages, runs, sql
from servers import Server, until


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def folder(server: Server, tmp_path: Path) -> Folder:
    return Folder(tmp_path, server.port)


TESTED: List[str] = []


def recipe(title: str) -> Callable[[Any], Any]:
    """The test of a recipe, for each language that it has."""
    TESTED.append(title)
    return pytest.mark.parametrize(("title", "language"), [(title, language) for language in languages(title)])


def test_every_recipe_is_tested_and_every_link_of_the_page_leads_somewhere() -> None:
    assert {title for title, _ in PROGRAMS} == set(TESTED)
    text = PAGE.read_text()
    titles = re.findall(r"^##+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    for name in re.findall(r"\]\(#([^)]*)\)", text):
        assert name in anchors, name
    for title in {title for title, _ in PROGRAMS}:
        assert title in titles, title


def test_a_program_is_short() -> None:
    # In Go the imports take ten lines and each error three. In Java the class and main take five.
    most = {"go": 40, "java": 26}
    for name, program in PROGRAMS.items():
        assert len(program.strip().split("\n")) <= most.get(name[1], 20), name
        assert all(len(line) <= 120 for line in program.split("\n")), name


@recipe("Fill a cache once")
def test_one_caller_renders_and_all_of_them_get_the_page(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    folder.script("render", "echo begun >>begun; until [ -e go ]; do sleep 0.02; done; echo the page")
    running = [folder.start(title, language) for _ in range(5)]
    until(lambda: folder.lines("begun") and len(server.waiters("making:front-page")) == 4, "all but one wait")
    (folder.path / "go").touch()
    for caller in running:
        status, printed = ended(caller)
        # The command line says on stderr that another run has done it.
        assert status == 0 and "the page" in printed.split("\n"), printed
    assert folder.run(title, language)[1].strip() == "the page"
    assert folder.lines("begun") == ["begun"]
    assert server.info("making:front-page") is None


@recipe("Fill a cache once")
def test_when_rendering_fails_the_next_caller_renders(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    folder.script("render", "echo begun >>begun; until [ -e go ]; do sleep 0.02; done; mkdir once && exit 1; echo page")
    running = [folder.start(title, language) for _ in range(3)]
    until(lambda: folder.lines("begun") and len(server.waiters("making:front-page")) == 2, "all but one wait")
    (folder.path / "go").touch()
    assert sorted(ended(caller)[0] != 0 for caller in running) == [False, False, True]
    assert folder.lines("begun") == ["begun"] * 2


@recipe("A nightly job on ten hosts")
def test_a_host_whose_clock_is_late_does_not_run_the_job_again(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    folder.script("nightly", "echo begun >>begun")
    statuses = [folder.run(title, language)[0] for _ in range(3)]
    assert statuses == ([0, 1, 1] if language == "sh" else [0, 0, 0])
    assert folder.lines("begun") == ["begun"]
    assert 500_000 < server.ask("PTTL", "nightly") <= 600_000


@recipe("A nightly job on ten hosts")
def test_a_job_whose_lock_is_broken_is_stopped_within_a_third_of_the_lease(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    folder.script("nightly", "echo $$ >>begun; exec sleep 100")
    running = folder.start(title, language)
    until(lambda: folder.lines("begun"), "the job runs")
    server.ask("LOCK.BREAK", "nightly")
    until(lambda: running.poll() is not None, "its program has ended")
    job = int(folder.lines("begun")[0])
    until(lambda: not runs(job), "the job has ended")
    assert ended(running)[0] != 0


@recipe("A cron line")
def test_the_second_host_runs_nothing_and_prints_nothing(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    folder.script("mirror", "echo begun >>begun")
    assert folder.run(title, language) == (0, "")
    assert folder.run(title, language) == (1, "")
    assert folder.lines("begun") == ["begun"]
    assert 200_000 < server.ask("PTTL", "mirror") <= 240_000
    [written] = [line for line in PAGE.read_text().split("\n") if line.startswith("    */5 ")]
    program = PROGRAMS[title, language].strip()
    assert program.replace(" run", " run -h redis.internal").replace("./mirror", "/usr/local/bin/mirror") in written


@recipe("One worker per GPU")
def test_each_job_has_a_gpu_of_its_own_and_the_next_one_takes_the_one_that_is_free(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    folder.script("train", "gpu=$CUDA_VISIBLE_DEVICES; echo $gpu >>begun; until [ -e go-$gpu ]; do sleep 0.02; done")
    running = []
    for job in range(4):
        running.append(folder.start(title, language))
        until(lambda: len(folder.lines("begun")) == job + 1, "it trains")
    running.append(folder.start(title, language))
    until(lambda: server.waiters("gpus:host-7"), "the fifth waits")
    assert folder.lines("begun") == ["0", "1", "2", "3"]
    (folder.path / "go-2").touch()
    until(lambda: len(folder.lines("begun")) == 5, "the fifth trains")
    assert folder.lines("begun")[4] == "2"
    for slot in (0, 1, 3):
        (folder.path / f"go-{slot}").touch()
    for job in running:
        assert ended(job)[0] == 0


@recipe("Hand a lock to another process")
def test_the_lock_is_held_after_the_process_has_ended_and_its_token_is_in_the_list(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    assert folder.run(title, language) == (0, "")
    [holder] = server.holders("import")
    assert server.ask("LRANGE", "imports", 0, -1) == [holder["owner"]]
    assert folder.run(title, language) == (0, "an import is under way\n")
    assert server.ask("LLEN", "imports") == 1


@recipe("Take a lock over")
def test_the_worker_works_under_the_lock_and_releases_it_and_does_nothing_when_it_was_lost(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    folder.script("import", "redis-cli LOCK.HELD import the-token >>held")
    for is_lost in (False, True):
        server.ask("LOCK.ACQUIRE", "import", "the-token", "EX", 10)
        server.ask("LPUSH", "imports", "the-token")
        if is_lost:
            server.ask("LOCK.BREAK", "import")
        status, printed = folder.run(title, language)
        assert (status != 0) == is_lost, printed
        assert server.info("import") is None
    # Fence, holds and remaining time of the one import.
    least = 200_000 if language == "sh" else 20_000
    assert len(folder.lines("held")) == 3 and int(folder.lines("held")[2]) > least, folder.lines("held")


# The leaders that survive a loss and the refusals of the server.
QUEUES_AGAIN = ["python", "js", "rust"]


@recipe("Leader election")
def test_one_copy_leads_and_when_it_dies_the_next_one_does(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    folder.script("tick", "echo tick >>ticks")
    folder.script("lead", "echo tick >>ticks; exec sleep 100")
    owner = lambda: [holder["owner"] for holder in server.holders("scheduler")]
    first = folder.start(title, language, "web-1:8080")
    until(lambda: folder.lines("ticks"), "the first copy works")
    leader = owner()
    second = folder.start(title, language, "web-2:8080")
    try:
        until(lambda: server.waiters("scheduler"), "the second copy waits")
        waiting = server.waiters("scheduler")
        kill(first)
        # The command line starts a program that ticks once, perhaps before this line; the others continue to tick.
        ticks = 1 if language == "sh" else len(folder.lines("ticks"))
        until(lambda: owner() == waiting, "the second copy leads")
        # If the hold is broken before the copy has received its grant, the copy acquires it again.
        until(lambda: len(folder.lines("ticks")) > ticks, "the second copy works")
        if language != "sh":
            assert (leader, waiting) == (["web-1:8080"], ["web-2:8080"])
        # It stops working as soon as it is no longer the leader.
        assert server.ask("LOCK.BREAK", "scheduler") == 1
        if language in QUEUES_AGAIN:
            until(lambda: owner() == waiting, "it leads again, after a pause")
        else:
            status, printed = ended(second)
            assert status != 0, printed
    finally:
        kill(second)


@recipe("Find the leader")
def test_the_owner_of_the_lock_is_printed(server: Server, folder: Folder, title: str, language: str) -> None:
    assert folder.run(title, language)[1] == "no leader\n"
    server.ask("LOCK.ACQUIRE", "scheduler", "web-2:8080")
    assert folder.run(title, language) == (0, "web-2:8080\n")


@recipe("A bounded pool with a fair queue")
def test_three_run_at_a_time_in_order_of_arrival(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    folder.script("call", "echo $CALLER >>begun; until [ -e go-$CALLER ]; do sleep 0.02; done")
    running = []
    for caller in range(6):
        running.append(folder.start(title, language, CALLER=str(caller)))
        if caller < 3:
            until(lambda: str(caller) in folder.lines("begun"), "it runs")
        else:
            until(lambda: len(server.waiters("slow-service")) == caller - 2, "it waits")
    assert (folder.lines("begun"), len(server.holders("slow-service"))) == (["0", "1", "2"], 3)
    for caller in range(6):
        (folder.path / f"go-{caller}").touch()
        assert ended(running[caller])[0] == 0
        begun = min(caller + 4, 6)
        until(lambda: len(folder.lines("begun")) >= begun, "the next one runs")
        assert folder.lines("begun") == [str(number) for number in range(begun)]
    assert server.info("slow-service") is None


@recipe("A guarded write in PostgreSQL")
def test_a_write_under_an_older_fence_changes_nothing(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    statement = re.search(r"^    (ALTER TABLE .*);$", PAGE.read_text(), re.MULTILINE)
    assert statement
    with sqlite3.connect(folder.environment["STANDIN_DATABASE"]) as database:
        database.execute("CREATE TABLE account (id bigint, balance bigint)")
        database.execute("INSERT INTO account VALUES (7, 100)")
        database.execute(statement[1])
    status, printed = folder.run(title, language)
    assert status == 0, printed
    [(balance, fence)] = sql(folder, "SELECT balance, fence FROM account")
    assert balance == 70 and fence > 0
    # A grant newer than any grant of this server.
    sql(folder, "UPDATE account SET fence = ?", 2**53)
    status, printed = folder.run(title, language)
    assert status != 0 and "a newer grant has written" in printed
    assert sql(folder, "SELECT balance, fence FROM account") == [(70, 2**53)]
    # A newer grant claims the account between the claim of this one and its write.
    sql(folder, "UPDATE account SET fence = 0")
    newer = f"UPDATE account SET fence = {2**53}"
    sql(folder, f"CREATE TRIGGER newer AFTER UPDATE OF fence ON account BEGIN {newer}; END")
    status, printed = folder.run(title, language)
    assert status != 0 and "a newer grant has written" in printed
    assert sql(folder, "SELECT balance FROM account") == [(70,)]


@recipe("A guarded write in Redis")
def test_a_report_is_stored_only_while_the_lock_is_held(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    folder.script("make-report", "echo begun >>begun; until [ -e go ]; do sleep 0.02; done; echo the report")
    for begun, (is_broken, stored) in enumerate([(True, None), (False, "the report")], 1):
        running = folder.start(title, language)
        until(lambda: len(folder.lines("begun")) == begun, "it makes the report")
        if is_broken:
            assert server.ask("LOCK.BREAK", "report") == 1
        (folder.path / "go").touch()
        status, printed = ended(running)
        report = server.ask("GET", "report:latest")
        assert (status != 0, report and report.strip()) == (is_broken, stored), printed
        (folder.path / "go").unlink()
    assert server.info("report") is None


@recipe("Several accounts at once")
def test_transfers_at_the_same_time_lose_nothing(server: Server, folder: Folder, title: str, language: str) -> None:
    folder.script(
        "transfer",
        """set -- $(redis-cli MGET {bank}:7 {bank}:9)
[ $1 -lt 30 ] || redis-cli MSET {bank}:7 $(($1 - 30)) {bank}:9 $(($2 + 30))""",
    )
    server.ask("MSET", "{bank}:7", 100, "{bank}:9", 100)
    server.ask("LOCK.ACQUIRE", "lock:{bank}:9", "somebody", "PX", 60_000)
    running = [folder.start(title, language) for _ in range(5)]
    until(lambda: len(server.waiters("lock:{bank}:7")) == 5, "all wait for both")
    assert server.ask("LOCK.RELEASE", "lock:{bank}:9", "somebody") == 1
    for transfer in running:
        status, printed = ended(transfer)
        assert status == 0, printed
    assert server.ask("MGET", "{bank}:7", "{bank}:9") == ["10", "190"]


@recipe("A rolling deploy that stops the old leader first")
def test_the_new_leader_starts_when_the_old_one_has_ended(
    server: Server, folder: Folder, title: str, language: str
) -> None:
    folder.script(
        "leader",
        """trap 'echo "$1 stops" >>log; sleep 0.3; echo "$1 has stopped" >>log; exit 0' TERM
echo "$1 begins" >>log
while :; do sleep 0.05; done""",
    )
    old = subprocess.Popen(
        ["redis-lock", "run", "--session", "leader", "--", "./leader", "old"],
        cwd=folder.path,
        env=folder.environment,
        executable=str(folder.path / "tools/redis-lock"),
    )
    try:
        until(lambda: folder.lines("log") == ["old begins"], "the old one leads")
    except AssertionError:
        old.kill()
        raise
    deploy = folder.start(title, language, OLD_PID=str(old.pid))
    try:
        expected = ["old begins", "old stops", "old has stopped", "new begins"]
        until(lambda: len(folder.lines("log")) == 4, "the new one leads")
        assert folder.lines("log") == expected
        assert old.wait() == 0
    finally:
        old.kill()
        kill(deploy)
        deploy.communicate(timeout=60)
