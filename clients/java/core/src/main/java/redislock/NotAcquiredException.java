package redislock;

import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** The time to wait was over before the lock was granted. */
public class NotAcquiredException extends LockException {
  private static final long serialVersionUID = 1;

  /** null: not known. */
  private final @Nullable String holder;

  NotAcquiredException(String message, String lock, @Nullable String holder) {
    super(holder == null ? message : message + ": " + holder + " holds it", lock);
    this.holder = holder;
  }

  /**
   * The owner that holds the lock.
   *
   * @return empty without {@link RedisLock#tellHolder()}, and where it is not known
   */
  public Optional<String> holder() {
    return Optional.ofNullable(holder);
  }
}
