"""Real servers for the tests: single, with replicas, as a cluster, with Sentinel; and a proxy that loses replies."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, List, Optional, Set

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

ROOT = Path(__file__).resolve().parents[3]
MODULE = os.environ.get("REDIS_LOCK_MODULE") or str(ROOT / "target/release/libredis_lock.so")
SERVER = os.environ.get("REDIS_SERVER") or "redis-server"
# No test depends on the machine's speed: it waits for a late state, and fails if the state never comes.
TIMEOUT_S = 60.0


def free_port() -> int:
    """A free port: the cluster bus has the free port 10,000 above. Outgoing connections have higher ports."""
    while True:
        port = random.randrange(2_000, 12_000)
        try:
            with socket.socket() as server, socket.socket() as bus:
                server.bind(("127.0.0.1", port))
                bus.bind(("127.0.0.1", port + 10_000))
                return port
        except OSError:
            pass


def until(state: Callable[[], Any], what: str = "") -> Any:
    """Waits for a state in a test that has no event loop."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        found = state()
        if found:
            return found
        assert time.monotonic() < end, f"never came: {what or state}"
        time.sleep(0.01)


async def eventually(state: Callable[[], Any], what: str = "") -> Any:
    """Waits for a state without blocking the event loop."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        found = state()
        if found:
            return found
        assert time.monotonic() < end, f"never came: {what or state}"
        await asyncio.sleep(0.01)


class Server:
    """A redis-server with its own port and directory."""

    def __init__(self, *options: str, module: bool = True, port: Optional[int] = None, sentinel: bool = False) -> None:
        self.dir = tempfile.mkdtemp(prefix="redislock-")
        self._options = ["--sentinel"] if sentinel else ["--save", "", "--appendonly", "no"]
        if not sentinel:
            self._options += ["--repl-diskless-sync-delay", "0"]
            self._options += ["--loadmodule", MODULE] if module else []
        self._options += options
        while True:
            self._start(port or free_port())
            try:
                until(self._answers, f"a server on port {self.port}")
                return
            except BaseException:
                # Another process may have taken the port since it was found to be free.
                is_taken = port is None and "Address already in use" in self._log_text()
                self._end()
                if not is_taken:
                    shutil.rmtree(self.dir, ignore_errors=True)
                    raise

    def _start(self, port: int) -> None:
        self.port = port
        config = Path(self.dir, "redis.conf")
        config.write_text(f"port {port}\nbind 127.0.0.1\ndir {self.dir}\n")
        self._log = open(Path(self.dir, "log"), "wb")
        self.process = subprocess.Popen([SERVER, str(config), *self._options], stdout=self._log, stderr=self._log)
        # redis-py 5 does not reconnect by itself.
        again: Any = {"retry": Retry(ConstantBackoff(0.05), 5), "retry_on_error": [redis.ConnectionError]}
        self.admin = redis.Redis(port=port, decode_responses=True, protocol=2, **again)

    def _log_text(self) -> str:
        return Path(self.dir, "log").read_text()

    def _answers(self) -> bool:
        """True if this server answers, and not another one on the same port."""
        assert self.process.poll() is None, self._log_text()
        try:
            info: Any = self.admin.info("server")
            return bool(info["process_id"] == self.process.pid and self.admin.ping())
        except redis.ConnectionError:
            return False

    def ask(self, *words: Any) -> Any:
        return self.admin.execute_command(*words)

    def waiters(self, key: str) -> List[str]:
        """The owners of the waiting requests, in queue order."""
        return [fields(waiter)["owner"] for waiter in self.ask("LOCK.WAITERS", key, "COUNT", 0)]

    def release_before_two(self, key: str, owner: str) -> bool:
        """Releases the lock while two requests wait: a waiter that is between two requests is skipped."""
        script = (
            "return #redis.call('LOCK.WAITERS', KEYS[1], 'COUNT', 0) == 2"
            " and redis.call('LOCK.RELEASE', KEYS[1], ARGV[1]) or 0"
        )
        return bool(self.ask("EVAL", script, 1, key, owner) == 1)

    def info(self, key: str) -> Any:
        found = self.ask("LOCK.INFO", key)
        return None if found is None else fields(found)

    def holders(self, key: str) -> List[Any]:
        found = self.info(key)
        return [] if found is None else [fields(holder) for holder in found["holders"]]

    def calls(self, command: str) -> int:
        """The number of calls of a command."""
        stats: Any = self.admin.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))

    def _end(self) -> None:
        self.admin.close()
        self.process.kill()
        self.process.wait()
        self._log.close()

    def stop(self) -> None:
        self._end()
        shutil.rmtree(self.dir, ignore_errors=True)


def fields(flat: List[Any]) -> Any:
    return dict(zip(flat[::2], flat[1::2]))


class Node(Server):
    """A node of a cluster; it also answers for a slot that it is still importing."""

    def __init__(self) -> None:
        # A node that loses its last slot remains a primary.
        options = ("--cluster-node-timeout", "60000", "--cluster-allow-replica-migration", "no")
        super().__init__("--cluster-enabled", "yes", *options)

    def ask(self, *command: Any) -> Any:
        pipeline = self.admin.pipeline(transaction=False)
        return pipeline.execute_command("ASKING").execute_command(*command).execute()[1]


class Cluster:
    """Two primaries that share the slots; the others have none."""

    def __init__(self, nodes: int = 2) -> None:
        self.nodes = [Node() for _ in range(nodes)]
        first, second = self.nodes[:2]
        first.ask("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
        second.ask("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
        for epoch, node in enumerate(self.nodes[1:], 2):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", epoch)
            first.ask("CLUSTER", "MEET", "127.0.0.1", node.port)
        for node in self.nodes:
            until(lambda node=node: f"cluster_known_nodes:{nodes}" in self._info(node), "all nodes")
            until(lambda node=node: "cluster_state:ok" in self._info(node), "cluster ok")

    @staticmethod
    def _info(node: Server) -> str:
        found: Any = node.ask("CLUSTER INFO")
        return "".join(f"{name}:{value}\n" for name, value in found.items()) if isinstance(found, dict) else str(found)

    def move_slot(self, slot: int, source: Server, target: Server) -> None:
        self.begin_move(slot, source, target)
        self.move_keys(slot, source, target)
        self.end_move(slot, source, target)

    def begin_move(self, slot: int, source: Server, target: Server) -> None:
        source_id, target_id = source.ask("CLUSTER MYID"), target.ask("CLUSTER MYID")
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)

    def move_keys(self, slot: int, source: Server, target: Server) -> None:
        for key in source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)

    def end_move(self, slot: int, source: Server, target: Server) -> None:
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.ask("CLUSTER MYID"))

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


class Proxy:
    """Forwards to a server, and cuts or holds back the reply to a chosen request."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._cut: Optional[bytes] = None
        self._cut_after = 0
        self._hold: Optional[bytes] = None
        self._delay: Optional[bytes] = None
        self._split: Optional[bytes] = None
        # The bytes that arrived together, of requests with LOCK.EXEC.
        self.packets: List[bytes] = []
        self.replies: List[bytes] = []
        self._delayed = asyncio.Event()
        self.cuts = 0
        self.held = 0
        self.delays = 0
        self._tasks: List[Any] = []
        self._writers: Set[Any] = set()
        self._passes = asyncio.Event()
        self._passes.set()

    async def __aenter__(self) -> "Proxy":
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._listening.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut_reply(self, request: bytes, after: int = 0) -> None:
        """Lets the next such request through, and ends its connection after this many bytes of the reply."""
        self._cut, self._cut_after = request, after

    def hold_reply(self, request: bytes) -> None:
        """Lets the next such request through, and never delivers its reply."""
        self._hold = request

    def delay_request(self, request: bytes) -> None:
        """Holds the next such request back until `deliver`; other connections pass."""
        self._delay = request

    def split_request(self, at: bytes) -> None:
        """Lets the next request with these bytes through up to them, and holds the rest back until `deliver`."""
        self._split = at

    def deliver(self) -> None:
        self._delayed.set()

    def silence(self) -> None:
        """Silences the network: from now on no data passes, no connection ends, and new ones are accepted."""
        self._passes.clear()

    def speak(self) -> None:
        """Ends the silence and delivers the held-back data, like a network that retransmits its packets."""
        self._passes.set()

    def disconnect(self) -> None:
        """Ends every connection to a client. The connections to the server end after the held-back data has passed."""
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        task = asyncio.current_task()
        self._tasks.append(task)
        await self._passes.wait()
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        fate = {"cut": False, "hold": False}
        ways = [
            asyncio.ensure_future(self._requests(reader, server_writer, fate)),
            asyncio.ensure_future(self._replies(server_reader, writer, fate)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            writer.close()
            server_writer.close()

    async def _requests(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, fate: Any) -> None:
        while True:
            request = await reader.read(65536)
            await self._passes.wait()
            if not request:
                return
            if self._cut is not None and self._cut in request:
                self._cut, fate["cut"] = None, True
            if self._hold is not None and self._hold in request:
                self._hold, fate["hold"] = None, True
            if self._delay is not None and self._delay in request:
                self._delay = None
                self.delays += 1
                await self._delayed.wait()
            if b"LOCK.EXEC" in request:
                self.packets.append(request)
            if self._split is not None and self._split in request:
                # In front of the command's own header.
                at = request.rindex(b"*", 0, request.index(self._split))
                self._split = None
                server.write(request[:at])
                self.delays += 1
                await self._delayed.wait()
                request = request[at:]
            server.write(request)
            await server.drain()

    async def _replies(self, server: asyncio.StreamReader, writer: asyncio.StreamWriter, fate: Any) -> None:
        while True:
            reply = await server.read(65536)
            await self._passes.wait()
            if not reply:
                return
            if fate["cut"]:
                writer.write(reply[: self._cut_after])
                await writer.drain()
                self.cuts += 1
                return
            if fate["hold"]:
                self.held += 1
                continue
            writer.write(reply)
            await writer.drain()
            self.replies.append(reply)
