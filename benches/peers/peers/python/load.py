"""The load of load.rs, in Python: `load.py KIND name=value…` takes the same words and says the same lines. An owner
is a thread; one client of redis-py, with its pool as it comes, for each link.

    redislock, redislock:renewed, redislock:session    the client of this repository
    redis-py                                           its own Lock: it asks again after 100 ms
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

import redis
import redislock

TRIAL_LOCK, TRIAL_LOCKS = 90_000, 10_000
TIMEOUT_S = 60

Acquire = Callable[[int], Any]

task: Dict[str, str] = {}
cycles: List[Tuple[int, int, int, int, int]] = []
errors: List[str] = []
is_over = threading.Event()


def number(name: str) -> int:
    return int(task[name])


# That of the run: monotonic, in nanoseconds.
now = time.monotonic_ns


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def connect(kind: str) -> Acquire:
    """Returns a lock over its own connection. Acquiring it waits indefinitely."""
    host, port = task["endpoints"].split(":")
    client = redis.Redis(host, int(port))
    lease = number("lease")
    options: Dict[str, Any] = {
        "redis-py": {},
        "redislock": {"lock_class": redislock.Lock},
        "redislock:renewed": {"auto_renew": True},
        "redislock:session": {"session": True},
    }[kind]

    def acquire(name: int) -> Any:
        # redis-py's own method knows no options but its own.
        make: Any = redislock.Lock if ":" in kind else redis.Redis.lock
        lock = make(client, f"lock-{name}", timeout=lease, **options)
        if not lock.acquire():
            raise RuntimeError("not granted")
        return lock

    return acquire


def serving(kind: str, link: int) -> Acquire:
    """Returns a link over which a lock has been acquired and released."""
    started, attempts = time.monotonic(), 0
    while True:
        name = TRIAL_LOCK + (os.getpid() + attempts * number("links") + link) % TRIAL_LOCKS
        attempts += 1
        try:
            acquire = connect(kind)
            acquire(name).release()
            return acquire
        except (redis.RedisError, OSError):
            if time.monotonic() - started > TIMEOUT_S:
                raise
            time.sleep(0.1)


def cycle(acquire: Acquire, owner: int) -> None:
    rng = random.Random(owner)
    while not is_over.is_set():
        name, asked = number("first") + rng.randrange(number("locks")), now()
        try:
            lock = acquire(name)
            granted = now()
            lock.release()
            cycles.append((name, owner, asked, granted, now()))
        except Exception as error:  # Any error is reported.
            errors.append(repr(error))
            time.sleep(0.01)


def sweep(acquire: Acquire, owner: int) -> None:
    for name in range(number("first"), number("first") + number("locks")):
        lock = acquire(name)
        time.sleep(0.001)
        lock.release()
    say(f"took {owner}")


def hold(acquire: Acquire, owner: int) -> None:
    """Reports each grant at once, because the process may be killed at any time."""
    kept = []
    for name in range(number("first") + owner, number("first") + number("locks"), number("owners")):
        asked = now()
        try:
            kept.append(acquire(name))
            say(f"held {name} {owner} {asked} {now()} {getattr(kept[-1], 'fence', 0) or 0}")
        except Exception as error:  # As above.
            say(f"failed {name} {owner} {asked} {now()} {error!r}")
        time.sleep(number("pace") / 1000)
    say(f"took {owner}")
    threading.Event().wait()


def expect(word: str) -> None:
    if sys.stdin.readline() != f"{word}\n":
        os._exit(1)


def main(kind: str, words: List[str]) -> None:
    task.update(word.split("=", 1) for word in words)  # type: ignore[misc]
    works = {"cycle": cycle, "sweep": sweep, "hold": hold}
    links = [serving(kind, link) for link in range(number("links"))]
    say("ready")
    expect("go")
    for owner in range(number("owners")):
        of = (links[owner % len(links)], owner)
        threading.Thread(target=works[task["work"]], args=of, daemon=True).start()
    expect("stop")
    is_over.set()
    lines = [f"cycle {name} {owner} {asked} {granted} {done} 0" for name, owner, asked, granted, done in cycles]
    if errors:
        lines.append(f"errors {len(errors)} {errors[-1]}")
    with os.fdopen(1, "w") as output:
        output.write("\n".join([*lines, "end", ""]))
    # What is held and awaited ends with the process, as when it dies.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
