package redislock;

/** The key is a lock of another family. */
public class WrongKindException extends LockException {
  private static final long serialVersionUID = 1;

  WrongKindException(String message, String lock) {
    super(message, lock);
  }
}
