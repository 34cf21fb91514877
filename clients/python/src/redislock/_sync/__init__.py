"""Locks for threads, over `redis.Redis` and `redis.RedisCluster`."""
