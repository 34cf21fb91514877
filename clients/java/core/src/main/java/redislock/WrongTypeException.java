package redislock;

/** The key holds something that is no lock, such as the string that a SET NX client leaves. */
public class WrongTypeException extends LockException {
  private static final long serialVersionUID = 1;

  WrongTypeException(String message, String lock) {
    super(message, lock);
  }
}
