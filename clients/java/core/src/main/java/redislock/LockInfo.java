package redislock;

import java.time.Duration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/**
 * The state of a lock that is held or has waiters, as {@link RedisLock#info()} returns it.
 *
 * @param kind mutex, reentrant, rw or semaphore
 * @param limit the number of permits of a semaphore; 0 for a read/write lock, 1 for the other types
 * @param fence the fencing token of the latest grant
 * @param timeToLive the time until the key expires; empty if it does not, zero if the lock is free
 * @param holders the oldest first, a hundred at most
 * @param waiters the number of waiting requests
 * @param holding the number of owners that hold the lock
 */
public record LockInfo(
    String kind,
    int limit,
    long fence,
    Optional<Duration> timeToLive,
    List<Holder> holders,
    long waiters,
    long holding) {
  /** The mode in which a lock is held. */
  public enum Mode {
    /** A mutex or reentrant mutex, held by one owner. */
    EXCLUSIVE,
    /** A read/write lock, held by a reader. */
    READ,
    /** A read/write lock, held by the writer. */
    WRITE,
    /** One or more permits of a semaphore. */
    PERMITS
  }

  /**
   * A holder of a lock, or of one mode of a read/write lock.
   *
   * @param owner the owner ID; bytes that are not UTF-8 are shown as {@code \xNN}
   * @param mode the mode in which it holds the lock
   * @param holds how many times it holds the lock; of a semaphore, its permits
   * @param fence the fencing token of its grant
   * @param timeToLive the remaining time of its lease; empty if it has no deadline
   * @param lease the length of its lease; empty if it has none
   * @param age the time since its grant
   * @param session the client ID of the connection that its session is bound to; empty without one
   * @param slot the number of its permit; empty if the semaphore has no slots
   */
  public record Holder(
      String owner,
      Mode mode,
      int holds,
      long fence,
      Optional<Duration> timeToLive,
      Optional<Duration> lease,
      Duration age,
      OptionalLong session,
      OptionalInt slot) {}

  static Optional<LockInfo> of(@Nullable Object reply) {
    if (reply == null) {
      return Optional.empty();
    }
    Map<String, Object> lock = fields(Words.texts(reply));
    List<?> holders = (List<?>) lock.get("holders");
    long ttl = number(lock, "ttl");
    // -2: free, but waited for.
    return Optional.of(
        new LockInfo(
            (String) lock.get("kind"),
            (int) number(lock, "limit"),
            number(lock, "fence"),
            time(ttl == -2 ? 0 : ttl),
            holders.stream().map(each -> holder(fields(each))).toList(),
            number(lock, "waiters"),
            number(lock, "holding")));
  }

  /** The owner ID of the oldest holder; null if the lock is free. */
  static @Nullable String firstHolder(@Nullable Object reply) {
    return of(reply)
        .flatMap(info -> info.holders.stream().findFirst())
        .map(Holder::owner)
        .orElse(null);
  }

  private static Holder holder(Map<String, Object> fields) {
    long session = number(fields, "session");
    int slot = (int) Words.number(fields.getOrDefault("slot", -1));
    return new Holder(
        (String) fields.get("owner"),
        Mode.valueOf(((String) fields.get("mode")).toUpperCase(Locale.ROOT)),
        (int) number(fields, "holds"),
        number(fields, "fence"),
        time(number(fields, "ttl")),
        time(number(fields, "lease")),
        Duration.ofMillis(number(fields, "age")),
        session == 0 ? OptionalLong.empty() : OptionalLong.of(session),
        slot < 0 ? OptionalInt.empty() : OptionalInt.of(slot));
  }

  private static Optional<Duration> time(long ms) {
    return ms < 0 ? Optional.empty() : Optional.of(Duration.ofMillis(ms));
  }

  private static long number(Map<String, Object> fields, String name) {
    return Words.number(fields.get(name));
  }

  /** Reads a list of names and values. */
  private static Map<String, Object> fields(Object reply) {
    Map<String, Object> fields = new HashMap<>();
    for (Iterator<?> words = ((List<?>) reply).iterator(); words.hasNext(); ) {
      fields.put((String) words.next(), words.next());
    }
    return fields;
  }
}
