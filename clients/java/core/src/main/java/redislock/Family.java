package redislock;

import java.util.Arrays;
import java.util.List;

/**
 * The commands of a family of locks, and the meaning of its replies. {@code holds} is always what
 * the owner holds after the command, so that every command can be sent again. No I/O, no state.
 */
final class Family {
  /** A lease without a deadline. */
  static final long PERSIST = Clock.NEVER;

  final LockEvent.Kind kind;
  final List<byte[]> keys;

  /** READ or WRITE; of other families the empty string. Each mode has its own count of holds. */
  final String mode;

  /** Each holder has one permit, and its number. */
  final boolean hasSlots;

  private final String commands;
  private final List<?> asked;

  private Family(
      LockEvent.Kind kind, String commands, List<byte[]> keys, List<?> asked, boolean hasSlots) {
    this.kind = kind;
    this.commands = commands;
    this.keys = keys;
    this.asked = asked;
    this.hasSlots = hasSlots;
    this.mode = commands.equals("RWLOCK") ? kind.name() : "";
  }

  static Family mutex(byte[] key) {
    return new Family(LockEvent.Kind.MUTEX, "LOCK", List.of(key), List.of(), false);
  }

  static Family several(List<byte[]> keys) {
    return new Family(LockEvent.Kind.MULTI, "MLOCK", keys, List.of(), false);
  }

  static Family reentrant(byte[] key) {
    return new Family(LockEvent.Kind.REENTRANT, "RLOCK", List.of(key), List.of(), false);
  }

  /** One view of a read/write lock; {@code kind} is READ or WRITE. */
  static Family readWrite(byte[] key, LockEvent.Kind kind) {
    return new Family(kind, "RWLOCK", List.of(key), List.of(kind), false);
  }

  static Family semaphore(byte[] key, int limit, boolean hasSlots) {
    return new Family(
        LockEvent.Kind.SEMAPHORE, "SEM", List.of(key), List.of("LIMIT", limit), hasSlots);
  }

  byte[] key() {
    return keys.get(0);
  }

  /** True if the server counts the holds of one owner (HOLDS). */
  boolean counts() {
    return kind != LockEvent.Kind.MUTEX && kind != LockEvent.Kind.MULTI;
  }

  /** True if the owner of one may acquire the other while it holds it. */
  boolean nests(Family other) {
    return counts()
        && kind != LockEvent.Kind.SEMAPHORE
        && commands.equals(other.commands)
        && Arrays.equals(key(), other.key());
  }

  private List<?> named() {
    return kind == LockEvent.Kind.MULTI ? List.of(keys.size(), keys) : keys;
  }

  private static List<?> lasting(long leaseMs) {
    return leaseMs == PERSIST ? List.of("PERSIST") : List.of("PX", leaseMs);
  }

  List<byte[]> acquire(byte[] token, int holds, long leaseMs) {
    List<?> held = hasSlots ? List.of("SLOT") : counts() ? List.of("HOLDS", holds) : List.of();
    return Words.of(commands + ".ACQUIRE", named(), token, asked, held, lasting(leaseMs));
  }

  List<byte[]> release(byte[] token, int holds, boolean failed) {
    List<?> mode = this.mode.isEmpty() ? List.of() : asked;
    List<?> left = counts() ? List.of("HOLDS", holds) : List.of();
    List<?> how = failed && kind == LockEvent.Kind.MUTEX ? List.of("FAILED") : List.of();
    return Words.of(commands + ".RELEASE", named(), token, mode, left, how);
  }

  List<byte[]> renew(byte[] token, long leaseMs) {
    return Words.of(commands + ".RENEW", named(), token, lasting(leaseMs));
  }

  /** True if the reply says that the release found the hold. */
  boolean wasHeld(long reply) {
    return counts() ? reply >= 0 : reply == keys.size();
  }

  List<byte[]> held(byte[] token) {
    return Words.of("LOCK.HELD", key(), token);
  }

  List<byte[]> exec(byte[] token, List<byte[]> command) {
    return Words.of("LOCK.EXEC", key(), token, command);
  }

  List<byte[]> cancel(byte[] token) {
    return Words.of("LOCK.CANCEL", key(), token);
  }
}
