package redislock;

/** Thrown if too few replicas confirmed the grant in time. The lock was released again. */
public class NotReplicatedException extends LockException {
  private static final long serialVersionUID = 1;

  NotReplicatedException(String message, String lock) {
    super(message, lock);
  }
}
