"""The programs of docs/tls.md, and the command line, over TLS, with the certificates and server settings of the page;
only the host, the port and the folder differ."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List

import pytest
from programs import GO, JAVA, NODE, ROOT, TARGET, java_path, programs
from servers import SERVER, Server, free_port

PAGE = ROOT / "docs/tls.md"
TEXT = PAGE.read_text()
HOST, PORT, FOLDER = "locks.example", "6379", "/etc/redis/tls/"


class Tls:
    """A server that accepts only TLS."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        [commands] = re.findall(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
        made = commands.replace(f"DNS:{HOST}", "IP:127.0.0.1")
        subprocess.run(["sh", "-euc", made], cwd=folder, check=True, capture_output=True)
        [lines] = re.findall(r"^```tls-server\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
        options = self.here(lines).replace("port 0\n", "").split()
        options = [f"--{word}" if word.startswith("tls-") else word for word in options]
        # The test inspects the server over the other port.
        self.server = Server(*options)

    def here(self, text: str) -> str:
        return text.replace(HOST, "127.0.0.1").replace(PORT, str(self.port)).replace(FOLDER, f"{self.folder}/")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    try:
        tls = Tls(tmp_path_factory.mktemp("tls"))
    except AssertionError as error:
        if "Bad directive" in str(error) or "TLS support" in str(error):
            pytest.skip(f"{SERVER} was built without TLS")
        raise
    yield tls
    tls.server.stop()


def plays(words: List[str], tls: Tls) -> None:
    before = tls.server.ask("LOCK.ACQUIRE", "before", "test")[1]
    ran = subprocess.run(words, text=True, capture_output=True, timeout=120)
    assert ran.returncode == 0, ran
    printed = re.fullmatch(r"making the report under fence (\d+)\n", ran.stdout)
    assert printed and int(printed[1]) > before, ran


def program(language: str, tls: Tls) -> str:
    return tls.here(programs(PAGE)["In a program", language])


def test_python(tls: Tls) -> None:
    plays([sys.executable, "-c", program("python", tls)], tls)


@pytest.mark.parametrize("library", ["ioredis", "node-redis"])
def test_node(tls: Tls, library: str) -> None:
    text = program("js", tls)
    if library == "node-redis":
        [client] = re.findall(r"`(createClient\(.*\))`", TEXT)
        text = re.sub(r"const redis = .*", f"const redis = await {tls.here(client)}.connect();", text)
        text = text.replace('{ Redis } from "ioredis"', '{ createClient } from "redis"')
        text = text.replace("redis.disconnect()", "redis.destroy()")
    file = ROOT / "clients/node/build" / f"tls-{library}-{tls.port}.mjs"
    file.write_text(text)
    plays([NODE, str(file)], tls)


def test_go(tls: Tls) -> None:
    if not (GO / "bin").exists():
        pytest.skip("there is no Go")
    (GO / "tls").mkdir(exist_ok=True)
    (GO / "tls/main.go").write_text(program("go", tls))
    subprocess.run(["go", "build", "-o", "bin/tls", "./tls"], cwd=GO, check=True, timeout=300)
    plays([str(GO / "bin/tls")], tls)


def test_java(tls: Tls) -> None:
    if not (ROOT / "clients/java/core/target/classpath").exists():
        pytest.skip("there is no Java")
    file = tls.folder / "Report.java"
    file.write_text(program("java", tls))
    plays([*JAVA, "-cp", java_path(), str(file)], tls)


def test_jedis(tls: Tls) -> None:
    """With a trust store, as on the page."""
    if shutil.which("keytool") is None or not (ROOT / "clients/java/core/target/classpath").exists():
        pytest.skip("there is no Java, or no keytool")
    store = tls.folder / "trusted.p12"
    keytool = f"keytool -importcert -noprompt -alias ours -storepass changeit -storetype PKCS12 -keystore {store}"
    subprocess.run([*keytool.split(), "-file", str(tls.folder / "ca.crt")], check=True, capture_output=True)
    (tls.folder / "Jedis.java").write_text(f"""
import redis.clients.jedis.*;
import redislock.RedisLocks;
class Jedis {{
  public static void main(String[] arguments) throws Exception {{
    var config = DefaultJedisClientConfig.builder().ssl(true).build();
    var redis = RedisClient.builder().hostAndPort("127.0.0.1", {tls.port}).clientConfig(config).build();
    try (var locks = RedisLocks.over(redis); var hold = locks.mutex("report").acquire()) {{
      System.out.println("making the report under fence " + hold.fence());
    }}
  }}
}}
""")
    options = [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStorePassword=changeit"]
    plays([*JAVA, *options, "-cp", java_path(), str(tls.folder / "Jedis.java")], tls)


def test_the_tools_of_operators(tls: Tls) -> None:
    tls.server.ask("LOCK.ACQUIRE", "held", "holder")
    [lines] = re.findall(r"## For operators\n\n(.*?)\n\n", TEXT, re.DOTALL)
    for line in lines.split("\n"):
        tool, *options = tls.here(line).split()
        program = str(TARGET / "quick/redis-lock") if tool == "redis-lock" else tool
        ran = subprocess.run([program, "-p", str(tls.port), *options], text=True, capture_output=True, timeout=60)
        assert ran.returncode == 0 and "rror" not in ran.stdout + ran.stderr, ran
