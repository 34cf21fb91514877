package redislock;

/** Thrown if the key holds a value that is not a lock, such as the string of a SET NX client. */
public class WrongTypeException extends LockException {
  private static final long serialVersionUID = 1;

  WrongTypeException(String message, String lock) {
    super(message, lock);
  }
}
