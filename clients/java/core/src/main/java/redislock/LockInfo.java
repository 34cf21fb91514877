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
 * A lock that is held, or free but waited for (LOCK.INFO).
 *
 * @param kind mutex, reentrant, rw or semaphore
 * @param limit the permits of a semaphore; 0 of a read/write lock, 1 of others
 * @param fence of the latest grant
 * @param timeToLive until the key expires; empty: it does not
 * @param holders the oldest first, a hundred at most
 * @param waiters how many requests wait
 * @param holding how many owners hold it
 */
public record LockInfo(
    String kind,
    int limit,
    long fence,
    Optional<Duration> timeToLive,
    List<Holder> holders,
    long waiters,
    long holding) {
  /** How it is held. */
  public enum Mode {
    /** By one owner. */
    EXCLUSIVE,
    /** Among other readers. */
    READ,
    /** By the one writer. */
    WRITE,
    /** Some of a semaphore's permits. */
    PERMITS
  }

  /**
   * The owner of a hold, or of one mode of a read/write lock.
   *
   * @param owner its token; bytes that are not UTF-8 are shown as {@code \xNN}
   * @param mode how it holds
   * @param holds how often, or how many permits
   * @param fence of its grant
   * @param timeToLive until its lease ends; empty: it does not
   * @param lease the length of its lease; empty: it has no end
   * @param age since its grant
   * @param session the client id of the connection that it is bound to; empty: none
   * @param slot the number of its permit; empty: none
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

  /** The owner; null: it is free. */
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

  /** Of a list of names and values. */
  private static Map<String, Object> fields(Object reply) {
    Map<String, Object> fields = new HashMap<>();
    for (Iterator<?> words = ((List<?>) reply).iterator(); words.hasNext(); ) {
      fields.put((String) words.next(), words.next());
    }
    return fields;
  }
}
