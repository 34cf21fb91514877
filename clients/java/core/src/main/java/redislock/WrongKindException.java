package redislock;

/** Thrown if the key is a lock of another type. */
public class WrongKindException extends LockException {
  private static final long serialVersionUID = 1;

  WrongKindException(String message, String lock) {
    super(message, lock);
  }
}
