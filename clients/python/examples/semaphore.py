"""At most three at a time."""

import redis
import redislock

with redislock.Semaphore(redis.Redis(), "downloads", limit=3):
    print("one of three")
