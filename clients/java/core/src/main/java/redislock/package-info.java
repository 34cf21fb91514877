/**
 * Distributed locks as a native data type of Redis: fair queues without polling, fencing tokens,
 * leases, and retries that leave no hold behind. Start with {@link redislock.RedisLocks}.
 */
@NullMarked
package redislock;

import org.jspecify.annotations.NullMarked;
