"""A signal handler may raise between any two instructions: no lock is left that the program does not know of, and none
is renewed indefinitely."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, List

import pytest
import redis
import redislock
from apis import SyncApi
from redis.utils import HIREDIS_AVAILABLE
from redislock._connections import GET_CONNECTION_ARGS
from servers import Proxy, Server, eventually
from test_conformance import background

# Like a soft time limit of celery: one alarm for each attempt, at a random moment. The program has the lock if the call
# returned; an alarm that arrives later has no effect.
STORM = """
import random, signal, sys, threading, time, traceback
import redis, redislock

class TimeLimit(Exception): pass

armed = False

def exceeded(*_):
    # If another thread gets the signal, it may arrive after disarm().
    if armed:
        raise TimeLimit

def alarm(longest_s):
    global armed
    armed = True
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, longest_s))

def disarm():
    global armed
    armed = False
    signal.setitimer(signal.ITIMER_REAL, 0)

signal.signal(signal.SIGALRM, exceeded)
port, way, attempts, seed = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
random.seed(seed)
client, admin = redis.Redis(port=port), redis.Redis(port=port)
name = "storm"
options = {"timeout": 60}
if "session" in way:
    options["session"] = True
if "auto_renew" in way:
    options["auto_renew"] = True
if "wait" in way:
    options["blocking_timeout"] = 20

def make():
    if "rlock" in way:
        return redislock.RLock(client, name, **options)
    if "read" in way:
        return redislock.RWLock(client, name, **options).read()
    if "write" in way:
        return redislock.RWLock(client, name, **options).write()
    if "semaphore" in way:
        return redislock.Semaphore(client, name, 1, slot="slot" in way, **options)
    if "multi" in way:
        return redislock.MultiLock(client, [name, "other"], **options)
    return redislock.Lock(client, name, **options)

# Keeps the objects alive: dropping them would release what they hold.
locks, outcomes = [], {"held": 0, "raised": 0, "kept": 0}

def took(lock):
    if "run" in way:
        lock.run("INCR", "ran")
        return False
    if "once" in way:
        redislock.once(client, name, lambda: None, lambda: 1, **options)
        return False
    if "with" in way:
        with lock:
            disarm()
        return False
    if "exit" in way:
        disarm()
        with lock:
            alarm(longest_s)
        return False
    if "release" in way:
        disarm()
        lock.acquire()
        alarm(longest_s)
        lock.release()
        return False
    if "extend" in way:
        disarm()
        lock.acquire()
        try:
            try:
                alarm(longest_s)
                lock.extend(1)
            finally:
                disarm()
        finally:
            lock.release()
        return False
    if "nested" in way:
        disarm()
        lock.acquire()
        alarm(longest_s)
        return lock.acquire()
    return lock.acquire()

def attempt(longest_s):
    lock = make()
    locks.append(lock)
    taken, raised = False, None
    try:
        try:
            alarm(longest_s)
            taken = took(lock)
        finally:
            disarm()
    except TimeLimit as error:
        raised = traceback.format_exc()
        outcomes["raised"] += 1
    else:
        outcomes["held"] += 1
    if taken:
        lock.release()
    has_gap = "nested" in way or "release" in way or sys.version_info < (3, 11)
    if has_gap and lock.local.token is not None:
        # Its first acquire; or the alarm came before the release had begun, and the program may release it. Before
        # Python 3.11 there are a few instructions between the return of acquire and the program.
        outcomes["kept"] += 1
        lock.release()
    assert lock.grant is None and lock.local.token is None, f"the program does not know of it: {raised}"
    return raised is None

def release_soon():
    time.sleep(0.001)
    admin.execute_command("LOCK.RELEASE", name, "other")

# Adapts to the duration of an attempt, so that about half of the alarms arrive in time.
longest_s = 0.001
for number in range(attempts):
    if "wait" in way:
        admin.execute_command("LOCK.ACQUIRE", name, "other", "PX", 60_000)
        other = threading.Thread(target=release_soon)
        other.start()
    longest_s = min(0.02, max(2e-5, longest_s * (0.9 if attempt(longest_s) else 1.1)))
    if "wait" in way:
        other.join()
# The work in the background ends, and nothing is renewed.
ends = time.monotonic() + 60
def behind():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("redislock")]
while behind() and time.monotonic() < ends:
    time.sleep(0.01)
print(outcomes["raised"], outcomes["held"], outcomes["kept"], len(behind()), flush=True)
sys.stdin.read()
"""

WAYS = [
    "plain",
    "with",
    "session",
    "with session",
    "auto_renew",
    "with auto_renew",
    "session rlock",
    "rlock nested",
    "read",
    "write",
    "with write auto_renew",
    "semaphore",
    "semaphore slot",
    "multi",
    "wait",
    "run",
    "once",
    "release",
    "release exit",
    "release exit session rlock",
    "release exit auto_renew",
    "release session",
    "release auto_renew",
    "extend auto_renew",
]


@pytest.mark.skipif(HIREDIS_AVAILABLE, reason="a signal inside of hiredis ends the process")
@pytest.mark.parametrize("way", WAYS)
def test_an_exception_of_a_signal_handler_leaves_no_lock(server: Server, way: str) -> None:
    attempts = 300
    words = [sys.executable, "-c", STORM, str(server.port), way, str(attempts), "7"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        said = process.stdout.readline().split()
        # The process goes on.
        assert process.poll() is None and len(said) == 4, said
        raised, _, kept, behind = map(int, said)
        assert raised > attempts / 4, "so many alarms came in time"
        # In the first instruction of leaving `with`.
        assert kept <= raised / 50 or "exit" not in way
        assert not behind
        held: Any = [server.info(key) for key in server.admin.keys("storm*")]
        assert not held
        assert not server.waiters("storm")
        process.stdin.close()


class TimeLimit(Exception):
    """The exception of a handler."""


class Interrupted(redis.Connection):
    """A signal arrives after HELLO was sent and before its reply is read."""

    is_armed = False
    sent_before_the_reply: List[Any] = []
    _owes = False

    def read_response(self, *args: Any, **named: Any) -> Any:
        if Interrupted.is_armed:
            Interrupted.is_armed, self._owes = False, True
            raise TimeLimit
        return super().read_response(*args, **named)

    def disconnect(self, *args: Any, **named: Any) -> None:
        self._owes = False
        super().disconnect(*args, **named)

    def send_packed_command(self, command: Any, *args: Any, **named: Any) -> None:
        if self._owes:
            Interrupted.sent_before_the_reply.append(command)
        super().send_packed_command(command, *args, **named)


async def test_the_reply_to_an_interrupted_handshake_is_not_that_of_the_next_command(server: Server) -> None:
    api = SyncApi()
    try:
        async with Proxy(server.port) as proxy:
            pool = redis.ConnectionPool(connection_class=Interrupted, port=proxy.port, protocol=3)
            client, actor = api.closes(redis.Redis(connection_pool=pool)), api.actor()
            # The connection of the pool is in use: it opens another one.
            assert not await actor.do(redislock.Lock(client, "k").locked)
            in_use = await actor.do(pool.get_connection, *GET_CONNECTION_ARGS)
            Interrupted.is_armed = True
            proxy.delay_request(b"HELLO")
            with pytest.raises(TimeLimit):
                await actor.do(redislock.Lock(client, "k", timeout=60).acquire)
            # redis-py puts it back into its pool, where the withdrawal would find the reply.
            await eventually(lambda: server.calls("lock.cancel") and background(api) <= 1, "the withdrawal")
            proxy.deliver()
            await eventually(lambda: background(api) == 0, "the end of the withdrawal")
            assert not Interrupted.sent_before_the_reply
            lock = redislock.Lock(client, "k", timeout=60)
            assert await actor.do(lock.acquire) and await actor.do(lambda: lock.fence) == server.info("k")["fence"]
            await actor.do(lock.release)
            pool.release(in_use)
    finally:
        await api.end()


# Every way to acquire, so that the first connect and all of the client's own code are included.
IMPORTS = """
import sys
import redis, redislock

client = redis.Redis(port=int(sys.argv[1]))
before = set(sys.modules)
for options in ({}, {"session": True, "timeout": 9}, {"auto_renew": True, "timeout": 9}, {"blocking_timeout": 5}):
    with redislock.Lock(client, "lock", **options): pass
    with redislock.RLock(client, "rlock", **options): pass
    with redislock.RWLock(client, "rwlock", **options).read(): pass
    with redislock.Semaphore(client, "semaphore", 1, **options): pass
    with redislock.MultiLock(client, ["one", "other"], **options): pass
redislock.Lock(client, "lock").run("INCR", "ran")
redislock.once(client, "lock", lambda: None, lambda: 1)
print(*sorted(set(sys.modules) - before))
"""


def test_no_call_imports_a_module(server: Server) -> None:
    """If a signal handler's exception interrupts an import, the import lock may stay locked, and later imports hang."""
    words = [sys.executable, "-c", IMPORTS, str(server.port)]
    imported = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert imported == "\n"
