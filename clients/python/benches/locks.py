"""Prints the section of results/benchmarks-clients.md about Python: what a lock costs with redislock, raw commands,
redis-py's lock and python-redis-lock, and one missing cache entry that many callers want.

    clients/python/bench [--quick]

The page's introduction (clients/bench) explains the table. The callers are threads or asyncio tasks of one process.
"""

from __future__ import annotations

import asyncio
import functools
import resource
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Awaitable, Callable, List, NamedTuple, Optional, Tuple

import dogpile.cache
import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock
import redis_lock
import redislock
import redislock.asyncio

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from servers import Server  # noqa: E402

QUICK = "--quick" in sys.argv
ROUNDS, ROUND_S, HAND_OFF_ROUNDS, HAND_OFF_S = (3, 0.05, 3, 0.2) if QUICK else (11, 0.1, 5, 0.5)
CALLERS = 100 if QUICK else 1000
COMPUTE_S = 0.1
LEASE_S = 30
# redis-py's own script for a release.
RELEASE = redis.lock.Lock.LUA_RELEASE_SCRIPT
SCRIPT = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000) then return nil end
local n = redis.call('INCR', KEYS[2])
redis.call('DEL', KEYS[1])
return n
"""
# Acquires the lock, however long that takes, calls the argument and releases the lock.
Turn = Callable[[Callable[[], None]], Any]


def of_lock(lock: Any, command: Optional[Callable[[], Any]]) -> Turn:
    def turn(held: Callable[[], None]) -> None:
        lock.acquire()
        if command is not None:
            command()
        held()
        lock.release()

    return turn


def of_asyncio_lock(lock: Any, command: Optional[Callable[[], Awaitable[Any]]]) -> Turn:
    async def turn(held: Callable[[], None]) -> None:
        await lock.acquire()
        if command is not None:
            await command()
        held()
        await lock.release()

    return turn


def of_call(call: Callable[[], Any]) -> Turn:
    def turn(held: Callable[[], None]) -> None:
        call()
        held()

    return turn


def of_asyncio_call(call: Callable[[], Awaitable[Any]]) -> Turn:
    async def turn(held: Callable[[], None]) -> None:
        await call()
        held()

    return turn


class RawLock:
    def __init__(self, client: Any, caller: int) -> None:
        name, token = "raw", f"bench:{caller}:0123456789abcdef"
        words = ("LOCK.ACQUIRE", name, token, "PX", LEASE_S * 1000, "BLOCK", 0)
        self.acquire = functools.partial(client.execute_command, *words)
        self.release = functools.partial(client.execute_command, "LOCK.RELEASE", name, token)


class RawSet:
    def __init__(self, client: Any, caller: int, digest: str) -> None:
        name, token = "set", f"bench:{caller}:0123456789abcdef"
        self.acquire = functools.partial(client.execute_command, "SET", name, token, "NX", "PX", LEASE_S * 1000)
        self.release = functools.partial(client.execute_command, "EVALSHA", digest, 1, name, token)


class Contender(NamedTuple):
    name: str
    library: str
    # A lock object for each caller, or a call that does everything.
    lock: Optional[Callable[[Any, int], Any]] = None
    call: Optional[Callable[[Any], Callable[[], Any]]] = None
    # The other rows of the library are compared with this one.
    is_base: bool = False

    def turns(self, server: Server, callers: int, increments: bool) -> List[Turn]:
        client: Any = (redis if self.library == "sync" else redis.asyncio).Redis(port=server.port)
        locking, calling = (of_lock, of_call) if self.library == "sync" else (of_asyncio_lock, of_asyncio_call)
        if self.call is not None:
            return [calling(self.call(client))]
        assert self.lock is not None
        command = functools.partial(client.incr, "n") if increments else None
        return [locking(self.lock(client, caller), command) for caller in range(callers)]


def script(client: Any) -> Callable[[], Any]:
    return functools.partial(client.register_script(SCRIPT), keys=["script", "n"], args=["bench:0:0123456789abcdef"])


def contenders(digest: str) -> Tuple[List[Contender], List[Contender], List[Contender]]:
    """The rows of a pair, of a hand-off and of an INCR under the lock."""
    pair: List[Contender] = []
    waiting: List[Contender] = []
    increment: List[Contender] = []
    for library, ours, theirs in (
        ("sync", redislock.Lock, redis.lock.Lock),
        ("asyncio", redislock.asyncio.Lock, redis.asyncio.lock.Lock),
    ):

        def lock(client: Any, _: int, ours: Any = ours, **options: Any) -> Any:
            return ours(client, "ours", timeout=LEASE_S, **options)

        def run(client: Any, ours: Any = ours) -> Callable[[], Any]:
            return functools.partial(ours(client, "ours", timeout=LEASE_S).run, "INCR", "n")

        def of_redis_py(client: Any, _: int, theirs: Any = theirs) -> Any:
            return theirs(client, "theirs", timeout=LEASE_S)

        usual = [Contender(f"{library}, redis-py's `Lock`", library, of_redis_py)]
        if library == "sync":
            usual.append(Contender("sync, python-redis-lock", library, python_redis_lock))
        queued = [
            Contender(f"{library}, raw `LOCK.ACQUIRE` + `LOCK.RELEASE`", library, RawLock, is_base=True),
            Contender(f"{library}, **redislock**", library, lock),
            Contender(f"{library}, **redislock**, `auto_renew`", library, functools.partial(lock, auto_renew=True)),
            *usual,
        ]
        raw_set = functools.partial(RawSet, digest=digest)
        pair += [Contender(f"{library}, raw `SET NX PX` + EVALSHA", library, raw_set), *queued]
        waiting += queued
        increment += [
            Contender(f"{library}, raw script: SET NX, INCR, DEL", library, call=script, is_base=True),
            Contender(f"{library}, **redislock**, `run`", library, call=run),
            *usual,
        ]
    return pair, waiting, increment


def python_redis_lock(client: Any, _: int) -> Any:
    return redis_lock.Lock(client, "python-redis-lock", expire=LEASE_S)


class Figures(NamedTuple):
    """As counters, or per unit of work."""

    client_cpu_us: float
    server_cpu_us: float
    requests: float
    bytes: float
    connections: float

    def minus(self, other: Figures) -> Figures:
        return Figures(*(one - another for one, another in zip(self, other)))


def counters(server: Server) -> Figures:
    info: Any = server.admin.execute_command("INFO", "stats", "cpu")
    return Figures(
        time.process_time() * 1e6,
        (info["used_cpu_user"] + info["used_cpu_sys"]) * 1e6,
        info["total_commands_processed"],
        info["total_net_input_bytes"] + info["total_net_output_bytes"],
        info["total_connections_received"],
    )


def measure(server: Server, work: Callable[[], Any]) -> Figures:
    """What the work costs, without what a call of counters() costs."""
    first = counters(server)
    before = counters(server)
    work()
    return counters(server).minus(before).minus(before.minus(first))


class Counting:
    """Counts the turns of a single caller, or the hand-offs."""

    def __init__(self, turns: List[Turn], seconds: float) -> None:
        self.count = 0
        self._turns, self._ends = turns, time.perf_counter() + seconds
        self._last: Optional[int] = None

    def _goes_on(self) -> bool:
        return time.perf_counter() < self._ends or self.count == 0

    def _held(self, caller: int) -> None:
        if len(self._turns) == 1 or self._last not in (None, caller):
            self.count += 1
        self._last = caller

    def in_thread(self, caller: int) -> None:
        held = functools.partial(self._held, caller)
        while self._goes_on():
            self._turns[caller](held)

    async def in_task(self, caller: int) -> None:
        held = functools.partial(self._held, caller)
        while self._goes_on():
            await self._turns[caller](held)


def round_of(library: str, turns: List[Turn], seconds: float, loop: asyncio.AbstractEventLoop) -> int:
    counting = Counting(turns, seconds)
    if library == "sync":
        with ThreadPoolExecutor(len(turns)) as threads:
            list(threads.map(counting.in_thread, range(len(turns))))
    else:
        loop.run_until_complete(all_of(map(counting.in_task, range(len(turns)))))
    return counting.count


async def all_of(tasks: Any) -> None:
    await asyncio.gather(*tasks)


class Row:
    def __init__(self, server: Server, work: Work, contender: Contender, loop: asyncio.AbstractEventLoop) -> None:
        self.name, self.library, self.is_base = contender.name, contender.library, contender.is_base
        self._server, self._seconds, self._loop = server, work.seconds, loop
        self.rounds: List[Figures] = []

        def warm_up() -> None:
            self._turns = contender.turns(server, work.callers, work.increments)
            round_of(self.library, self._turns, self._seconds, loop)

        self.connections = measure(server, warm_up).connections

    def round(self) -> None:
        count = 0

        def work() -> None:
            nonlocal count
            count = round_of(self.library, self._turns, self._seconds, self._loop)

        used = measure(self._server, work)
        self.rounds.append(Figures(*(figure / count for figure in used)))


class Work(NamedTuple):
    name: str
    contenders: List[Contender]
    callers: int = 1
    rounds: int = ROUNDS
    seconds: float = ROUND_S
    increments: bool = False


def works(digest: str) -> List[Work]:
    pair, waiting, increment = contenders(digest)
    return [
        Work("pair", pair),
        Work("hand-off, 2", waiting, 2, HAND_OFF_ROUNDS, HAND_OFF_S),
        Work("hand-off, 48", waiting, 48, HAND_OFF_ROUNDS, HAND_OFF_S),
        Work("INCR under the lock", increment, increments=True),
    ]


def rows(server: Server, work: Work, loop: asyncio.AbstractEventLoop) -> List[List[str]]:
    all_rows = [Row(server, work, contender, loop) for contender in work.contenders]
    for _ in range(work.rounds):
        for row in all_rows:
            row.round()
    cells = []
    for row in all_rows:
        base = next(other for other in all_rows if other.is_base and other.library == row.library)
        cpu = sorted(figures.client_cpu_us for figures in row.rounds)
        ratios = [own.client_cpu_us / other.client_cpu_us for own, other in zip(row.rounds, base.rounds)]
        median = Figures(*map(statistics.median, zip(*row.rounds)))
        cells.append(
            [work.name, row.name]
            + [f"{whole(median.client_cpu_us)} ({whole(cpu[0])} to {whole(cpu[-1])})"]
            + [f"{statistics.median(ratios):.2f}", whole(median.server_cpu_us), f"{median.requests:,.1f}"]
            + [whole(median.bytes), whole(row.connections), "–"]
        )
    return cells


def once(client: Any, compute: Callable[[], bytes]) -> Callable[[], Any]:
    def make() -> bytes:
        value = compute()
        client.set("value", value)
        return value

    return lambda: redislock.once(client, "fill", lambda: client.get("value"), make)


def reading_twice(client: Any, compute: Callable[[], bytes]) -> Callable[[], Any]:
    """Reads before the lock and under it."""

    def get() -> Any:
        value = client.get("value")
        if value is None:
            with redis.lock.Lock(client, "fill", timeout=LEASE_S):
                value = client.get("value")
                if value is None:
                    value = compute()
                    client.set("value", value)
        return value

    return get


def dogpile_region(client: Any, compute: Callable[[], bytes]) -> Callable[[], Any]:
    arguments = {"connection_pool": client.connection_pool, "distributed_lock": True}
    arguments.update({"thread_local_lock": False, "lock_timeout": LEASE_S})
    region = dogpile.cache.make_region().configure("dogpile.cache.redis", arguments=arguments)
    return lambda: region.get_or_create("value", compute)


SINGLE_FLIGHT = {"**redislock**, `once`": once, "redis-py's `Lock`": reading_twice, "dogpile.cache": dogpile_region}


def stampede(server: Server, name: str) -> List[str]:
    """Each caller has a connection already."""
    server.admin.flushall()
    client = redis.Redis(port=server.port, max_connections=4 * CALLERS)
    connections = [client.connection_pool.get_connection() for _ in range(CALLERS)]
    for connection in connections:
        client.connection_pool.release(connection)
    computed = 0

    def compute() -> bytes:
        nonlocal computed
        computed += 1
        time.sleep(COMPUTE_S)
        return b"value"

    get = SINGLE_FLIGHT[name](client, compute)
    seconds = 0.0

    def work() -> None:
        nonlocal seconds
        began = time.perf_counter()
        with ThreadPoolExecutor(CALLERS) as threads:
            assert list(threads.map(lambda _: get(), range(CALLERS))) == [b"value"] * CALLERS
        seconds = time.perf_counter() - began

    used = measure(server, work)
    client.close()
    cpu = [whole(used.client_cpu_us / 1000), whole(used.server_cpu_us / 1000)]
    return [name, str(computed), f"{seconds:.2f}", *cpu, whole(used.requests)]


def whole(value: float) -> str:
    return f"{value:,.0f}"


def table(texts: int, header: List[str], cells: List[List[str]]) -> None:
    print(f"\n| {' | '.join(header)} |\n|{' --- |' * texts}{' --: |' * (len(header) - texts)}")
    for row in cells:
        print(f"| {' | '.join(row)} |")


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server, loop = Server(), asyncio.new_event_loop()
    try:
        print("## Python\n")
        print(f"Python {sys.version.split()[0]}, redis-py {redis.__version__},")
        print(f"python-redis-lock {redis_lock.__version__}, dogpile.cache {dogpile.cache.__version__};")
        print(f"{ROUNDS} rounds of {ROUND_S * 1000:.0f} ms, and for hand-offs {HAND_OFF_ROUNDS} of")
        print(f"{HAND_OFF_S * 1000:.0f} ms. The callers are threads or asyncio tasks.")
        cells = [row for work in works(server.admin.script_load(RELEASE)) for row in rows(server, work, loop)]
        columns = ["client CPU, µs", "to raw commands", "server CPU, µs", "requests", "bytes", "connections"]
        table(2, ["workload", "lock", *columns, "allocations"], cells)

        print(f"\n{CALLERS:,} callers, which are threads, miss one cache entry that takes {COMPUTE_S * 1000:.0f} ms to")
        print("compute. With redis-py's lock they read before the lock and under it.")
        columns = ["computed", "until all have it, s", "client CPU, ms", "server CPU, ms", "requests"]
        table(1, ["lock", *columns], [stampede(server, name) for name in SINGLE_FLIGHT])
    finally:
        server.stop()


if __name__ == "__main__":
    main()
