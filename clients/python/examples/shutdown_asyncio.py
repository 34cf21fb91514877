"""A worker that ends cleanly on SIGTERM: its task is cancelled, leaves the queue or its step, and releases the lock."""

import asyncio
import contextlib
import signal
import sys

import redis.asyncio
import redislock.asyncio


async def step() -> None:
    print("a step", flush=True)
    await asyncio.sleep(1)


async def work(client: "redis.asyncio.Redis") -> None:
    while True:
        async with redislock.asyncio.Lock(client, "worker", timeout=30, auto_renew=True) as lock:
            while not lock.lost:
                await step()


async def main() -> None:
    async with redis.asyncio.Redis(port=int(sys.argv[1]) if len(sys.argv) > 1 else 6379) as client:
        working = asyncio.ensure_future(work(client))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await working


asyncio.run(main())
