package redislock;

import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * An event of a lock, for a {@link LockObserver}.
 *
 * @param type what happened
 * @param kind the lock type
 * @param keys the keys on the server
 * @param owner the owner ID; bytes that are not UTF-8 are shown as {@code \xNN}
 * @param fence the fencing token of the hold; 0 for QUEUED and NOT_GRANTED
 * @param duration the time since the call (GRANTED, NOT_GRANTED) or since the grant (LOST,
 *     RELEASED); otherwise zero
 * @param error why the lock was not granted; null if it was granted or the wait timed out
 */
public record LockEvent(
    Type type,
    Kind kind,
    List<String> keys,
    String owner,
    long fence,
    Duration duration,
    @Nullable Throwable error) {
  /** The kinds of events. */
  public enum Type {
    /**
     * The request waits in the server's queue. A blocking request counts as waiting after 100 ms
     * without a reply.
     */
    QUEUED,
    /** The lock was granted. */
    GRANTED,
    /** The acquire ended without a hold. */
    NOT_GRANTED,
    /** The lease was restarted. */
    RENEWED,
    /** The hold was lost, or its release was never confirmed. Reported once. */
    LOST,
    /** The server has confirmed the release. */
    RELEASED
  }

  /** The lock types. Each mode of a read/write lock is one. */
  public enum Kind {
    /** A lock of {@link RedisLocks#mutex}. */
    MUTEX,
    /** A lock of {@link RedisLocks#reentrant}. */
    REENTRANT,
    /** The read view of {@link RedisLocks#readWrite}. */
    READ,
    /** The write view of {@link RedisLocks#readWrite}. */
    WRITE,
    /** A lock of {@link RedisLocks#semaphore}. */
    SEMAPHORE,
    /** A lock of {@link RedisLocks#all}. */
    MULTI
  }
}
