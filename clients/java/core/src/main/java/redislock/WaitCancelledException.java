package redislock;

/**
 * An operator ended the wait (LOCK.CANCEL or CLIENT UNBLOCK), or the same token asked again
 * elsewhere.
 */
public class WaitCancelledException extends LockException {
  private static final long serialVersionUID = 1;

  WaitCancelledException(String message, String lock) {
    super(message, lock);
  }
}
