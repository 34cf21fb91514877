package redislock;

/** The hold is lost: its lease ended, an operator broke it, or the key became something else. */
public class LockLostException extends LockException {
  private static final long serialVersionUID = 1;

  LockLostException(String message, String lock) {
    super(message, lock);
  }
}
