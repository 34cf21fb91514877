package redislock;

import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What happens to the locks of a client, for its {@link LockObserver}.
 *
 * @param type what has happened
 * @param kind the family of the lock
 * @param keys the keys on the server
 * @param owner the token; bytes that are not UTF-8 are shown as {@code \xNN}
 * @param fence of the hold; 0 with QUEUED and NOT_GRANTED
 * @param duration since the call of the acquire (GRANTED, NOT_GRANTED), or since the grant (LOST,
 *     RELEASED); else zero
 * @param error why it was not granted; null: it was, or the time was over
 */
public record LockEvent(
    Type type,
    Kind kind,
    List<String> keys,
    String owner,
    long fence,
    Duration duration,
    @Nullable Throwable error) {
  /** What has happened. */
  public enum Type {
    /** The request waits in the server's queue. */
    QUEUED,
    /** The lock was acquired. */
    GRANTED,
    /** The acquire has ended without a hold. */
    NOT_GRANTED,
    /** The lease has begun again. */
    RENEWED,
    /** The hold was lost, or a release that was given up not confirmed; told once. */
    LOST,
    /** The hold was released, as the server has answered. */
    RELEASED
  }

  /** The family of a lock; each mode of a read/write lock is one. */
  public enum Kind {
    /** {@link RedisLocks#mutex}. */
    MUTEX,
    /** {@link RedisLocks#reentrant}. */
    REENTRANT,
    /** {@link ReadWriteLocks#read}. */
    READ,
    /** {@link ReadWriteLocks#write}. */
    WRITE,
    /** {@link RedisLocks#semaphore}. */
    SEMAPHORE,
    /** {@link RedisLocks#all}. */
    MULTI
  }
}
