/** A lock provider for ShedLock over native locks. */
@NullMarked
package redislock.shedlock;

import org.jspecify.annotations.NullMarked;
