package redislock;

/**
 * Thrown if a lock could not be acquired, renewed or released. Connection failures, and errors of
 * the server that do not concern locks, are exceptions of the Redis library.
 */
public class LockException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** The name of the lock. */
  private final String lock;

  LockException(String message, String lock) {
    super(message);
    this.lock = lock;
  }

  /**
   * Returns the name of the lock, without a prefix.
   *
   * @return the name; of a {@link MultiMutex}, all names
   */
  public String lock() {
    return lock;
  }
}
