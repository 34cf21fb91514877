package redislock;

/**
 * Thrown if the request would deadlock: the message lists the owners in the cycle. The request was
 * not queued. The server detects a deadlock between owners, and by default each hold is a new
 * owner, so give all locks of a task the same {@link RedisLock#token(String)}, or acquire them
 * together with {@link RedisLocks#all}.
 */
public class DeadlockException extends LockException {
  private static final long serialVersionUID = 1;

  DeadlockException(String message, String lock) {
    super(message, lock);
  }
}
