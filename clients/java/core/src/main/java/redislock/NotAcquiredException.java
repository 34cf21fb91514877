package redislock;

import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** Thrown if the lock was not granted in time. */
public class NotAcquiredException extends LockException {
  private static final long serialVersionUID = 1;

  /** Null if unknown. */
  private final @Nullable String holder;

  NotAcquiredException(String message, String lock, @Nullable String holder) {
    super(holder == null ? message : message + ": " + holder + " holds it", lock);
    this.holder = holder;
  }

  /**
   * Returns the owner ID of the holder.
   *
   * @return the owner ID; empty without {@link RedisLock#tellHolder()}, or if it is unknown
   */
  public Optional<String> holder() {
    return Optional.ofNullable(holder);
  }
}
