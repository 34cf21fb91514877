"""Runs each command, configuration and install line of the pages: here, in a fresh clone, or by the test listed in
ELSEWHERE. A new line without a test fails.

    python3 packaging/test_lines.py [Listed] [Played] [Installed] [Compiled]

Compiled takes minutes: it belongs to `make test-dist`, the others to `make test`, Installed only in CI.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import IO, Callable, Iterator, List, Optional, Tuple

from lines import ROOT, lines, lines_of

TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute()
MODULE = Path(os.environ.get("REDIS_LOCK_MODULE") or TARGET / "release/libredis_lock.so").absolute()
SERVER = os.environ.get("REDIS_SERVER") or "redis-server"

# Run here: on a server with the module, with empty scripts instead of the reader's programs.
TYPED = r"redis-lock (run|graph|info|waiters|ls|log|adopt|top --once).*"
TYPED += r"|redis-cli (-3 )?(-p \d+ )?(LOCK\.\w+|CONFIG SET lock\.\S+)( .*)?"
INSTALLED = r"pip install \S*clients/python\S*|python3 -m venv .*|cargo add redis-lock-client --path \S+"
INSTALLED += r"|go mod (init \w+|edit .*|tidy)|mvn -q -f \S+clients/java/pom.xml install .*"
COMPILED = r"cargo install --path \S+"

# A pattern of lines, and the test that runs them: a file, and a text in it; or `no:` and the reason why there is none.
ELSEWHERE: List[Tuple[str, str]] = [
    # The command line.
    (r"redis-lock: not shown: .*", "cli/tests/cli/missing.rs: fn the_locks_of_the_live_shards_are_shown"),
    (r"redis-lock (top|cancel .*|break .*)", "cli/tests/cli/readme.rs: the_examples_match_the_output"),
    (r".*exec redis-lock run .*", "cli/tests/cli/run/surroundings.rs: fn a_script_may_lock_itself"),
    (r"\*/5 \* .*redis-lock run .*--at-least.*", "clients/recipes/test_recipes.py: def test_the_second_host_runs"),
    (r"ExecStart=\S+/redis-lock run .*|Environment=REDIS_LOCK_URL=.*",
     "cli/tests/cli/run/surroundings.rs: fn the_readmes_unit_runs_its_job"),
    (r"\[(Unit|Service|Timer|Install)\]|(Description|Wants|After|Type|KillMode)=.*", "no: systemd's own"),
    (r"(OnCalendar|AccuracySec|WantedBy)=.*", "no: systemd's own"),
    (r"curl --fail --header .Fence: .*", "no: a program of the reader, which reads the fence"),
    # Loading: each line and file, rewritten and restarted.
    (r"loadmodule \S+( \S+ \S+)?", "tests/it/rewriting.rs: fn no_page_or_script_documents_another_way"),
    (r"grep -q .* >>/etc/redis/redis.conf", "tests/it/rewriting.rs: fn the_pages_line_is_written_once"),
    (r"redis-server (.* )?--loadmodule .*", "tests/it/rewriting.rs: fn a_server_without_a_file"),
    (r"maxmemory-policy noeviction|appendonly yes", "tests/it/readme.rs: fn a_server_starts_with_the_example"),
    # Packages.
    (r"(apt|apt-get) install (redis-server )?\./target/debian/.*", "tests/it/package.rs: package.install()"),
    (r"(systemctl restart|systemctl enable --now) redis\S*", "no: needs systemd; test_images starts the unit"),
    (
        r"install -m 640 contrib/acl/\S+ /etc/redis/users.acl",
        "tests/it/permissions.rs: fn the_acl_files_are_loaded_alone",
    ),
    (
        r"install (-d -m 750|-m 640) .* /etc/redis-lock/?",
        "tests/it/rewriting.rs: fn the_user_of_the_unit_may_rewrite_its_file",
    ),
    (r"install -m 644 packaging/systemd/\S+ /etc/\S+", "packaging/images/test_images.py: def test_the_unit"),
    (r"sudo install .*", "no: it needs root, and is what `make install` does"),
    (r"redis-cli -p 6379 SHUTDOWN NOSAVE", "packaging/test_dist.py: SHUTDOWN"),
    (r"pip install -e \. --group test", "clients/python/environment: --group test"),
    (r"npm install .*", "clients/node/tests/install.test.ts: npm install"),
    # Images.
    (r"docker (build|run) .*|COPY --from=.*|FROM .*", "packaging/images/test_images.py: class Images"),
    (r"ENTRYPOINT .*|CMD .*", "packaging/images/test_images.py: class Images"),
    (r"docker compose .*", "packaging/images/test_images.py: class ComposeFiles"),
    (r"docker push .*|export REGISTRY=.*", "no: it needs a registry"),
    (r"sed .*/lock-server.yaml \| kubectl apply -f -", "tests/it/pages.rs: fn the_manifest_uses_the_image"),
    (r"kubectl .*", "packaging/images/test_images.py: class Kubernetes"),
    # TLS.
    (r"install .* /etc/redis/tls/?", "no: it needs root and Debian's user; tests/it/tls.rs uses a separate folder"),
    (r"openssl (req|x509) .*|echo subjectAltName=\S+ >server.ext", "tests/it/tls.rs: pub fn certificates"),
    (r"redis-(cli|lock) --tls .*", "clients/recipes/test_tls.py: def test_the_tools_of_operators"),
    # Monitoring.
    (r"prometheus-redis-exporter .*|export REDIS_USER=.*|promtool .*", "tests/it/metrics.rs: fn shell_blocks"),
    (r"curl -s http://127.0.0.1:9121/metrics.*", "tests/it/metrics.rs: exporter.scrape()"),
    (r"install (-d|-m 644 \S+examples/prometheus/\*) /etc/prometheus/redis-lock/?",
     "tests/it/package.rs: fn monitoring_is_where"),
    (r"redis-cli INFO lock \| grep (-E .)?acquires_refused.*|lock_(acquires_refused|held_back_ms):\w+",
     "tests/it/info/refused.rs: fn a_pause_is_shown"),
    (r"redis-cli --cluster call host:port INFO lock .*", "tests/it/runbook.rs: fn every_cluster_node_reports"),
    (r"redis-cli INFO lock \| grep -E .*last_fence.", "tests/it/removal.rs: fn looked_at"),
    (
        r"redis-cli --scan --pattern 'app:\*' .*",
        "tests/it/adopt/switching.rs: fn the_pages_commands_undo_a_wrong_pattern",
    ),
    (r"apt install prometheus-redis-exporter", "scripts/metrics-tools: prometheus-redis-exporter"),
    (r"(REDIS_USER|REDIS_PASSWORD|ARGS)=.*", "no: the file of Debian's service; the same options are run manually"),
    (r"rule_files: .*|scrape_configs:|- job_name: .*|static_configs:|- targets: .*", "no: Prometheus' own"),
    # Commands for developers.
    (r"(REDIS_LOCK_MODULE=\S+ )?cargo (build|test) .*", "scripts/test-crates: cargo"),
    (r"python examples/predecessors/sale.py .*", "clients/python/tests/test_predecessors.py: sale"),
]


# All programs of this page are tested, each as a whole.
RECIPES = ["docs/recipes.md"]
LINES = {line: pages for line, pages in lines().items() if pages != RECIPES}


def is_there(line: str) -> bool:
    """Whether the make targets and programs of this checkout exist. Their behavior has other tests."""
    makefile = (ROOT / "Makefile").read_text()
    package = (ROOT / "scripts/package").read_text()
    # `[option]` is optional.
    for part in re.sub(r" \[[^]]*\]", "", line).split(" && "):
        try:
            called = [word for word in shlex.split(part) if not re.match(r"[A-Z_]+=", word)]
        except ValueError:
            return False
        if called[0] == "make":
            if not re.search(rf"^{re.escape(called[1])}:", makefile, re.MULTILINE):
                return False
        elif called[0] == "scripts/package" and not re.search(rf"^{called[1]}\(\)", package, re.MULTILINE):
            return False
        elif "/" not in called[0] or not os.access(ROOT / called[0], os.X_OK):
            return False
    return True


def elsewhere(line: str) -> Optional[str]:
    return next((where for pattern, where in ELSEWHERE if re.fullmatch(pattern, line)), None)


def here(pattern: str) -> List[str]:
    return [line for line in LINES if re.fullmatch(pattern, line) and elsewhere(line) is None]


class Listed(unittest.TestCase):
    def test_each_line_is_played(self) -> None:
        self.assertGreater(len(LINES), 100)
        self.assertIn("test_every_recipe_is_tested", (ROOT / "clients/recipes/test_recipes.py").read_text())
        for line, pages in LINES.items():
            played = re.fullmatch(f"{TYPED}|{INSTALLED}|{COMPILED}", line) or elsewhere(line) or is_there(line)
            self.assertTrue(played, f"{pages[0]}: no test plays {line!r}: see ELSEWHERE")

    def test_each_test_that_is_named_exists_and_is_needed(self) -> None:
        for pattern, where in ELSEWHERE:
            self.assertTrue(any(re.fullmatch(pattern, line) for line in lines()), f"no page has {pattern}")
            file, _, words = where.partition(": ")
            if file != "no":
                self.assertIn(words, (ROOT / file).read_text(), file)


class Played(unittest.TestCase):
    """On a server with the module."""

    def setUp(self) -> None:
        cli = TARGET / "quick/redis-lock"
        if not MODULE.exists() or not cli.exists() or not shutil.which(SERVER):
            self.skipTest(f"no {MODULE}, no {cli} or no {SERVER} here")
        self.folder = folder_of(self)
        self.port = free_port()
        words = [SERVER, "--port", str(self.port), "--save", "", "--loadmodule", str(MODULE)]
        log = open(self.folder / "log", "wb")
        self.server = subprocess.Popen(words, cwd=self.folder, stdout=log, stderr=log)
        self.addCleanup(self.end, log)
        until(lambda: self.cli("PING") == "PONG\n", "the server answers")
        (self.folder / "tools").mkdir()
        for name, program in (("redis-lock", cli), ("redis-cli", shutil.which("redis-cli"))):
            self.script(f"tools/{name}", f'exec {program} -p {self.port} "$@"')

    def end(self, log: IO[bytes]) -> None:
        self.server.kill()
        self.server.wait()
        log.close()

    def cli(self, *words: str) -> str:
        return output("redis-cli", "-p", str(self.port), *words)

    def script(self, name: str, text: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def test_what_is_typed_does_its_work(self) -> None:
        typed = here(TYPED)
        self.assertGreater(len(typed), 12)
        environment = {**os.environ, "PATH": f"{self.folder}/tools:{os.environ['PATH']}"}
        for line in typed:
            self.cli("FLUSHALL")
            for key in ("billing:march", "orders:7"):
                self.cli("LOCK.ACQUIRE", key, "worker-7")
            for name in re.findall(r"\./([\w.-]+)", line):
                self.script(name, "echo done >>ran")
            command = re.sub(r"-p \d+ ", f"-p {self.port} ", line)
            ran = subprocess.run(["sh", "-c", command], cwd=self.folder, env=environment, text=True, timeout=60,
                                 capture_output=True, stdin=subprocess.DEVNULL)
            self.assertEqual(ran.returncode, 0, f"{line}: {ran}")
            self.assertNotRegex(ran.stdout + ran.stderr, "ERR|NOPERM|usage", line)
            if "./" in line:
                self.assertTrue((self.folder / "ran").exists(), line)
                (self.folder / "ran").unlink()


class Clone(unittest.TestCase):
    """A fresh clone: nothing is built or installed in it."""

    def setUp(self) -> None:
        self.folder = folder_of(self)
        self.clone = self.folder / "redis-lock"
        run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(self.clone))

    def play(self, line: str, folder: Path, **environment: str) -> None:
        line = line.replace("/path/to/redis-lock", str(self.clone))
        ran = subprocess.run(["sh", "-ec", line], cwd=folder, env={**os.environ, **environment}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        is_offline = re.search("Could not find a version|Failed to establish|Temporary failure", ran.stdout)
        if ran.returncode != 0 and is_offline:
            self.skipTest(f"packages cannot be downloaded here: {line}")
        self.assertEqual(ran.returncode, 0, f"{line}: {ran.stdout}")


class Installed(Clone):
    def test_the_python_client(self) -> None:
        found = here(r"pip install .*|python3 -m venv .*")
        self.assertGreater(len(found), 2)
        for line in found:
            environment = self.folder / "environment"
            if line.startswith("python3 -m venv"):
                environment = self.clone / "env"
            else:
                run(sys.executable, "-m", "venv", str(environment))
            self.play(line, self.clone, PATH=f"{environment}/bin:{os.environ['PATH']}")
            run(f"{environment}/bin/python", "-c", "import redis, redislock, redislock.asyncio", cwd=self.folder)
            shutil.rmtree(environment)

    def test_the_rust_client(self) -> None:
        found = here(r"cargo add .*")
        self.assertGreater(len(found), 1)
        for line in found:
            project = self.folder / "project"
            run("cargo", "new", "--quiet", "--vcs", "none", str(project), cwd=self.folder)
            (project / "redis-lock").symlink_to(self.clone)
            self.play(line, project)
            resolved = run("cargo", "metadata", "--format-version", "1", cwd=project)
            self.assertIn('"name":"redis-lock-client"', resolved)
            shutil.rmtree(project)

    def test_the_go_client(self) -> None:
        if shutil.which("go") is None:
            self.skipTest("there is no Go on PATH")
        # Each program is followed by its commands, which may belong to two programs.
        page = (ROOT / "clients/go/README.md").read_text()
        blocks = re.findall(r"^```(go|sh)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
        programs, played = 0, set()
        for number, (language, program) in enumerate(blocks):
            if language == "go":
                typed = next(text for language, text in blocks[number:] if language == "sh")
                project = self.folder / f"project-{number}"
                project.mkdir()
                (project / "main.go").write_text(program)
                for line in lines_of(f"```sh\n{typed}```"):
                    self.play(line, project, GOTOOLCHAIN="local")
                    played.add(line)
                run("go", "build", "-o", "program", ".", cwd=project)
                programs += 1
        self.assertEqual(programs, 4)
        self.assertEqual(played, set(here(r"go mod .*")))
        self.spans_of(project)

    def spans_of(self, project: Path) -> None:
        """The last program uses OpenTelemetry, whose exporters no module of the client needs."""
        if not MODULE.exists() or not shutil.which(SERVER):
            self.skipTest(f"no {MODULE} or no {SERVER} here")
        port = free_port()
        words = [SERVER, "--port", str(port), "--save", "", "--loadmodule", str(MODULE)]
        with subprocess.Popen(words, cwd=self.folder, stdout=subprocess.DEVNULL) as server:
            try:
                until(lambda: output("redis-cli", "-p", str(port), "PING") == "PONG\n", "the server answers")
                program = project / "main.go"
                program.write_text(program.read_text().replace("localhost:6379", f"localhost:{port}"))
                told = run("go", "run", ".", cwd=project)
            finally:
                server.kill()
        for name in ("redislock.acquire", "redislock.hold", "redislock.wait.duration", "redislock.hold.duration"):
            self.assertIn(f'"{name}"', told)


    def test_the_java_client(self) -> None:
        if shutil.which("mvn") is None or shutil.which("javac") is None:
            self.skipTest("there is no Maven or no JDK on PATH")
        found = here(r"mvn .*")
        self.assertEqual(len(found), 1)
        # Links to Maven's existing downloads; the installation goes only to this folder.
        local = self.folder / "repository"
        kept = Path.home() / ".m2/repository"
        if kept.exists():
            shutil.copytree(kept, local, copy_function=link)
            shutil.rmtree(local / "io/github/redis-lock", ignore_errors=True)
        options = f"{os.environ.get('MAVEN_OPTS', '')} -Dmaven.repo.local={local}"
        self.play(found[0], self.folder, MAVEN_OPTS=options)
        version = re.search(r"<version>(.*)</version>", (ROOT / "clients/java/pom.xml").read_text())
        assert version
        for name in ("redis-lock-client", "redis-lock-shedlock", "redis-lock-spring-boot-starter"):
            for kind in ("", "-sources", "-javadoc"):
                jar = local / f"io/github/redis-lock/{name}/{version[1]}/{name}-{version[1]}{kind}.jar"
                self.assertTrue(jar.exists(), jar)
        project = self.folder / "project"
        for number, program in enumerate(self.programs_of_java(project)):
            self.play("mvn -q -B compile", program, MAVEN_OPTS=options)
        self.assertEqual(number, 2)

    def programs_of_java(self, project: Path) -> Iterator[Path]:
        """Compiles each program of the README with the dependencies of its section and those that the section lists."""
        page = (ROOT / "clients/java/README.md").read_text()
        blocks = re.findall(r"^```(xml|java)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
        dependencies: List[str] = []
        for language, text in blocks:
            if language == "xml":
                dependencies.append(text)
            program = re.search(r"^public class (\w+)", text, re.MULTILINE)
            if language == "java" and program:
                package = re.search(r"^package (\w+);", text)
                folder = project / program[1]
                sources = folder / "src/main/java" / (package[1] if package else "")
                sources.mkdir(parents=True)
                (sources / f"{program[1]}.java").write_text(text)
                # The first section lists no Redis library, because the reader has one.
                lettuce = "<dependency><groupId>io.lettuce</groupId><artifactId>lettuce-core</artifactId></dependency>"
                (folder / "pom.xml").write_text(POM.format(dependencies="".join([lettuce, *dependencies])))
                yield folder


# The POM of an application with Spring Boot's parent.
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <parent>
    <groupId>org.springframework.boot</groupId>
    <artifactId>spring-boot-starter-parent</artifactId>
    <version>3.5.7</version>
  </parent>
  <groupId>reader</groupId>
  <artifactId>reader</artifactId>
  <version>1</version>
  <properties><java.version>17</java.version></properties>
  <dependencies>{dependencies}</dependencies>
</project>
"""


def link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


class Compiled(Clone):
    """Takes minutes, even without optimization. One line builds, and the others use its result."""

    quick = {"CARGO_PROFILE_RELEASE_OPT_LEVEL": "0", "CARGO_PROFILE_RELEASE_LTO": "off",
             "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16", "CARGO_TARGET_DIR": str(TARGET / "lines")}

    def test_the_command_line(self) -> None:
        found = here(COMPILED)
        self.assertGreater(len(found), 1)
        for number, line in enumerate(found):
            root = self.folder / str(number)
            self.play(f"{line} --root {root}", self.clone, **self.quick)
            self.assertIn("redis-lock ", run(f"{root}/bin/redis-lock", "--version"))

    def test_make_run_serves_and_make_install_puts_the_module_where_it_says(self) -> None:
        self.assertIn("make run", LINES)
        self.assertIn("make install", LINES)
        port = free_port()
        with open(self.folder / "log", "wb") as log:
            server = subprocess.Popen(["make", "run", f"PORT={port}"], cwd=self.clone, env={**os.environ, **self.quick},
                                      stdout=log, stderr=log)
        try:
            help_of = ["redis-cli", "-p", str(port), "LOCK.HELP"]
            until(lambda: server.poll() is not None or "LOCK.ACQUIRE" in output(*help_of), "it serves", 900)
            self.assertIsNone(server.poll(), (self.folder / "log").read_text())
        finally:
            output("redis-cli", "-p", str(port), "SHUTDOWN", "NOSAVE")
            server.wait()
        self.play(f"make install DESTDIR={self.folder}", self.clone, **self.quick)
        self.assertTrue((self.folder / "usr/lib/redis/modules/libredis_lock.so").exists())


def folder_of(test: unittest.TestCase) -> Path:
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    return Path(folder.name)


def run(*words: str, cwd: Optional[Path] = None) -> str:
    return subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True).stdout


def output(*words: str) -> str:
    """Returns the output, even if the program fails."""
    return subprocess.run(words, capture_output=True, text=True).stdout


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def until(state: Callable[[], object], what: str, patience_s: float = 60) -> None:
    ends = time.monotonic() + patience_s
    while not state():
        if time.monotonic() > ends:
            raise AssertionError(f"never came: {what}")
        time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()
