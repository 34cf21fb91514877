package redislock;

import org.jspecify.annotations.Nullable;

/** Thrown if {@link Mutex#once} timed out while another caller was still computing the value. */
public class NotMadeException extends NotAcquiredException {
  private static final long serialVersionUID = 1;

  NotMadeException(String message, String lock, @Nullable String holder) {
    super(message, lock, holder);
  }
}
