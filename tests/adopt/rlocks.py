"""A Redisson client and a Python client, `rlock.py`, alternate on one lock that `hash:` adopts. Both wait for the
unlock message; without it they would sleep until the holder's lease expires.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Iterator, List

TURNS = 100
# Much shorter than the lease of 60 s.
MESSAGE_S = 20.0


def run(
    server_class: Any, worker: Any, library: Any, until: Callable[..., Any], java: List[str], python: List[str]
) -> Iterator[List[str]]:
    rlock = library("redisson", "", "java", "lock:k", "lock:k", "hash:lock:*")
    clients = {"Redisson": java, "Python": [*python, f"{__file__.rsplit('/', 1)[0]}/rlock.py"]}
    channel = f"redisson_lock__channel:{{{rlock.stored}}}"

    def start() -> Any:
        return server_class(rlock.pattern)

    def subscribers(server: Any) -> int:
        return int(server.admin.pubsub_numsub(channel)[0][1])

    def other(name: str) -> str:
        return "Python" if name == "Redisson" else "Redisson"

    def both_behind_a_native_holder(server: Any, turns: int) -> List[Any]:
        """Both start when this client releases the lock."""
        server.admin.execute_command("RLOCK.ACQUIRE", rlock.stored, "native", "PX", 60_000)
        waiters = [worker(words, rlock, "turns", server, turns) for words in clients.values()]
        until(lambda: subscribers(server) == 2, "two subscribers")
        assert server.admin.execute_command("RLOCK.RELEASE", rlock.stored, "native") == 0
        return waiters

    server = start()
    printed = [waiter.ends() for waiter in both_behind_a_native_holder(server, TURNS)]
    adopted, woken = server.info("adopted_acquires"), int(printed[1].split("woken by ")[1].split()[0])
    assert adopted >= 2 * TURNS, f"only {adopted} grants were native"
    assert woken >= 1, "no message woke Python"
    server.stop()
    yield ["both take turns", f"{adopted} native grants; {woken} unlock messages woke Python"]

    for name in clients:
        server = start()
        holder = worker(clients[name], rlock, "hand over", server, 0)
        holder.holds()
        waiter = worker(clients[other(name)], rlock, "turns", server, 1)
        until(lambda: subscribers(server) == 1, "a subscriber")
        assert server.admin.type(rlock.stored) == "redislock"
        began = time.monotonic()
        holder.ends()
        waiter.ends()
        took_s = time.monotonic() - began
        assert took_s < MESSAGE_S, f"{took_s:.1f} s"
        server.stop()
        yield [f"{name} holds for 60 s and releases, {other(name)} waits", f"granted and ended after {took_s:.1f} s"]

    for name in clients:
        server = start()
        holder = worker(clients[name], rlock, "hold", server)
        holder.holds()
        waiter = worker(clients[other(name)], rlock, "turns", server, 1)
        holder.kill()
        began = time.monotonic()
        waiter.ends()
        server.stop()
        took_s = time.monotonic() - began
        yield [f"{name} is killed while it holds for 2 s", f"{other(name)} granted and ended after {took_s:.1f} s"]

    server = start()
    waiters = both_behind_a_native_holder(server, 1)
    began = time.monotonic()
    for waiter in waiters:
        waiter.ends()
    took_s = time.monotonic() - began
    assert took_s < MESSAGE_S, f"{took_s:.1f} s"
    server.stop()
    yield ["a native client holds for 60 s and releases, both wait", f"both granted and ended after {took_s:.1f} s"]
