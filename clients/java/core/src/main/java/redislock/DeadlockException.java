package redislock;

/** The wait would have closed a cycle of owners; it was not queued. The message names the cycle. */
public class DeadlockException extends LockException {
  private static final long serialVersionUID = 1;

  DeadlockException(String message, String lock) {
    super(message, lock);
  }
}
