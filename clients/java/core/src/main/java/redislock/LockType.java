package redislock;

import java.util.Arrays;
import java.util.List;

/**
 * The commands of a lock type, and the meaning of their replies. {@code holds} is always the
 * owner's count after the command, so that every command can be sent again. No I/O, no state.
 *
 * @param limit the number of permits of a semaphore; 0 for other lock types
 * @param hasSlots each holder has one permit, and its number
 */
record LockType(LockEvent.Kind kind, List<byte[]> keys, int limit, boolean hasSlots) {
  /** The lease of a lock without a deadline. */
  static final long PERSIST = Clock.NEVER;

  private String commands() {
    return switch (kind) {
      case MUTEX -> "LOCK";
      case REENTRANT -> "RLOCK";
      case READ, WRITE -> "RWLOCK";
      case SEMAPHORE -> "SEM";
      case MULTI -> "MLOCK";
    };
  }

  /**
   * READ or WRITE; for other lock types the empty string. The holds of each mode are counted
   * separately.
   */
  String mode() {
    return commands().equals("RWLOCK") ? kind.name() : "";
  }

  /** Both modes of a read/write lock; otherwise the mode itself. */
  List<LockType> modes() {
    return mode().isEmpty()
        ? List.of(this)
        : List.of(
            new LockType(LockEvent.Kind.WRITE, keys, limit, hasSlots),
            new LockType(LockEvent.Kind.READ, keys, limit, hasSlots));
  }

  byte[] key() {
    return keys.get(0);
  }

  /** True if the server counts the holds of one owner (HOLDS). */
  boolean counts() {
    return kind != LockEvent.Kind.MUTEX && kind != LockEvent.Kind.MULTI;
  }

  /** True if the owner of a hold of one may acquire the other. */
  boolean nests(LockType other) {
    return counts()
        && kind != LockEvent.Kind.SEMAPHORE
        && commands().equals(other.commands())
        && Arrays.equals(key(), other.key());
  }

  private List<?> moded() {
    return mode().isEmpty() ? List.of() : List.of(mode());
  }

  private List<?> named() {
    return kind == LockEvent.Kind.MULTI ? List.of(keys.size(), keys) : keys;
  }

  private static List<?> lasting(long leaseMs) {
    return leaseMs == PERSIST ? List.of("PERSIST") : List.of("PX", leaseMs);
  }

  List<byte[]> acquire(byte[] token, int holds, long leaseMs) {
    List<?> held = hasSlots ? List.of("SLOT") : counts() ? List.of("HOLDS", holds) : List.of();
    List<?> most = limit > 0 ? List.of("LIMIT", limit) : moded();
    return Words.of(commands() + ".ACQUIRE", named(), token, most, held, lasting(leaseMs));
  }

  List<byte[]> release(byte[] token, int holds, boolean failed) {
    List<?> left = counts() ? List.of("HOLDS", holds) : List.of();
    List<?> how = failed && kind == LockEvent.Kind.MUTEX ? List.of("FAILED") : List.of();
    return Words.of(commands() + ".RELEASE", named(), token, moded(), left, how);
  }

  List<byte[]> renew(byte[] token, long leaseMs) {
    return Words.of(commands() + ".RENEW", named(), token, lasting(leaseMs));
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
