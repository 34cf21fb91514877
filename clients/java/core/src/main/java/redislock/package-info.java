/**
 * Distributed locks that Redis serves natively: fair queues without polling, fencing tokens,
 * leases, and no hold left behind by a lost reply. Start with {@link redislock.RedisLocks}.
 */
@NullMarked
package redislock;

import org.jspecify.annotations.NullMarked;
