"""Runs the programs of docs/recipes.md and docs/any-language.md on a server of a test: the text is that of the page,
with another port."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/recipes.md"
ANY_LANGUAGE = ROOT / "docs/any-language.md"
STANDINS = Path(__file__).resolve().parent / "standins"
NODE = os.environ.get("NODE") or "node"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
# For a program that runs for a second, the optimizing compiler costs more than it saves.
JAVA = [
    os.path.join(os.environ["JAVA_HOME"], "bin/java") if "JAVA_HOME" in os.environ else "java",
    "-XX:TieredStopAtLevel=1",
]
URL = "redis://127.0.0.1/"
# The programs in Java and their compiled classes. Java would compile a source file each time it runs it.
JAVA_PROGRAMS = TARGET / "java/recipes"
# The programs in Go and their binaries.
GO = TARGET / "go/recipes"

Name = Tuple[str, str]


def programs(page: Path) -> Dict[Name, str]:
    """Each program, by its chapter title and language."""
    found: Dict[Name, str] = {}
    for chapter in re.split(r"^##+ ", page.read_text(), flags=re.MULTILINE)[1:]:
        title, text = chapter.split("\n", 1)
        for language, program in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            assert (title, language) not in found, f"{title} has two programs in {language}"
            found[title, language] = program
    return found


PROGRAMS = programs(PAGE)
IN_ANY_LANGUAGE = programs(ANY_LANGUAGE)


def languages(title: str) -> List[str]:
    """The languages of the page, without Go if it is not installed (`environment` reports that)."""
    return [language for name, language in PROGRAMS if name == title and (language != "go" or (GO / "bin").exists())]


class Folder:
    """A directory for programs, with `redis-lock` and `redis-cli` that know the server."""

    def __init__(self, path: Path, port: int) -> None:
        self.path = path
        self.port = port
        tools = path / "tools"
        tools.mkdir()
        for name, program in {"redis-lock": str(TARGET / "quick/redis-lock"), "redis-cli": which("redis-cli")}.items():
            script(tools / name, f'exec {program} -p {port} "$@"')
        self.environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(STANDINS),
            "STANDIN_DATABASE": str(path / "bank.db"),
            "STANDIN_PYTHON": sys.executable,
            "STANDIN_SQL": str(STANDINS / "sql.py"),
            "REDIS_URL": f"redis://127.0.0.1:{port}/",
            "REDIS_ADDR": f"127.0.0.1:{port}",
        }

    def script(self, name: str, text: str) -> None:
        """A script of the reader, `./name` in the programs."""
        script(self.path / name, text)

    def start(self, title: str, language: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        words = self._words(title, language)
        return subprocess.Popen(
            [*words, *arguments],
            cwd=self.path,
            env={**self.environment, "RECIPE": title, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Including the processes that it starts, unless they form a separate process group.
            start_new_session=True,
        )

    def run(self, title: str, language: str, *arguments: str) -> Tuple[int, str]:
        """Its exit status and its output."""
        return ended(self.start(title, language, *arguments))

    def lines(self, name: str) -> List[str]:
        """The lines of a file that scripts append to."""
        file = self.path / name
        return file.read_text().splitlines() if file.exists() else []

    def _words(self, title: str, language: str) -> List[str]:
        program = {**PROGRAMS, **IN_ANY_LANGUAGE}[title, language]
        if language == "python":
            port = f"redis.Redis(port={self.port}"
            here = program.replace("redis.Redis()", f"{port})").replace("redis.Redis(protocol", f"{port}, protocol")
            return [sys.executable, "-c", here]
        if language == "js":
            # Inside the package, where its own name and its dependencies resolve.
            file = ROOT / "clients/node/build" / f"recipe-{re.sub('[^a-z]+', '-', title.lower())}-{self.port}.mjs"
            here = program.replace("new Redis(", f"new Redis({self.port}").replace('"pg"', f'"{STANDINS / "pg.js"}"')
            file.write_text(here)
            return [NODE, str(file)]
        if language in ("php", "ruby"):
            here = program.replace("'127.0.0.1', 6379", f"'127.0.0.1', {self.port}")
            here = here.replace("Redis.new(timeout", f"Redis.new(port: {self.port}, timeout")
            file = self.path / f"program.{language}"
            file.write_text(here)
            return [language, str(file)]
        if language == "rust":
            return [str(TARGET / "quick/examples/recipes")]
        if language == "go":
            return [str(GO / "bin" / go_name(title))]
        if language == "java":
            return compiled_java(java_name(program), f"-Dport={self.port}", "-Djdbc.drivers=Standin")
        assert language == "sh"
        return ["sh", "-c", program, "sh"]


def java_path() -> str:
    """The class path of the client and its tests, as built by clients/java/environment."""
    core = ROOT / "clients/java/core/target"
    return f"{core / 'classes'}:{(core / 'classpath').read_text()}"


def compiled_java(name: str, *options: str) -> List[str]:
    return [*JAVA, *options, "-cp", f"{java_path()}:{JAVA_PROGRAMS / 'classes'}", name]


def ended(running: subprocess.Popen[str]) -> Tuple[int, str]:
    try:
        printed, _ = running.communicate(timeout=60)
    finally:
        kill(running)
    return running.returncode, printed


def kill(running: subprocess.Popen[str]) -> None:
    """Kills it, with its shell, by a signal that it cannot catch."""
    try:
        os.killpg(running.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def runs(pid: int) -> bool:
    """Whether the process still runs. A process that has ended may remain as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def write_rust(folder: Path) -> None:
    """All programs in Rust as one binary, which runs the one that RECIPE names: linking takes longer than compiling.
    scripts/test-crates compiles it."""
    parts: List[str] = ["mod tokio_postgres;"]
    arms: List[str] = []
    for number, ((title, language), program) in enumerate(PROGRAMS.items()):
        if language == "rust":
            here = program.replace(f'"{URL}"', 'std::env::var("REDIS_URL").expect("a URL").as_str()')
            assert here != program, f"{title}: it connects to the default port"
            here = here.replace("async fn main", "pub async fn main")
            parts.append(f"mod recipe_{number} {{\n#[allow(unused_imports)]\nuse crate::tokio_postgres;\n{here}}}")
            arms.append(f'        "{title}" => recipe_{number}::main().map_err(|error| error.to_string()),')
    dispatch = "\n".join(arms)
    parts.append(
        "fn main() {\n"
        '    let done = match std::env::var("RECIPE").expect("a recipe").as_str() {\n'
        f"{dispatch}\n"
        '        other => panic!("no recipe {other}"),\n'
        "    };\n"
        '    if let Err(error) = done { eprintln!("{error}"); std::process::exit(1) }\n'
        "}\n"
    )
    texts = {"main.rs": "\n".join(parts), "tokio_postgres.rs": (STANDINS / "tokio_postgres.rs").read_text()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        file = folder / name
        # It keeps its old time, so that it is not compiled again.
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def go_name(title: str) -> str:
    return re.sub("[^a-z]+", "_", title.lower())


def write_go() -> None:
    """All programs in Go, each in its own folder. `environment` compiles them."""
    for (title, language), program in PROGRAMS.items():
        if language == "go":
            here = program.replace('"localhost:6379"', "addr")
            assert here != program, f"{title}: it connects to another port"
            folder = GO / go_name(title)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "main.go").write_text(here)
            (folder / "addr.go").write_text('package main\n\nimport "os"\n\nvar addr = os.Getenv("REDIS_ADDR")\n')
    # For test_permissions.py.
    shutil.copytree(STANDINS / "worker", GO / "worker", dirs_exist_ok=True)
    client = "github.com/redis-lock/redis-lock/clients/go"
    modules = [(client, ROOT / "clients/go"), ("github.com/jackc/pgx/v5", STANDINS / "pgx")]
    needs = re.findall(r"go-redis/v9 (v\S+)", (ROOT / "clients/go/go.mod").read_text())
    lines = ["module recipes", "", "go 1.24.0", "", f"require github.com/redis/go-redis/v9 {needs[0]}"]
    for module, path in modules:
        lines += [f"require {module} {'v5.0.0' if module.endswith('v5') else 'v1.0.0'}", f"replace {module} => {path}"]
    (GO / "go.mod").write_text("\n".join(lines) + "\n")
    shutil.copy(ROOT / "clients/go/go.sum", GO / "go.sum")


def java_name(program: str) -> str:
    name = re.search(r"^class (\w+)", program, re.MULTILINE)
    assert name, program
    return name[1]


def write_java() -> None:
    """All programs in Java, which connect to the port of a system property. `environment` compiles them."""
    JAVA_PROGRAMS.mkdir(parents=True, exist_ok=True)
    for (title, language), program in PROGRAMS.items():
        if language == "java":
            here = program.replace('"127.0.0.1", 6379', '"127.0.0.1", Integer.getInteger("port")')
            assert here != program, f"{title}: it connects to another port"
            (JAVA_PROGRAMS / f"{java_name(program)}.java").write_text(here)


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def which(name: str) -> str:
    found = shutil.which(name)
    assert found, f"there is no {name}"
    return found


def sql(folder: Folder, statement: str, *values: Any) -> Any:
    """Asks the database behind the stand-ins of the PostgreSQL drivers."""
    import sqlite3

    with sqlite3.connect(folder.environment["STANDIN_DATABASE"]) as database:
        return database.execute(statement, values).fetchall()


if __name__ == "__main__":
    if sys.argv[1:] == ["go"]:
        write_go()
    elif sys.argv[1:] == ["java"]:
        write_java()
    else:
        write_rust(Path(sys.argv[1]))
