"""One leader at a time, as long as its process lives: asyncio, with a session.

Neither a loss nor a refusal (LOCK.CANCEL, a full queue, no memory left) ends the process: it queues again after a
pause.
"""

import asyncio
import logging

import redis.asyncio
import redislock.asyncio
from redis.exceptions import RedisError


async def main() -> None:
    async with redis.asyncio.Redis() as client:
        lock = redislock.asyncio.Lock(client, "leader", timeout=10, session=True)
        while True:
            try:
                async with lock:
                    print("leading", flush=True)
                    # The work of the leader, until it is lost.
                    await lock.wait_lost()
            except RedisError as error:
                logging.warning("not leading, queueing again: %s: %s", type(error).__name__, error)
                await asyncio.sleep(5)


asyncio.run(main())
