package redislock;

/**
 * Thrown if an operator ended the wait (LOCK.CANCEL or CLIENT UNBLOCK), or a newer request with the
 * same token did.
 */
public class WaitCancelledException extends LockException {
  private static final long serialVersionUID = 1;

  WaitCancelledException(String message, String lock) {
    super(message, lock);
  }
}
