"""Compares redislock with redis-py's lock, python-redis-lock and dogpile.cache in one run on one server; prints a
section of Markdown.

    clients/python/bench [--quick]

Contenders are processes: with threads, the GIL would decide who gets the lock.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple

import dogpile.cache
import redis
import redis.asyncio
import redis.lock
import redis_lock
import redislock
import redislock.asyncio

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from servers import Server  # noqa: E402

CONTENDERS = 48
# The callers of one value: this many processes, each with this many threads.
STAMPEDE = (10, 100)
MAKING_S = 0.1
LEASE_S = 30
TOKEN = b"bench:1:0123456789abcdef"
RAW = "execute_command, LOCK.ACQUIRE and LOCK.RELEASE"


class Raw:
    """The same two commands with nothing around them: the lower bound for a client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def acquire(self) -> Any:
        return self._client.execute_command("LOCK.ACQUIRE", "k", TOKEN, "PX", LEASE_S * 1000, "BLOCK", 3750)

    def release(self) -> Any:
        return self._client.execute_command("LOCK.RELEASE", "k", TOKEN)


def redis_py(sleep: float) -> Callable[[Any], Any]:
    return lambda client: redis.lock.Lock(client, "k", timeout=LEASE_S, sleep=sleep)


def python_redis_lock(client: Any) -> Any:
    return redis_lock.Lock(client, "k", expire=LEASE_S)


SYNC: Dict[str, Callable[[Any], Any]] = {
    "redislock.Lock": lambda client: redislock.Lock(client, "k", timeout=LEASE_S),
    "redis.lock.Lock": redis_py(0.1),
    "python-redis-lock": python_redis_lock,
    RAW: Raw,
}
ASYNCIO: Dict[str, Callable[[Any], Any]] = {
    "redislock.asyncio.Lock": lambda client: redislock.asyncio.Lock(client, "k", timeout=LEASE_S),
    "redis.asyncio.lock.Lock": lambda client: redis.asyncio.lock.Lock(client, "k", timeout=LEASE_S),
    f"asyncio: {RAW}": Raw,
}
# Locks, increments and unlocks, with no other command between them.
SCRIPT = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000) then return nil end
local n = redis.call('INCR', KEYS[2])
redis.call('DEL', KEYS[1])
return n
"""


def in_one_packet(client: Any) -> Callable[[], Any]:
    lock = redislock.Lock(client, "k", timeout=LEASE_S)
    return lambda: lock.run("INCR", "n")


def in_three(client: Any) -> Callable[[], Any]:
    lock = redislock.Lock(client, "k", timeout=LEASE_S)

    def section() -> Any:
        lock.acquire()
        reply = lock.exec("INCR", "n")
        lock.release()
        return reply

    return section


def in_script(client: Any) -> Callable[[], Any]:
    script = client.register_script(SCRIPT)
    return lambda: script(keys=["script", "n"], args=[TOKEN])


SECTIONS: Dict[str, Callable[[Any], Callable[[], Any]]] = {
    "run: one packet": in_one_packet,
    "acquire, exec, release: three round trips": in_three,
    "a Lua script: SET NX, INCR, DEL": in_script,
}
CONTENDED: Dict[str, Callable[[Any], Any]] = {
    "redislock.Lock": SYNC["redislock.Lock"],
    "redis.lock.Lock, sleep=0.1 (its default)": redis_py(0.1),
    "redis.lock.Lock, sleep=0.01": redis_py(0.01),
    "redis.lock.Lock, sleep=0.001": redis_py(0.001),
    "python-redis-lock (it waits with BLPOP)": python_redis_lock,
}


def made(client: Any) -> bytes:
    """Make the value and count the calls."""
    client.incr("made")
    time.sleep(MAKING_S)
    return b"value"


def once(client: Any) -> Callable[[], Any]:
    def make() -> bytes:
        value = made(client)
        client.set("value", value)
        return value

    return lambda: redislock.once(client, "fill", lambda: client.get("value"), make)


def looking_before_and_after(sleep: float) -> Callable[[Any], Callable[[], Any]]:
    def contender(client: Any) -> Callable[[], Any]:
        def get() -> Any:
            value = client.get("value")
            if value is None:
                with redis.lock.Lock(client, "fill", timeout=LEASE_S, sleep=sleep):
                    value = client.get("value")
                    if value is None:
                        value = made(client)
                        client.set("value", value)
            return value

        return get

    return contender


def dogpile_region(client: Any) -> Callable[[], Any]:
    arguments = {"connection_pool": client.connection_pool, "distributed_lock": True}
    arguments.update({"thread_local_lock": False, "lock_timeout": LEASE_S})
    region = dogpile.cache.make_region().configure("dogpile.cache.redis", arguments=arguments)
    return lambda: region.get_or_create("value", lambda: made(client))


CALLERS: Dict[str, Callable[[Any], Callable[[], Any]]] = {
    "redislock.once": once,
    "redis.lock.Lock, a look before and after (sleep=0.1, its default)": looking_before_and_after(0.1),
    "the same, sleep=0.01": looking_before_and_after(0.01),
    "dogpile.cache, its Redis backend with distributed_lock": dogpile_region,
}


class Stampede(NamedTuple):
    """The figures of all callers together."""

    made: float
    commands: float
    server_cpu_ms: float
    last_s: float


class Sample(NamedTuple):
    """Per pair or hand-off, but for the first and the last."""

    per_second: float
    client_cpu_us: float
    server_cpu_us: float
    commands: float
    changed_hands: float = 0.0


class Measured:
    """The commands of the server between start and end."""

    def __init__(self, server: Server) -> None:
        self._admin = server.admin
        self._admin.config_resetstat()
        self._cpu_s = self._server_cpu_s()
        self._own_cpu_s, self._began = time.process_time(), time.perf_counter()

    def end(self, count: int) -> Sample:
        seconds, own_cpu_s = time.perf_counter() - self._began, time.process_time() - self._own_cpu_s
        cpu_s = self._server_cpu_s() - self._cpu_s
        stats: Any = self._admin.info("commandstats")
        own = ("cmdstat_info", "cmdstat_config|resetstat")
        calls = sum(each["calls"] for name, each in stats.items() if name not in own)
        count = max(1, count)
        return Sample(count / seconds, own_cpu_s * 1e6 / count, cpu_s * 1e6 / count, calls / count)

    def _server_cpu_s(self) -> float:
        cpu: Any = self._admin.info("cpu")
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def pairs(server: Server, seconds: float, rounds: int) -> Dict[str, List[Sample]]:
    """One client takes and releases a free lock. The locks take turns, so that the machine's speed affects all."""
    client = redis.Redis(port=server.port)
    locks = {name: make(client) for name, make in SYNC.items()}
    samples: Dict[str, List[Sample]] = {name: [] for name in locks}
    for _ in range(rounds):
        for name, lock in locks.items():
            lock.acquire()
            lock.release()
            measured, until, count = Measured(server), time.perf_counter() + seconds, 0
            while time.perf_counter() < until:
                lock.acquire()
                lock.release()
                count += 1
            samples[name].append(measured.end(count))
    client.close()
    return samples


async def asyncio_pairs(server: Server, seconds: float, rounds: int) -> Dict[str, List[Sample]]:
    client = redis.asyncio.Redis(port=server.port)
    locks = {name: make(client) for name, make in ASYNCIO.items()}
    samples: Dict[str, List[Sample]] = {name: [] for name in locks}
    for _ in range(rounds):
        for name, lock in locks.items():
            await lock.acquire()
            await lock.release()
            measured, until, count = Measured(server), time.perf_counter() + seconds, 0
            while time.perf_counter() < until:
                await lock.acquire()
                await lock.release()
                count += 1
            samples[name].append(measured.end(count))
    await client.aclose()
    return samples


def sections(server: Server, seconds: float, rounds: int) -> Dict[str, List[Sample]]:
    """One client runs one command under a free lock, as `pairs`."""
    client = redis.Redis(port=server.port)
    works = {name: make(client) for name, make in SECTIONS.items()}
    samples: Dict[str, List[Sample]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            work()
            measured, until, count = Measured(server), time.perf_counter() + seconds, 0
            while time.perf_counter() < until:
                work()
                count += 1
            samples[name].append(measured.end(count))
    client.close()
    return samples


def contended_sections(server: Server, name: str, seconds: float) -> Sample:
    """48 processes run one command under one lock as fast as they can."""
    server.admin.flushall()
    context = multiprocessing.get_context("fork")
    ready, stop = context.Barrier(CONTENDERS + 1), context.Event()
    args = (name, server.port, ready, stop)
    processes = [context.Process(target=contend_section, args=args, daemon=True) for _ in range(CONTENDERS)]
    for process in processes:
        process.start()
    ready.wait()
    measured, before = Measured(server), int(server.admin.get("n") or 0)
    time.sleep(seconds)
    sample = measured.end(int(server.admin.get("n") or 0) - before)
    stop.set()
    for process in processes:
        process.join()
    return sample


def contend_section(name: str, port: int, ready: Any, stop: Any) -> None:
    client = redis.Redis(port=port)
    client.ping()
    work = SECTIONS[name](client)
    ready.wait()
    while not stop.is_set():
        work()


def hand_offs(server: Server, name: str, seconds: float) -> Sample:
    """48 processes take and release one lock as fast as they can."""
    server.admin.flushall()
    context = multiprocessing.get_context("fork")
    ready, stop = context.Barrier(CONTENDERS + 1), context.Event()
    counts = context.Array("q", CONTENDERS, lock=False)
    # Written only by the holder of the lock: the last holder, and how often it changed.
    holder = context.Array("q", 2, lock=False)
    args = (name, server.port, ready, stop, counts, holder)
    processes = [context.Process(target=contend, args=(number, *args), daemon=True) for number in range(CONTENDERS)]
    for process in processes:
        process.start()
    ready.wait()
    measured, before, changes_before = Measured(server), sum(counts), holder[1]
    time.sleep(seconds)
    count, changes = sum(counts) - before, holder[1] - changes_before
    sample = measured.end(count)._replace(changed_hands=changes / max(1, count))
    stop.set()
    for process in processes:
        process.join()
    return sample


def contend(number: int, name: str, port: int, ready: Any, stop: Any, counts: Any, holder: Any) -> None:
    client = redis.Redis(port=port)
    client.ping()
    lock = CONTENDED[name](client)
    ready.wait()
    while not stop.is_set():
        lock.acquire()
        counts[number] += 1
        if holder[0] != number:
            holder[0] = number
            holder[1] += 1
        lock.release()


def stampede(server: Server, name: str) -> Stampede:
    """A thousand callers request one missing value; each of them has a connection already."""
    server.admin.flushall()
    context = multiprocessing.get_context("fork")
    processes, threads = STAMPEDE
    ready, begin, ended = context.Semaphore(0), context.Event(), context.Array("d", processes * threads, lock=False)
    args = (name, server.port, ready, begin, ended)
    callers = [context.Process(target=call, args=(number, *args), daemon=True) for number in range(processes)]
    for caller in callers:
        caller.start()
    for _ in range(processes * threads):
        ready.acquire()
    measured, began = Measured(server), time.monotonic()
    begin.set()
    for caller in callers:
        caller.join()
    sample, makers = measured.end(1), int(server.admin.get("made") or 0)
    assert all(ended) and makers, "each caller has the value"
    return Stampede(makers, sample.commands, sample.server_cpu_us / 1000, max(ended) - began)


def stampedes(server: Server, rounds: int) -> None:
    processes, threads = STAMPEDE
    making_ms = f"{MAKING_S * 1000:.0f} ms"
    print(f"\n{processes * threads:,} callers ({processes} processes of {threads} threads) want one cache entry that")
    print(f"is missing and takes {making_ms} to make. Of all of them together, medians of {rounds}. The commands")
    print("include the reads and the write of the entry. dogpile.cache polls with redis-py's lock.")
    cells = {}
    for name in CALLERS:
        row = Stampede(*map(statistics.median, zip(*(stampede(server, name) for _ in range(rounds)))))
        cpu = f"{row.server_cpu_ms:,.0f} ms"
        cells[name] = [f"{row.made:.0f}", f"{row.commands:,.0f}", cpu, f"{row.last_s:.2f} s"]
    table(["single-flight", "made", "commands", "server CPU", "until the last has it"], cells)


def call(number: int, name: str, port: int, ready: Any, begin: Any, ended: Any) -> None:
    _, threads = STAMPEDE
    client = redis.Redis(port=port, max_connections=4 * threads)
    get = CALLERS[name](client)
    connections = threading.Barrier(threads)
    begins = threading.Event()

    def caller(index: int) -> None:
        connection = client.connection_pool.get_connection()
        connections.wait()
        client.connection_pool.release(connection)
        ready.release()
        begins.wait()
        value = get()
        ended[number * threads + index] = time.monotonic()
        assert value == b"value"

    callers = [threading.Thread(target=caller, args=(index,)) for index in range(threads)]
    for each in callers:
        each.start()
    begin.wait()
    begins.set()
    for each in callers:
        each.join()


def table(header: List[str], rows: Dict[str, List[str]]) -> None:
    print(f"\n| {' | '.join(header)} |")
    print(f"| --- |{' --: |' * (len(header) - 1)}")
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")


def in_common(sample: Sample) -> List[str]:
    return [f"{sample.server_cpu_us:.1f} µs", f"{sample.commands:.1f}"]


def median(samples: List[Sample]) -> Sample:
    return Sample(*(statistics.median(column) for column in zip(*samples)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="short: shows that it runs, and the order of things")
    quick = parser.parse_args().quick
    seconds, rounds, contended_s = (0.1, 3, 1.0) if quick else (0.5, 11, 5.0)
    server = Server()
    try:
        version: Any = server.admin.info("server")
        number = version.get("valkey_version", version["redis_version"])
        print("## Locks for Python")
        print(f"\n{'Valkey' if 'valkey_version' in version else 'Redis'} {number}, Python {sys.version.split()[0]},")
        print(f"redis-py {redis.__version__}, python-redis-lock {redis_lock.__version__},")
        print(f"dogpile.cache {dogpile.cache.__version__}; {os.cpu_count()} cores.")
        print("Commands include those that scripts call.")

        print(f"\nOne client, a free lock: acquire and release. Medians of {rounds} rounds of {seconds} s, in turns.")
        measured = {**pairs(server, seconds, rounds), **asyncio.run(asyncio_pairs(server, seconds, rounds))}
        rows = {name: median(samples) for name, samples in measured.items()}
        cells = {
            name: [f"{row.per_second:,.0f}", f"{row.client_cpu_us:.0f} µs", *in_common(row)]
            for name, row in rows.items()
        }
        table(["lock", "pairs per second", "client CPU", "server CPU", "commands"], cells)

        print(f"\n{CONTENDERS} processes want one lock and hold it for no time, for {contended_s} s. Without a queue")
        print("the process that released it often takes it again: changed hands counts the grants to another one.")
        taken = {name: hand_offs(server, name, contended_s) for name in CONTENDED}
        cells = {
            name: [f"{row.per_second:,.0f}", f"{row.changed_hands:.0%}", *in_common(row)] for name, row in taken.items()
        }
        table(["lock", "grants per second", "changed hands", "server CPU", "commands"], cells)

        print(f"\nOne INCR under a lock: by one client, and by {CONTENDERS} processes that want one lock.")
        alone = {name: median(samples) for name, samples in sections(server, seconds, rounds).items()}
        together = {name: contended_sections(server, name, contended_s) for name in SECTIONS}
        cells = {
            name: [f"{row.per_second:,.0f}", f"{row.client_cpu_us:.0f} µs", *in_common(row)]
            + [f"{together[name].per_second:,.0f}", *in_common(together[name])]
            for name, row in alone.items()
        }
        of_all = [f"{CONTENDERS} processes: per second", "server CPU", "commands"]
        table(["lock, INCR, release", "per second", "client CPU", "server CPU", "commands", *of_all], cells)

        stampedes(server, 1 if quick else 5)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
