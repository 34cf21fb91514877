"""Tests the artifacts of `make dist`: each archive has exactly the expected files, and is sufficient to get a lock on a
server. Missing artifacts are skipped with a message; with DIST_COMPLETE=yes they are failures.

    python3 packaging/test_dist.py [Archives] [Debs] [Clients]
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import unittest
import zipfile
from pathlib import Path
from typing import Any, Iterator, List, Set
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
DIST = Path(os.environ.get("DIST_FOLDER") or Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "dist")
# Whether a missing artifact is a failure.
COMPLETE = os.environ.get("DIST_COMPLETE") == "yes"
PAGES = "", "-run", "-top", "-graph", "-ls", "-info", "-waiters", "-break", "-cancel", "-log", "-adopt", "-generate"
LICENCE = (ROOT / "LICENSE").read_bytes()
# Where scripts/setup installs it.
CACHE = Path(os.environ.get("TOOLS_CACHE") or Path.home() / ".cache/redis-lock/tools")
GO_OF_SETUP = [str(go) for go in CACHE.glob("go-*/go/bin/go")]


def found(test: unittest.TestCase, pattern: str) -> List[Path]:
    files = sorted(DIST.glob(pattern))
    if not files and COMPLETE:
        test.fail(f"there is no {pattern} in target/dist")
    if not files:
        test.skipTest(f"there is no {pattern} in target/dist: make dist")
    return files


def one(test: unittest.TestCase, pattern: str) -> Path:
    files = found(test, pattern)
    test.assertEqual(len(files), 1, files)
    return files[0]


def sources(folder: str) -> Set[str]:
    """The relative paths of a folder's files, without those that tests leave behind."""
    top = ROOT / folder
    files = (file.relative_to(top) for file in top.rglob("*") if file.is_file())
    return {file.as_posix() for file in files if "__pycache__" not in file.parts}


def machine_paths() -> Iterator[bytes]:
    """The paths of this checkout, of cargo's folder and of the home folder, except `/` and one-letter folders."""
    for path in [str(ROOT), os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo"), str(Path.home())]:
        if len(path) > 2:
            yield path.encode() + b"/"


class Archives(unittest.TestCase):
    def archives(self) -> List[Path]:
        return found(self, "redis-lock-*-*-*.tar.gz")

    def test_an_archive_has_these_files_and_no_others(self) -> None:
        for path in self.archives():
            top = path.name[: -len(".tar.gz")]
            with self.subTest(top), tarfile.open(path) as archive:
                files = {entry.name for entry in archive if entry.isfile()}
                expected = [
                    *["libredis_lock.so", "redis-lock", "redis.conf.example", "README.md", "CHANGELOG.md", "LICENSE"],
                    *["BUILD", "THIRD-PARTY.txt", "THIRD-PARTY-rust-std.html"],
                    *["sbom/redis-lock-module.cdx.json", "sbom/redis-lock.cdx.json"],
                    *["completions/_redis-lock", "completions/redis-lock.bash", "completions/redis-lock.fish"],
                    *[f"man/redis-lock{page}.1" for page in PAGES],
                ]
                self.assertEqual(files, {f"{top}/{file}" for file in expected})
                for entry in archive:
                    self.assertTrue(entry.isfile() or entry.isdir(), entry.name)
                    self.assertEqual((entry.uid, entry.gid, entry.uname, entry.gname), (0, 0, "", ""), entry.name)
                    is_program = entry.isdir() or Path(entry.name).name in ("redis-lock", "libredis_lock.so")
                    self.assertEqual(oct(entry.mode), oct(0o755 if is_program else 0o644), entry.name)
                self.assertEqual(len({entry.mtime for entry in archive}), 1, "one time for all")

    def test_no_path_of_the_machine_that_built_is_in_an_archive(self) -> None:
        # `make test` packages a CLI that is not a release build (scripts/build); `make test-dist` packages the release.
        no_release = ["redis-lock"] if os.environ.get("CLI_BUILD") == "quick" else []
        for path in self.archives():
            with tarfile.open(path) as archive:
                files = [entry for entry in archive if entry.isfile() and Path(entry.name).name not in no_release]
                self.assertIn("libredis_lock.so", [Path(entry.name).name for entry in files])
                for file in files:
                    content = read(archive, file.name)
                    for machine in machine_paths():
                        # Not assertNotIn, which would print the whole file.
                        self.assertFalse(machine in content, f"{machine.decode()} is in {path.name}: {file.name}")

    def test_an_archive_is_of_its_platform(self) -> None:
        machines = {"x86_64": 0x3E, "aarch64": 0xB7}
        for path in self.archives():
            with self.subTest(path.name), tarfile.open(path) as archive:
                top = path.name[: -len(".tar.gz")]
                for name in ["libredis_lock.so", "redis-lock"]:
                    header = read(archive, f"{top}/{name}")[:20]
                    self.assertEqual(header[:4], b"\x7fELF")
                    [machine] = [number for name, number in machines.items() if f"-{name}-" in path.name]
                    self.assertEqual(int.from_bytes(header[18:20], "little"), machine)

    def test_every_crate_of_the_bill_of_materials_has_its_licence_in_the_archive(self) -> None:
        for path in self.archives():
            with self.subTest(path.name), tarfile.open(path) as archive:
                top = path.name[: -len(".tar.gz")]
                texts = read(archive, f"{top}/THIRD-PARTY.txt").decode()
                listed, _, _ = texts.partition("-" * 80)
                for program in ["redis-lock-module", "redis-lock"]:
                    bill: Any = json.loads(read(archive, f"{top}/sbom/{program}.cdx.json"))
                    crates = [part for part in bill["components"] if "purl" in part]
                    self.assertGreater(len(crates), 30, program)
                    for crate in crates:
                        name = f"{crate['name']} {crate['version']}"
                        self.assertRegex(listed, rf"(?m)^{re.escape(name)} ", program)
                        self.assertGreaterEqual(texts.count(name), 2, f"{name}: no text of its licence")
                        self.assertEqual(len(crate["hashes"][0]["content"]), 64, name)

    def test_from_the_archive_alone_to_the_first_lock_within_a_minute(self) -> None:
        """Runs the commands of the archive's README on a free port, and the same with its CLI."""
        [machine] = [line[6:] for line in run("rustc", "-vV").splitlines() if line.startswith("host: ")]
        path = one(self, f"redis-lock-*-{machine}.tar.gz")
        server = os.environ.get("REDIS_SERVER") or "redis-server"
        if not shutil.which(server) or not shutil.which("redis-cli"):
            self.skipTest("no redis-server or no redis-cli here")
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            subprocess.run(["tar", "-xzf", str(path)], cwd=folder, check=True)
            here = Path(folder) / path.name[: -len(".tar.gz")]
            port = free_port()
            readme = (here / "README.md").read_text()
            chapter = readme.split("## The first lock")[1].split("\n## ")[0]
            start, acquire = (line.strip() for line in chapter.splitlines() if line.startswith("    "))
            self.assertTrue(start.startswith("redis-server ") and acquire.startswith("redis-cli "), chapter)

            def lines(command: str) -> str:
                command = command.replace("6379", str(port)).replace("redis-server", server, 1)
                return run("sh", "-euc", command, cwd=here)

            lines(start)
            try:
                until(lambda: answers(port), "the server answers")
                token, fence = lines(acquire).split()
                took = time.monotonic() - began
                self.assertLess(took, 60)
                self.assertGreater(int(fence), 0)
                self.assertIn(token, run("./redis-lock", "-p", str(port), "info", "tickets:1", cwd=here))
                ran = run("./redis-lock", "-p", str(port), "run", "other", "--", "echo", "under the lock", cwd=here)
                self.assertEqual(ran, "under the lock\n")
            finally:
                run("redis-cli", "-p", str(port), "SHUTDOWN", "NOSAVE")
            print(f"the first lock after {took:.1f} s", flush=True)


class Debs(unittest.TestCase):
    def test_a_package_of_each_platform_names_its_processor_and_the_oldest_glibc_that_serves(self) -> None:
        if not shutil.which("dpkg-deb"):
            self.skipTest("no dpkg-deb here")
        architectures = {"x86_64": "amd64", "aarch64": "arm64"}
        for archive in found(self, "redis-lock-*-*-linux-gnu.tar.gz"):
            top = archive.name[: -len(".tar.gz")]
            [architecture] = [deb for name, deb in architectures.items() if f"-{name}-" in top]
            with tarfile.open(archive) as opened:
                built = read(opened, f"{top}/BUILD").decode()
            for package, binary in [("redis-lock-module", "libredis_lock.so"), ("redis-lock", "redis-lock")]:
                path = one(self, f"{package}_*_{architecture}.deb")
                with self.subTest(path.name):
                    self.assertEqual(run("dpkg-deb", "-f", str(path), "Architecture").strip(), architecture)
                    depends = run("dpkg-deb", "-f", str(path), "Depends")
                    glibc = [version(one) for one in re.findall(r"libc6 \(>= ([0-9.]+)\)", depends)]
                    [asked] = re.findall(rf"(?m)^{binary}: .*glibc ([0-9.]+)$", built)
                    self.assertGreaterEqual(max(glibc), version(asked), f"{depends}; {built}")


class Clients(unittest.TestCase):
    def test_the_wheel_has_the_package_its_types_and_its_licence_and_no_more(self) -> None:
        path = one(self, "*.whl")
        with zipfile.ZipFile(path) as wheel:
            info = path.name.split("-py3")[0] + ".dist-info"
            package = {f"redislock/{file}" for file in sources("clients/python/src/redislock")}
            self.assertIn("redislock/py.typed", package)
            expected = {f"{info}/{file}" for file in ["METADATA", "WHEEL", "RECORD", "licenses/LICENSE"]}
            self.assertEqual(set(wheel.namelist()), package | expected)
            self.assertEqual(wheel.read(f"{info}/licenses/LICENSE"), LICENCE)
            metadata = wheel.read(f"{info}/METADATA").decode()
            for line in ["Name: redis-lock-client", "License-Expression: MIT", "Requires-Dist: redis>=5.0"]:
                self.assertIn(f"\n{line}\n", metadata)
            self.assertIn((ROOT / "clients/python/README.md").read_text().strip(), metadata)

    def test_the_source_distribution_of_python_makes_the_same_and_has_no_tests(self) -> None:
        path = one(self, "redis_lock_client-*.tar.gz")
        top = path.name[: -len(".tar.gz")]
        files = {f"src/redislock/{file}" for file in sources("clients/python/src/redislock")}
        # hatchling includes .gitignore, to exclude the same files when it builds the wheel.
        files |= {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO", ".gitignore"}
        self.assertEqual(entries(path), {f"{top}/{file}" for file in files})

    def test_the_archive_of_npm_has_the_compiled_files_with_their_types_and_no_more(self) -> None:
        path = one(self, "*.tgz")
        with tarfile.open(path) as archive:
            compiled = {file[: -len(".ts")] for file in sources("clients/node/src")}
            files = {f"dist/{file}{kind}" for file in compiled for kind in (".js", ".d.ts")}
            files |= {"package.json", "README.md", "LICENSE"}
            self.assertEqual({entry.name for entry in archive}, {f"package/{file}" for file in files})
            self.assertEqual(read(archive, "package/LICENSE"), LICENCE)
            package: Any = json.loads(read(archive, "package/package.json"))
            self.assertEqual((package["name"], package["license"]), ("redis-lock-client", "MIT"))
            self.assertNotIn("dependencies", package)
            for file in [package["main"], package["types"], *package["exports"]["."].values()]:
                self.assertIn(os.path.normpath(f"package/{file}"), archive.getnames())

    def test_a_crate_has_its_sources_its_licence_and_no_tests(self) -> None:
        for name, folder in [("redis-lock-client", "clients/rust"), ("redis-lock-cli", "cli")]:
            path = one(self, f"{name}-*.crate")
            with self.subTest(name), tarfile.open(path) as archive:
                top = path.name[: -len(".crate")]
                files = {f"src/{file}" for file in sources(f"{folder}/src")}
                files |= {"Cargo.toml", "Cargo.toml.orig", "Cargo.lock", "README.md", "LICENSE"}
                # The commit ID, if git is available.
                files |= {name[len(top) + 1 :] for name in archive.getnames() if name.endswith("/.cargo_vcs_info.json")}
                self.assertEqual(entries(path), {f"{top}/{file}" for file in files})
                self.assertEqual(read(archive, f"{top}/LICENSE"), LICENCE)
                manifest = read(archive, f"{top}/Cargo.toml").decode()
                for field in ["description", "license", "readme", "keywords", "categories", "rust-version"]:
                    self.assertRegex(manifest, rf"(?m)^{field} = ")
                self.assertNotIn("publish = false", manifest)
                # A path dependency without a version is not in a registry.
                self.assertNotIn("path = \"..", manifest)

    def test_go_get_takes_the_modules_and_they_have_no_tests_of_the_repository(self) -> None:
        go = next((go for go in [shutil.which("go"), *GO_OF_SETUP] if go and os.access(go, os.X_OK)), None)
        if go is None:
            self.skipTest("there is no Go")
        name = "github.com/redis-lock/redis-lock/clients/go"
        with tarfile.open(one(self, "redislock-go-*.tar")) as archive, tempfile.TemporaryDirectory() as folder:
            archive.extractall(folder)
            page = (ROOT / "clients/go/README.md").read_text()
            program = re.search(r"^```go\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
            assert program
            Path(folder, "main.go").write_text(program[1])
            Path(folder, "go.mod").write_text("module readers\n\ngo 1.24.0\n")
            [at] = {entry.split("@v/")[1][: -len(".zip")] for entry in archive.getnames() if entry.endswith(".zip")}
            proxies = subprocess.run([go, "env", "GOPROXY"], capture_output=True, text=True).stdout.strip()
            environment = {**os.environ, "GOTOOLCHAIN": "local", "GOPROXY": f"file://{folder},{proxies}",
                           "GONOSUMDB": f"{name},{name}/*", "GOFLAGS": "-mod=mod -modcacherw",
                           "GOMODCACHE": f"{folder}/cache"}
            for words in [["get", name, f"{name}/gocron", f"{name}/opentelemetry"], ["build", "-o", "program", "."]]:
                done = subprocess.run([go, *words], cwd=folder, env=environment, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
            with zipfile.ZipFile(Path(folder, name, "@v", f"{at}.zip")) as core:
                files = {entry.split("@", 1)[1].split("/", 1)[1] for entry in core.namelist()}
                self.assertEqual(core.read(f"{name}@{at}/LICENSE"), LICENCE)
            self.assertIn("lock.go", files)
            self.assertFalse([file for file in files if file.startswith(("tests/", "gocron/", "benches/"))], files)

    def test_what_maven_takes_has_its_classes_its_licence_and_all_that_a_publication_asks_for(self) -> None:
        parent = one(self, "redis-lock-client-parent-*.pom")
        for field in ["name", "description", "url", "licenses", "developers", "scm"]:
            told = ElementTree.parse(parent).find(f"{{http://maven.apache.org/POM/4.0.0}}{field}")
            self.assertTrue(told is not None and (len(told) or (told.text or "").strip()), field)
        # A reverse domain that the repository's owner controls, as Maven Central requires.
        self.assertEqual(ElementTree.parse(parent).findtext("{http://maven.apache.org/POM/4.0.0}groupId"),
                         "io.github.redis-lock")
        modules = {"redis-lock-client": "redislock", "redis-lock-shedlock": "redislock.shedlock",
                   "redis-lock-spring-boot-starter": "redislock.spring"}
        for name, module in modules.items():
            number = parent.stem.rsplit("-", 1)[1]
            pom = (DIST / f"{name}-{number}.pom").read_text()
            self.assertIn(f"<artifactId>{name}</artifactId>", pom)
            self.assertIn("<name>", pom)
            self.assertIn("<description>", pom)
            files = {}
            for kind in ["", "-sources", "-javadoc"]:
                with zipfile.ZipFile(DIST / f"{name}-{number}{kind}.jar") as jar:
                    files[kind] = set(jar.namelist())
                    if not kind:
                        self.assertEqual(jar.read("META-INF/LICENSE"), LICENCE)
                        manifest = jar.read("META-INF/MANIFEST.MF").decode()
                        self.assertIn(f"Automatic-Module-Name: {module}\r\n", manifest)
            self.assertFalse([file for file in files[""] if not file.startswith(("redislock/", "META-INF/"))])
            self.assertFalse([file for file in files[""] if "Test" in file or "junit" in file])
            classes = {file for file in files[""] if file.endswith(".class") and "$" not in file}
            self.assertTrue(classes)
            self.assertEqual({file[: -len("class")] + "java" for file in classes},
                             {file for file in files["-sources"] if file.endswith(".java")})
            self.assertIn("index.html", files["-javadoc"])


def version(text: str) -> List[int]:
    return [int(part) for part in text.split(".")]


def entries(path: Path) -> Set[str]:
    with tarfile.open(path) as archive:
        return {entry.name for entry in archive}


def read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file, name
    return file.read()


def run(*words: str, cwd: Path | None = None) -> str:
    return subprocess.run(words, cwd=cwd, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as connecting:
        return connecting.connect_ex(("127.0.0.1", port)) == 0


def until(state: Any, what: str) -> None:
    end = time.monotonic() + 60
    while not state():
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.01)


if __name__ == "__main__":
    unittest.main(verbosity=2)
