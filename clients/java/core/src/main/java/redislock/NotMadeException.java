package redislock;

import org.jspecify.annotations.Nullable;

/**
 * The time to wait was over, and the value that another caller makes was not there yet ({@link
 * Mutex#once}).
 */
public class NotMadeException extends NotAcquiredException {
  private static final long serialVersionUID = 1;

  NotMadeException(String message, String lock, @Nullable String holder) {
    super(message, lock, holder);
  }
}
