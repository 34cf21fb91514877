"""Ten tickets and many concurrent buyers, under the lock of one of the programs in this folder.

    python sale.py PROGRAM [--port 6379] [--buyers 500]        as: python sale.py set_nx_lua_ported

It prints the result and exits with 1 unless exactly ten tickets were sold. It deletes the keys `sold` and
`lock:tickets` first, so do not run it on a server that uses them.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import threading
import time
from typing import Any, Callable, List

import redis

TICKETS = 10
# Threads of one interpreter share its lock (GIL); two processes run in parallel.
PROCESSES = 2
SOLD = "sold"
LOCK = "lock:tickets"
# A sale takes seconds. This timeout ends one that hangs.
AT_MOST_S = 120

Pay = Callable[[str], None]


def pay(buyer: str) -> None:
    """The time between reading the stock and selling. Without a lock, this is the race."""
    time.sleep(0.001)


def sell(program: str, port: int, buyers: int) -> List[str]:
    """Runs the sale; returns the buyers that got a ticket according to their replies."""
    client = redis.Redis(port=port)
    client.delete(SOLD, LOCK)
    client.close()
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(PROCESSES), context.SimpleQueue()
    groups = [[f"buyer-{number}" for number in range(buyers) if number % PROCESSES == k] for k in range(PROCESSES)]
    processes = [
        context.Process(target=_buy_all, args=(program, port, group, start, results), daemon=True) for group in groups
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(AT_MOST_S)
        if process.exitcode != 0:
            raise SystemExit(f"{program}: a process of buyers ended with {process.exitcode} (None: not at all)")
    return [buyer for _ in processes for buyer in results.get()]


def _buy_all(program: str, port: int, buyers: List[str], start: Any, results: Any) -> None:
    """One process: a thread and a connection for each buyer, all connected before the sale starts."""
    buy = importlib.import_module(program).buy
    connected, begin = threading.Barrier(len(buyers) + 1), threading.Event()
    happy: List[str] = []

    def one(buyer: str) -> None:
        client = redis.Redis(port=port, decode_responses=True)
        client.ping()
        connected.wait(AT_MOST_S)
        begin.wait(AT_MOST_S)
        if buy(client, buyer, pay):
            happy.append(buyer)
        client.close()

    threads = [threading.Thread(target=one, args=(buyer,)) for buyer in buyers]
    for thread in threads:
        thread.start()
    connected.wait(AT_MOST_S)
    start.wait(AT_MOST_S)
    begin.set()
    for thread in threads:
        thread.join()
    results.put(happy)


def main() -> int:
    parser = argparse.ArgumentParser(description="Ten tickets, many buyers at once.")
    parser.add_argument("program")
    parser.add_argument("--port", type=int, default=6379)
    parser.add_argument("--buyers", type=int, default=500)
    options = parser.parse_args()
    began = time.monotonic()
    happy = sell(options.program, options.port, options.buyers)
    seconds = time.monotonic() - began
    sold = redis.Redis(port=options.port, decode_responses=True).lrange(SOLD, 0, -1)
    count = f"{len(sold)} of {TICKETS} tickets sold to {len(happy)} of {options.buyers} buyers"
    print(f"{options.program}: {count}, {seconds:.1f} s")
    return 0 if len(sold) == TICKETS and sorted(sold) == sorted(happy) else 1


if __name__ == "__main__":
    sys.exit(main())
