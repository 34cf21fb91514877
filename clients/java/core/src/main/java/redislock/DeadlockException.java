package redislock;

/**
 * Waiting would never end: the requests and holds of several owners form a cycle, which the message
 * names. Found only among owners, and each hold has an owner of its own: give all locks of one task
 * the same {@link RedisLock#token(String)}, or take them together by {@link RedisLocks#all}.
 */
public class DeadlockException extends LockException {
  private static final long serialVersionUID = 1;

  DeadlockException(String message, String lock) {
    super(message, lock);
  }
}
