"""The users of docs/acl.md have the permissions that they need: each client and the command line as worker, and the
command line's queries as operator and as dashboard. ACL LOG stays empty, where the server records every refusal, even
one that a client tolerates. On the server under test, and on the installed ones of scripts/servers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import servers
from programs import GO, NODE, ROOT, TARGET, Folder, compiled_java, ended, kill
from servers import Server, until

FILES = ROOT / "contrib/acl"

PYTHON = """
import sys, threading, redis, redislock
URL = f"redis://worker:worker-secret@127.0.0.1:{sys.argv[1]}/"
r = redis.Redis.from_url(URL, protocol=int(sys.argv[2]))
with redislock.Lock(r, "lock:1", timeout=30) as lock:
    assert lock.locked() and lock.owned()
    lock.extend(5)
    lock.reacquire()
    lock.exec("SET", "account:1", "100")
    waiter = redislock.Lock(r, "lock:1", timeout=30, blocking_timeout=60)
    waiting = threading.Thread(target=waiter.acquire)
    waiting.start()
    print("waits", flush=True)
    sys.stdin.readline()
waiting.join()
for lock in [redislock.RLock(r, "lock:2"), redislock.RWLock(r, "lock:3").write(), redislock.RWLock(r, "lock:4").read(),
             redislock.Semaphore(r, "lock:5", 2, slot=True), redislock.MultiLock(r, ["lock:6", "lock:7"]),
             redislock.Lock(r, "lock:8", timeout=30, session=True), redislock.Lock(r, "lock:9", timeout=30, mixed=True),
             redislock.Lock(r, "lock:10", timeout=0.3, auto_renew=True)]:
    with lock:
        assert lock.locked()
        if hasattr(lock, "info"):
            lock.info()
assert redislock.once(r, "lock:11", lambda: r.get("account:2"), lambda: r.set("account:2", "1"))
replicated = redislock.Lock(r, "lock:12", timeout=30, replicas=1, replica_timeout=1)
for lock, error in [(redislock.Lock(r, "lock:string", timeout=30), redislock.WrongTypeError),
                    (replicated, redislock.NotReplicatedError)]:
    try:
        lock.acquire()
        raise SystemExit(f"no {error}")
    except error:
        pass
print("all done")
"""

ASYNCIO = """
import asyncio, sys, redis.asyncio, redislock.asyncio as redislock
URL = f"redis://worker:worker-secret@127.0.0.1:{sys.argv[1]}/"
async def main():
    async with redis.asyncio.Redis.from_url(URL, protocol=int(sys.argv[2])) as r:
        async with redislock.Lock(r, "lock:1", timeout=30, session=True) as lock:
            assert await lock.locked() and await lock.owned()
            waiter = redislock.Lock(r, "lock:1", timeout=30, blocking_timeout=60)
            waiting = asyncio.create_task(waiter.acquire())
            print("waits", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            waiting.cancel()
            await asyncio.wait([waiting])
        async with redislock.Semaphore(r, "lock:5", 2, slot=True), redislock.MultiLock(r, ["lock:6", "lock:7"]):
            pass
        async def read(): return await r.get("account:2")
        async def make(): return await r.set("account:2", "1")
        assert await redislock.once(r, "lock:11", read, make)
asyncio.run(main())
print("all done")
"""

NODE_PROGRAM = """
import assert from "node:assert";
import { Lock, MultiLock, RLock, RWLock, Semaphore } from "redis-lock-client";
const [port, protocol] = process.argv.slice(2).map(Number);
const user = { username: "worker", password: "worker-secret" };
CONNECT
const hold = await new Lock(redis, "lock:1").acquire();
assert(await hold.owned());
await hold.extend(5000);
await hold.exec("SET", "account:1", "100");
const waiting = new Lock(redis, "lock:1").using(async () => undefined);
console.log("waits");
await new Promise((resolve) => process.stdin.once("data", resolve));
await hold.release();
await waiting;
const locks = [new RLock(redis, "lock:2"), new RWLock(redis, "lock:3").write, new RWLock(redis, "lock:4").read,
  new Semaphore(redis, "lock:5", 2, { slot: true }), new MultiLock(redis, ["lock:6", "lock:7"]),
  new Lock(redis, "lock:8", { session: true }), new Lock(redis, "lock:9", { mixed: true }),
  new Lock(redis, "lock:10", { lease: 300, autoRenew: true })];
for (const lock of locks) {
  await lock.using(async () => assert(await lock.locked()));
  if (lock.info) await lock.info();
}
const made = await new Lock(redis, "lock:11").once(() => redis.get("account:2"), () => redis.set("account:2", "1"));
assert(made);
await assert.rejects(new Lock(redis, "lock:string").acquire(), { name: "WrongTypeError" });
const replicated = new Lock(redis, "lock:12", { replicas: 1, replicaTimeout: 1 });
await assert.rejects(replicated.acquire(), { name: "NotReplicatedError" });
console.log("all done");
process.exit();
"""
CONNECT = {
    "ioredis": """import { Redis } from "ioredis";
const redis = new Redis({ port, ...user });""",
    "node-redis": """import { createClient } from "redis";
const redis = await createClient({ socket: { port }, RESP: protocol, ...user }).connect();""",
}


def programs() -> Iterator[str]:
    """The server programs under test."""
    yield servers.SERVER
    tool = [str(ROOT / "scripts/servers"), "--list", "redis:8.2", "valkey:9.1"]
    for line in subprocess.run(tool, text=True, capture_output=True).stdout.splitlines():
        yield line.split(" ")[2]


@pytest.fixture(params=sorted(set(programs())), ids=lambda path: Path(path).parent.parent.name or path)
def server(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(servers, "SERVER", request.param)
    server = Server()
    has_categories = "lock" in server.ask("ACL", "CAT")
    for user in users("users.acl" if has_categories else "users-by-name.acl"):
        assert server.ask("ACL", "SETUSER", *user.split(" ")[1:])
    server.ask("SET", "lock:string", "no lock")
    yield server
    server.stop()


def users(file: str) -> List[str]:
    return (FILES / file).read_text().splitlines()


def refused(server: Server) -> List[str]:
    entries = [servers.fields(entry) for entry in server.ask("ACL", "LOG")]
    return [f"{entry['username']}: {entry['object']}" for entry in entries]


def plays(server: Server, words: List[str]) -> None:
    """A program, one of whose requests waits for a line."""
    pipe = subprocess.PIPE
    running = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, bufsize=1,
                               start_new_session=True)
    try:
        until(lambda: server.waiters("lock:1") or running.poll() is not None, "a request waits")
        printed, _ = running.communicate("go\n", timeout=60)
    finally:
        kill(running)
    # A busy machine may answer late, which causes a warning.
    assert running.returncode == 0 and printed.endswith("waits\nall done\n") and "NOPERM" not in printed, printed
    assert refused(server) == []


@pytest.mark.parametrize("protocol", ["2", "3"])
@pytest.mark.parametrize("program", [PYTHON, ASYNCIO], ids=["sync", "asyncio"])
def test_the_python_client_as_worker(server: Server, program: str, protocol: str) -> None:
    plays(server, [sys.executable, "-c", program, str(server.port), protocol])


@pytest.mark.parametrize(("library", "protocol"), [("ioredis", "2"), ("node-redis", "2"), ("node-redis", "3")])
def test_the_node_client_as_worker(server: Server, library: str, protocol: str) -> None:
    file = ROOT / "clients/node/build" / f"worker-{library}-{server.port}.mjs"
    file.write_text(NODE_PROGRAM.replace("CONNECT", CONNECT[library]))
    plays(server, [NODE, str(file), str(server.port), protocol])


def test_the_rust_client_as_worker(server: Server, tmp_path: Path) -> None:
    server.ask("ACL", "SETUSER", "worker", "~gpus:*", "~scheduler")
    folder = Folder(tmp_path, server.port)
    folder.script("train", "true")
    url = f"redis://worker:worker-secret@127.0.0.1:{server.port}/"
    for title in ["One worker per GPU", "Find the leader"]:
        status, printed = ended(folder.start(title, "rust", REDIS_URL=url))
        assert status == 0, printed
    assert refused(server) == []


@pytest.mark.parametrize("protocol", ["2", "3"])
def test_the_go_client_as_worker(server: Server, protocol: str) -> None:
    plays(server, [go_worker(), str(server.port), protocol])


def go_worker() -> str:
    if not (GO / "bin/worker").exists():
        pytest.skip("there is no Go")
    return str(GO / "bin/worker")


@pytest.mark.parametrize("library", ["lettuce", "jedis"])
def test_the_java_client_as_worker(server: Server, library: str) -> None:
    plays(server, [*java_worker(), str(server.port), library])


def java_worker() -> List[str]:
    if not (ROOT / "clients/java/core/target/classpath").exists():
        pytest.skip("there is no Java")
    return compiled_java("Worker")


CLUSTERS = {
    "go": "",
    "lettuce": "",
    "jedis": "",
    "python": """
import sys, redis, redislock
r = redis.RedisCluster(host="127.0.0.1", port=int(sys.argv[1]), username="worker", password="worker-secret")
for key in "lock:1", "lock:2", "lock:{3}":
    with redislock.Lock(r, key, timeout=30) as lock:
        assert lock.locked()
with redislock.Lock(r, "lock:held", timeout=30, blocking_timeout=60):
    print("all done")
""",
    "ioredis": """import { Cluster } from "ioredis";
const redisOptions = { username: "worker", password: "worker-secret" };
const redis = new Cluster([{ port: Number(process.argv[2]) }], { redisOptions });
""",
    "node-redis": """import { createCluster } from "redis";
const defaults = { username: "worker", password: "worker-secret" };
const rootNodes = [{ socket: { port: Number(process.argv[2]) } }];
const redis = await createCluster({ rootNodes, defaults }).connect();
""",
}
IN_A_CLUSTER = """import { Lock } from "redis-lock-client";
for (const key of ["lock:1", "lock:2", "lock:{3}"]) await new Lock(redis, key).using(async () => undefined);
await new Lock(redis, "lock:held").using(async () => undefined);
console.log("all done");
process.exit();
"""


@pytest.mark.parametrize("library", CLUSTERS)
def test_the_clients_as_worker_of_a_cluster(library: str) -> None:
    cluster = servers.Cluster()
    try:
        for node in cluster.nodes:
            for user in users("users.acl" if "lock" in node.ask("ACL", "CAT") else "users-by-name.acl"):
                assert node.ask("ACL", "SETUSER", *user.split(" ")[1:])
        first = cluster.nodes[0]
        program, words = CLUSTERS[library], [sys.executable, "-c", CLUSTERS[library]]
        mode = "cluster"
        if library == "go":
            words = [go_worker()]
        elif library in ("lettuce", "jedis"):
            words, mode = java_worker(), f"{library}-cluster"
        elif library != "python":
            file = ROOT / "clients/node/build" / f"worker-cluster-{library}-{first.port}.mjs"
            file.write_text(program + IN_A_CLUSTER)
            words = [NODE, str(file)]
        # A waiting request: in Node it needs the channel of its slot.
        owner = cluster.nodes[first.ask("CLUSTER", "KEYSLOT", "lock:held") // 8192]
        owner.ask("LOCK.ACQUIRE", "lock:held", "other", "PX", 1500)
        running = subprocess.run([*words, str(first.port), mode], text=True, capture_output=True, timeout=60)
        assert (running.returncode, running.stdout) == (0, "all done\n"), running
        assert [refused(node) for node in cluster.nodes] == [[]] * len(cluster.nodes)
    finally:
        cluster.stop()


def redis_lock(server: Server, user: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    url = f"redis://{user}:{user}-secret@127.0.0.1:{server.port}/"
    words = [str(TARGET / "quick/redis-lock"), "-u", url, *arguments]
    return subprocess.run(words, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)


RUNS = [[], ["--session"], ["--shared"], ["--limit", "2"], ["--limit", "2", "--slot"], ["--once"], ["--at-least", "1s"]]


def test_the_command_line_runs_as_worker(server: Server) -> None:
    for number, options in enumerate(RUNS):
        ran = redis_lock(server, "worker", "run", "-v", *options, f"lock:{number}", "--", "echo", "it ran")
        assert (ran.returncode, ran.stdout) == (0, "it ran\n"), ran
    ran = redis_lock(server, "worker", "run", "lock:a", "lock:b", "--", "echo", "it ran")
    assert (ran.returncode, ran.stdout) == (0, "it ran\n"), ran
    server.ask("LOCK.ACQUIRE", "lock:held", "other")
    for options in (["--no-wait"], ["--wait", "0.1s"]):
        ran = redis_lock(server, "worker", "run", "-v", *options, "lock:held", "--", "false")
        assert ran.returncode == 1 and "NOPERM" not in ran.stderr, ran
    assert refused(server) == []


LOOKS: Dict[str, List[List[str]]] = {
    "operator": [["top", "--once"], ["graph"], ["graph", "lock:1"], ["ls"], ["info", "lock:1"], ["waiters", "lock:1"],
                 ["log"], ["cancel", "lock:1", "waiter"], ["break", "lock:1"]],
    "dashboard": [["top", "--once"], ["graph"], ["graph", "lock:1"], ["ls"], ["info", "lock:1"], ["waiters", "lock:1"]],
}


@pytest.mark.parametrize("user", LOOKS)
def test_the_command_line_inspects_and_intervenes(server: Server, user: str) -> None:
    server.ask("LOCK.ACQUIRE", "lock:1", "holder")
    waiting = redis_lock_waits(server)
    try:
        for arguments in LOOKS[user]:
            ran = redis_lock(server, user, *arguments)
            assert ran.returncode == 0 and "NOPERM" not in ran.stderr, ran
        assert refused(server) == []
    finally:
        kill(waiting)


def redis_lock_waits(server: Server) -> "subprocess.Popen[str]":
    """A request of the token `waiter`."""
    words = ["redis-cli", "-p", str(server.port), "LOCK.ACQUIRE", "lock:1", "waiter", "BLOCK", "0"]
    pipe = subprocess.PIPE
    waiting = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    until(lambda: server.waiters("lock:1"), "it waits")
    return waiting


def test_the_runbook_is_for_the_operator(server: Server) -> None:
    """What docs/alerts.md and docs/runbook.md send by redis-cli."""
    text = (ROOT / "docs/alerts.md").read_text() + (ROOT / "docs/runbook.md").read_text()
    sent = r"LOCK\.(?:TOP|\w+ [^`…]*)|INFO \w+|CLIENT (?:LIST|KILL)[^`…]*"
    sent += "|LATENCY LATEST|MODULE LIST|CONFIG GET [^`…]*"
    lines = set(re.findall(f"`({sent})`", text))
    assert len(lines) > 10, lines
    for line in lines:
        reply = server.ask("ACL", "DRYRUN", "operator", *line.replace("key", "lock:1").split(" "))
        assert reply == "OK", f"{line}: {reply}"


def test_a_server_warns_of_no_rule(server: Server) -> None:
    log = Path(server.dir, "log").read_text()
    assert "misuse" not in log and "Deprecat" not in log, log
