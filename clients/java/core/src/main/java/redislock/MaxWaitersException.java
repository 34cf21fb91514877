package redislock;

/**
 * Thrown if the queue is full: the server has as many waiters as lock.max-waiters or
 * lock.max-waiters-per-key allows.
 */
public class MaxWaitersException extends LockException {
  private static final long serialVersionUID = 1;

  MaxWaitersException(String message, String lock) {
    super(message, lock);
  }
}
