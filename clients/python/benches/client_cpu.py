"""Client CPU of an acquire and a release of a free lock, in turns in one run: raw redis-py, redis-py's lock and ours.

    taskset -c 0 .venv/bin/python benches/client_cpu.py [--rounds 81] [--pairs 50] [--port PORT] [NAME …]

Times are of this process only (time.process_time), medians of the rounds. On a busy machine they vary, so compare the
ratios: each is the median of the ratios within one round. NAME: measure only the rows whose name contains it, and the
raw ones.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock
import redislock
import redislock.asyncio

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from servers import Server  # noqa: E402

LEASE_S = 30
TOKEN = b"bench:1:0123456789abcdef"
# redis-py's own script for a release.
RELEASE = redis.lock.Lock.LUA_RELEASE_SCRIPT
SECTION = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000) then return nil end
local n = redis.call('INCR', KEYS[2])
redis.call('DEL', KEYS[1])
return n
"""
RAW, RAW_ASYNCIO, SCRIPT = "raw: SET and EVALSHA", "asyncio raw: SET and EVALSHA", "script: SET, INCR, DEL"


def raw(client: Any) -> Callable[[], Any]:
    digest = client.script_load(RELEASE)

    def pair() -> None:
        client.execute_command("SET", "raw", TOKEN, "NX", "PX", LEASE_S * 1000)
        client.execute_command("EVALSHA", digest, 1, "raw", TOKEN)

    return pair


def pair_of(make: Callable[[Any], Any]) -> Callable[[Any], Callable[[], Any]]:
    def of(client: Any) -> Callable[[], Any]:
        lock = make(client)

        def pair() -> None:
            lock.acquire()
            lock.release()

        return pair

    return of


def script(client: Any) -> Callable[[], Any]:
    registered = client.register_script(SECTION)
    return lambda: registered(keys=["script", "n"], args=[TOKEN])


def run_one_command(client: Any) -> Callable[[], Any]:
    lock = redislock.Lock(client, "ours-run", timeout=LEASE_S)
    return lambda: lock.run("INCR", "n")


SYNC: Dict[str, Callable[[Any], Callable[[], Any]]] = {
    RAW: raw,
    "redis-py's Lock": pair_of(lambda client: redis.lock.Lock(client, "theirs", timeout=LEASE_S)),
    "Lock": pair_of(lambda client: redislock.Lock(client, "ours", timeout=LEASE_S)),
    "Lock, auto_renew": pair_of(lambda client: redislock.Lock(client, "ours", timeout=LEASE_S, auto_renew=True)),
    SCRIPT: script,
    "run: INCR": run_one_command,
}


async def raw_asyncio(client: Any) -> Callable[[], Any]:
    digest = await client.script_load(RELEASE)

    async def pair() -> None:
        await client.execute_command("SET", "raw", TOKEN, "NX", "PX", LEASE_S * 1000)
        await client.execute_command("EVALSHA", digest, 1, "raw", TOKEN)

    return pair


def asyncio_pair_of(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def of(client: Any) -> Callable[[], Any]:
        lock = make(client)

        async def pair() -> None:
            await lock.acquire()
            await lock.release()

        return pair

    return of


def ours_asyncio(**options: Any) -> Callable[[Any], Any]:
    return asyncio_pair_of(lambda client: redislock.asyncio.Lock(client, "ours", timeout=LEASE_S, **options))


ASYNCIO: Dict[str, Callable[[Any], Any]] = {
    RAW_ASYNCIO: raw_asyncio,
    "asyncio redis-py's Lock": asyncio_pair_of(
        lambda client: redis.asyncio.lock.Lock(client, "theirs", timeout=LEASE_S)
    ),
    "asyncio Lock": ours_asyncio(),
    "asyncio Lock, auto_renew": ours_asyncio(auto_renew=True),
    "asyncio Lock, shared": ours_asyncio(shared=True),
}


def sync_samples(port: int, names: List[str], rounds: int, pairs: int) -> Dict[str, List[float]]:
    samples: Dict[str, List[float]] = {name: [] for name in names}
    with redis.Redis(port=port) as client:
        works = {name: SYNC[name](client) for name in names}
        for number in range(rounds + 1):
            for name, work in works.items():
                began = time.process_time()
                for _ in range(pairs):
                    work()
                # The first round opens connections.
                if number:
                    samples[name].append((time.process_time() - began) / pairs)
    return samples


async def asyncio_samples(port: int, names: List[str], rounds: int, pairs: int) -> Dict[str, List[float]]:
    samples: Dict[str, List[float]] = {name: [] for name in names}
    client = redis.asyncio.Redis(port=port)
    works = {name: await ASYNCIO[name](client) for name in names}
    for number in range(rounds + 1):
        for name, work in works.items():
            began = time.process_time()
            for _ in range(pairs):
                await work()
            if number:
                samples[name].append((time.process_time() - began) / pairs)
    await (client.aclose() if hasattr(client, "aclose") else client.close())
    return samples


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=81)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--port", type=int, help="a server with the module; default: start one")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()

    def chosen(works: Dict[str, Any], *always: str) -> List[str]:
        wanted = options.names
        return [name for name in works if not wanted or name in always or any(each in name for each in wanted)]

    server = None if options.port else Server()
    port = options.port or (server.port if server else 0)
    try:
        found = sync_samples(port, chosen(SYNC, RAW, SCRIPT), options.rounds, options.pairs)
        found.update(asyncio.run(asyncio_samples(port, chosen(ASYNCIO, RAW_ASYNCIO), options.rounds, options.pairs)))
    finally:
        if server is not None:
            server.stop()
    print(f"Python {sys.version.split()[0]}, redis-py {redis.__version__}; medians of {options.rounds} rounds")
    print("| acquire and release | client CPU | of raw |\n| --- | --: | --: |")
    for name, samples in found.items():
        base = RAW_ASYNCIO if name in ASYNCIO else SCRIPT if name in (SCRIPT, "run: INCR") else RAW
        ratio = statistics.median(own / raw for own, raw in zip(samples, found[base]))
        print(f"| {name} | {statistics.median(samples) * 1e6:.0f} µs | {ratio:.2f} |")


if __name__ == "__main__":
    main()
