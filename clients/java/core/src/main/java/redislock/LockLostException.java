package redislock;

import org.jspecify.annotations.Nullable;

/** The hold is lost: its lease ended, an operator broke it, or the key became something else. */
public class LockLostException extends LockException {
  private static final long serialVersionUID = 1;

  /**
   * A loss; the client makes it, and so does what holds its locks for others.
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
