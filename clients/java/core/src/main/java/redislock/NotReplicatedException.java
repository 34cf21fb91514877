package redislock;

/** Fewer replicas than asked for confirmed the grant in time; it was given back. */
public class NotReplicatedException extends LockException {
  private static final long serialVersionUID = 1;

  NotReplicatedException(String message, String lock) {
    super(message, lock);
  }
}
