package redislock;

import org.jspecify.annotations.Nullable;

/**
 * Thrown if the lock was lost: its lease expired, an operator broke it, or its key was overwritten.
 */
public class LockLostException extends LockException {
  private static final long serialVersionUID = 1;

  /**
   * Creates an exception. Public for adapters that hold locks on behalf of others.
   *
   * @param message what was lost
   * @param lock the name of the lock
   */
  public LockLostException(String message, String lock) {
    super(message, lock);
  }

  static LockLostException notRun(String lock, @Nullable Throwable cause) {
    String message = "the lock \"" + lock + "\" is no longer held, so the command did not run";
    return (LockLostException) new LockLostException(message, lock).initCause(cause);
  }
}
