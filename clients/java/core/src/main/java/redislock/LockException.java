package redislock;

/**
 * A lock could not be acquired, kept or released. Failures of the connection, and errors of the
 * server that do not concern locks, are thrown as the Redis library throws them.
 */
public class LockException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** The name. */
  private final String lock;

  LockException(String message, String lock) {
    super(message);
    this.lock = lock;
  }

  /**
   * The name of the lock; of several locks, all names.
   *
   * @return the name, not a key with a prefix
   */
  public String lock() {
    return lock;
  }
}
