package redislock;

/** The server has as many waiters as lock.max-waiters or lock.max-waiters-per-key allow. */
public class MaxWaitersException extends LockException {
  private static final long serialVersionUID = 1;

  MaxWaitersException(String message, String lock) {
    super(message, lock);
  }
}
