"""One leader, for as long as its process lives: asyncio, bound to a connection."""

import asyncio

import redis.asyncio
import redislock.asyncio


async def main() -> None:
    async with redis.asyncio.Redis() as client:
        async with redislock.asyncio.Lock(client, "leader", timeout=10, session=True) as lock:
            print("leading, until", "a loss" if await lock.wait_lost(1) else "it is enough")


asyncio.run(main())
