"""Runs a worker for each client under faults and checks the results: `faults.py [--seconds N] [--seed N]
[--report FILE] [worker …]`. README.md says what is done and what is checked."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Awaitable, Callable, Dict, List, Optional, Set, Tuple

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODULE = os.environ.get("REDIS_LOCK_MODULE") or str(ROOT / "target/release/libredis_lock.so")
SERVER = os.environ.get("REDIS_SERVER") or "redis-server"
NODE = os.environ.get("NODE") or "node"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")

WORKERS: Dict[str, List[str]] = {
    "python-sync": [sys.executable, str(HERE / "worker.py"), "sync"],
    "python-asyncio": [sys.executable, str(HERE / "worker.py"), "asyncio"],
    "ioredis": [NODE, str(HERE.parent / "node/build/tests/faults_worker.js"), "ioredis"],
    "node-redis": [NODE, str(HERE.parent / "node/build/tests/faults_worker.js"), "node-redis"],
    # These two need Node 20.
    "ioredis-6": [NODE, str(HERE.parent / "node/build/tests/faults_worker.js"), "ioredis 6"],
    "node-redis-6": [NODE, str(HERE.parent / "node/build/tests/faults_worker.js"), "node-redis 6"],
    "rust": [str(TARGET / "quick/examples/faults_worker")],
    "go": [str(TARGET / "go/faultsworker")],
    "lettuce": [str(HERE.parent / "java/faults"), "lettuce"],
    "jedis": [str(HERE.parent / "java/faults"), "jedis"],
}

# The limits that conformance.md guarantees, in milliseconds.
ANSWERS_WITHIN = 2000
LET_GO_WITHIN = 1000
# Without waiting: two attempts of 5 s, the pause between them, and the cleanup.
ANSWERS_AT_ONCE_WITHIN = 12_000
# Repeated for 10 s, and the last attempt may take 5 s.
RELEASES_WITHIN = 15_000
# When the network hides the end of a session: the client's check after a third of the lease (1,500 ms), which may take
# 5 s.
SESSION_KNOWS_WITHIN = 5500
# redis-py connects by the settings of its client: here one attempt of 2 s for each of the two parts.
CONNECTS_WITHIN = {"python-sync": 4000, "python-asyncio": 4000}
# An allowance for a busy machine, on top of all that.
BUSY = 1500


class Connection:
    """One connection through the proxy: two pumps that can be slowed down, stopped, or ended."""

    def __init__(self, client: Any, server: Any) -> None:
        self.ends = (client, server)
        self.delay_s = 0.0
        self.passes = asyncio.Event()
        self.passes.set()

    async def run(self) -> None:
        (client_in, client_out), (server_in, server_out) = self.ends
        pumps = [
            asyncio.ensure_future(self._pump(client_in, server_out)),
            asyncio.ensure_future(self._pump(server_in, client_out)),
        ]
        try:
            await asyncio.gather(*pumps)
        except (OSError, RuntimeError, asyncio.CancelledError):
            pass  # Cut, or written to after it was half-closed.
        finally:
            for pump in pumps:
                pump.cancel()
            self.cut()

    async def _pump(self, source: Any, target: Any) -> None:
        while True:
            data = await source.read(65536)
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self.passes.wait()
            if not data:
                # One side has ended; the other one may still read.
                target.write_eof()
                return
            target.write(data)
            await target.drain()

    def cut(self) -> None:
        for _, writer in self.ends:
            writer.close()

    def half_close(self, end: int) -> None:
        writer = self.ends[end][1]
        if not writer.is_closing() and writer.can_write_eof():
            with contextlib.suppress(OSError):
                writer.write_eof()


class Proxy:
    """The address that one worker connects to."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.connections: Set[Connection] = set()
        self._tasks: Set[Any] = set()
        self.is_silent = False
        self.delay_s = 0.0

    async def start(self) -> "Proxy":
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._listening.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader: Any, writer: Any) -> None:
        self._tasks.add(asyncio.current_task())
        try:
            server = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.close()
            return
        connection = Connection((reader, writer), server)
        connection.delay_s = self.delay_s
        if self.is_silent:
            connection.passes.clear()
        self.connections.add(connection)
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            self._tasks.discard(asyncio.current_task())

    def silence(self) -> None:
        self.is_silent = True
        for connection in self.connections:
            connection.passes.clear()

    def slow_down(self, delay_s: float) -> None:
        self.delay_s = delay_s
        for connection in self.connections:
            connection.delay_s = delay_s

    def heal(self) -> None:
        self.is_silent = False
        for connection in self.connections:
            connection.passes.set()
        self.slow_down(0.0)


class Server:
    """Writes each grant to its append-only file before the reply, so that a crash loses none."""

    def __init__(self) -> None:
        self.dir = tempfile.mkdtemp(prefix="redis-lock-faults-")
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            self.port: int = listening.getsockname()[1]
        self.admin = redis.asyncio.Redis(
            port=self.port, decode_responses=True, protocol=2, socket_timeout=5, retry=Retry(NoBackoff(), 0)
        )
        self._process: Any = None

    async def start(self) -> None:
        words = [SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.dir, "--save", ""]
        words += ["--appendonly", "yes", "--appendfsync", "always", "--loadmodule", MODULE]
        with open(Path(self.dir, "log"), "ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        await eventually(self._answers, 30, "a server")

    async def _answers(self) -> bool:
        assert self._process.poll() is None, Path(self.dir, "log").read_text()
        try:
            return bool(await self.admin.ping())
        except RedisError:
            return False

    async def restart(self, down_s: float) -> None:
        self._process.kill()
        self._process.wait()
        await asyncio.sleep(down_s)
        await self.start()

    async def ask(self, *words: Any) -> Any:
        try:
            return await self.admin.execute_command(*words)
        except RedisError as error:
            return error

    async def left(self) -> List[str]:
        keys = await self.ask("KEYS", "*")
        return keys if isinstance(keys, list) else [str(keys)]

    async def stop(self) -> None:
        await self.admin.connection_pool.disconnect()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


async def eventually(state: Callable[[], Awaitable[Any]], within_s: float, what: str) -> None:
    ends = time.monotonic() + within_s
    while not await state():
        if time.monotonic() >= ends:
            raise TimeoutError(f"never came: {what}")
        await asyncio.sleep(0.05)


class World:
    def __init__(self, server: Server, proxies: List[Proxy], rng: random.Random) -> None:
        self._server, self._proxies, self._rng = server, proxies, rng
        self.faults: Counter = Counter()

    async def rage(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        faults = [self.cut, self.half_close, self.silence, self.slow_down, self.kill, self.pause, self.restart]
        while time.monotonic() < ends:
            fault = self._rng.choice(faults)
            self.faults[fault.__name__.replace("_", " ")] += 1
            await fault()
            for proxy in self._proxies:
                proxy.heal()
            await asyncio.sleep(self._rng.uniform(0.1, 1.0))
        await self._server.ask("CLIENT", "UNPAUSE")

    def _some(self) -> List[Proxy]:
        return [proxy for proxy in self._proxies if self._rng.random() < 0.6]

    async def cut(self) -> None:
        for _ in range(self._rng.randint(1, 4)):
            for proxy in self._some():
                for connection in list(proxy.connections):
                    if self._rng.random() < 0.7:
                        connection.cut()
            await asyncio.sleep(self._rng.uniform(0.0, 0.3))

    async def half_close(self) -> None:
        end = self._rng.randrange(2)
        closed = [each for proxy in self._some() for each in list(proxy.connections) if self._rng.random() < 0.5]
        for connection in closed:
            connection.half_close(end)
        await asyncio.sleep(self._rng.uniform(0.1, 1.0))
        for connection in closed:
            connection.cut()

    async def silence(self) -> None:
        for proxy in self._some():
            proxy.silence()
        await asyncio.sleep(self._rng.uniform(0.2, 4.0))

    async def slow_down(self) -> None:
        for proxy in self._some():
            proxy.slow_down(self._rng.uniform(0.01, 0.4))
        await asyncio.sleep(self._rng.uniform(0.5, 2.0))

    async def kill(self) -> None:
        for _ in range(self._rng.randint(1, 5)):
            await self._server.ask("CLIENT", "KILL", "TYPE", self._rng.choice(["normal", "pubsub"]), "SKIPME", "yes")
            await asyncio.sleep(self._rng.uniform(0.0, 0.2))

    async def pause(self) -> None:
        ms = self._rng.randint(100, 2000)
        await self._server.ask("CLIENT", "PAUSE", ms, self._rng.choice(["WRITE", "ALL"]))
        await asyncio.sleep(ms / 1000)

    async def restart(self) -> None:
        await self._server.restart(self._rng.uniform(0.0, 2.5))


class Worker:
    def __init__(self, name: str, proxy: Proxy, seed: int) -> None:
        self.name, self._proxy, self._seed = name, proxy, seed
        self.events: List[Dict[str, Any]] = []
        self.exit_code: Optional[int] = None

    async def start(self) -> None:
        words = [*WORKERS[self.name], str(self._proxy.port), str(self._seed)]
        self._process = await asyncio.create_subprocess_exec(
            *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=1 << 20
        )
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for line in self._process.stdout:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.events.append({"e": "unexpected", "what": line.decode(errors="replace")})

    async def stop(self, within_s: float) -> None:
        try:
            self._process.stdin.write(b"\n")
            await self._process.stdin.drain()
            self.exit_code = await asyncio.wait_for(self._process.wait(), within_s)
        except (OSError, asyncio.TimeoutError):
            pass
        finally:
            if self._process.returncode is None:
                self._process.kill()
            await self._reading

    def of(self, kind: str) -> List[Dict[str, Any]]:
        return [event for event in self.events if event["e"] == kind]


class Verdict:
    """The figures of one worker, and its mistakes."""

    def __init__(self, worker: Worker) -> None:
        self.name = worker.name
        self.wrong: List[str] = []
        acquires, releases = worker.of("acquire"), worker.of("release")
        self.outcomes = Counter(event["outcome"] for event in acquires)
        self.released = Counter(event["outcome"] for event in releases)
        self.holds = len(worker.of("held"))
        waited = [event for event in acquires if event["wait"] and not event["cancelled"]]
        at_once = [event for event in acquires if not event["wait"] and not event["cancelled"]]
        let_go = [event for event in acquires if event["cancelled"]]
        connecting = CONNECTS_WITHIN.get(worker.name, 0)
        self.late = self._longest(
            "an acquire answered late", [each["ended"] - each["began"] - each["wait"] for each in waited],
            ANSWERS_WITHIN + connecting,
        )
        self.at_once = self._longest(
            "an acquire that does not wait took", [each["ended"] - each["began"] for each in at_once],
            ANSWERS_AT_ONCE_WITHIN + connecting,
        )
        self.let_go = self._longest(
            "a caller that gave up was kept", [each["ended"] - each["cancelled"] for each in let_go], LET_GO_WITHIN
        )
        self.release = self._longest(
            "a release took", [each["ended"] - each["began"] for each in releases], RELEASES_WITHIN + connecting
        )
        self.wrong += [f"unexpected: {event['what']}" for event in worker.of("unexpected")]
        ends = worker.of("end")
        if not ends or ends[0]["left"]:
            self.wrong.append(f"threads, tasks or connections were left: {ends}")
        if worker.exit_code != 0:
            self.wrong.append(f"it did not end by itself: exit status {worker.exit_code}")
        if not self.holds:
            self.wrong.append("it held nothing")

    def _longest(self, what: str, times: List[int], limit: int) -> int:
        longest = max(times, default=0)
        if longest > limit + BUSY:
            self.wrong.append(f"{what}: {longest} ms, and {limit} ms are promised")
        return longest


def judge_holds(workers: List[Worker]) -> Tuple[List[str], int]:
    """Finds overlapping holders and fences that decrease, and the longest time that a session outlived its end."""
    wrong, longest_session = [], 0
    by_key: Dict[str, List[Dict[str, Any]]] = {}
    for worker in workers:
        for event in worker.of("held"):
            by_key.setdefault(event["key"], []).append({**event, "worker": worker.name})
    for key, holds in by_key.items():
        holds.sort(key=lambda hold: (hold["since"], hold["fence"]))
        for index, later in enumerate(holds):
            for earlier in holds[max(0, index - 50) : index]:
                both_ms = min(earlier["until"], later["until"]) - later["since"]
                if both_ms > 0 and earlier["session"]:
                    longest_session = max(longest_session, both_ms)
                elif both_ms > 0:
                    wrong.append(f"two holders of {key} for {both_ms} ms: {earlier} and {later}")
            if index and holds[index - 1]["fence"] >= later["fence"]:
                wrong.append(f"a fence of {key} went back: {holds[index - 1]} and {later}")
    if longest_session > SESSION_KNOWS_WITHIN + BUSY:
        wrong.append(f"a client considered itself the holder for {longest_session} ms after its session had ended")
    return wrong, longest_session


async def attack(names: List[str], seconds: float, seed: int) -> Tuple[List[Verdict], List[str], Counter, int]:
    server = Server()
    workers: List[Worker] = []
    wrong: List[str] = []
    try:
        await server.start()
        proxies = [await Proxy(server.port).start() for _ in names]
        workers = [Worker(name, proxy, seed + index) for index, (name, proxy) in enumerate(zip(names, proxies))]
        for worker in workers:
            await worker.start()
        world = World(server, proxies, random.Random(seed))
        await world.rage(seconds)

        async def have_all_held() -> bool:
            return all(worker.of("held") for worker in workers)

        # On a busy machine a short run may end before a client was granted a lock. If it never is, its verdict says so.
        with contextlib.suppress(TimeoutError):
            await eventually(have_all_held, 60, "a hold of each client")
        await asyncio.gather(*(worker.stop(60) for worker in workers))

        async def is_free() -> bool:
            return not await server.left()

        try:
            await eventually(is_free, 10, "the end of every hold")
        except TimeoutError:
            for key in await server.left():
                pids = ", ".join(f"{worker.name} is {worker._process.pid}" for worker in workers)
                wrong.append(f"left behind: {await server.ask('LOCK.INFO', key)} ({pids})")
    finally:
        for worker in workers:
            if worker.exit_code is None and worker._process.returncode is None:
                worker._process.kill()
        await server.stop()
    of_holds, longest_session = judge_holds(workers)
    return [Verdict(worker) for worker in workers], wrong + of_holds, world.faults, longest_session


def report(verdicts: List[Verdict], faults: Counter, session_ms: int, seconds: float, seed: int) -> str:
    done = ", ".join(f"{count} {name}" for name, count in sorted(faults.items()))
    server = subprocess.run([SERVER, "--version"], capture_output=True, text=True).stdout.split()[2]
    lines = [
        f"{seconds:.0f} s for each client, side by side, on Redis {server.removeprefix('v=')}; seed {seed}.",
        f"Faults: {done}.",
        "",
        "| client | granted | not granted in time | cancelled | failed | losses reported | late, ms "
        "| cancellation delay, ms | release, ms |",
        "| --- | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for each in verdicts:
        outcomes = each.outcomes
        lines.append(
            f"| {each.name} | {outcomes['granted']} | {outcomes['refused']} | {outcomes['cancelled']} "
            f"| {outcomes['failed']} | {each.released['lost']} | {each.late} | {each.let_go} | {each.release} |"
        )
    known = f"A client considered itself the holder for at most {session_ms} ms after the server had ended its session."
    lines += ["", known, ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--report")
    parser.add_argument("workers", nargs="*", metavar="worker", help=", ".join(WORKERS))
    arguments = parser.parse_args()
    names = arguments.workers or list(WORKERS)
    verdicts, wrong, faults, session_ms = asyncio.run(attack(names, arguments.seconds, arguments.seed))
    wrong += [f"{each.name}: {what}" for each in verdicts for what in each.wrong]
    text = report(verdicts, faults, session_ms, arguments.seconds, arguments.seed)
    print(text)
    for what in wrong:
        print(f"WRONG: {what}")
    if not wrong:
        print("Nothing was wrong.")
    if arguments.report and not wrong:
        path = Path(arguments.report)
        head, _, _ = path.read_text().partition("<!-- the last run -->")
        path.write_text(head + "<!-- the last run -->\n\n" + text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
