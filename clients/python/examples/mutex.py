"""One at a time, waiting in the server's queue."""

import redis
import redislock

with redislock.Lock(redis.Redis(), "report", timeout=30, auto_renew=True) as lock:
    print("held, with fence", lock.fence)
