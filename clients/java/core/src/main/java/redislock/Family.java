package redislock;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The commands of each family of locks, and the meaning of its replies. {@code holds} is always
 * what the owner holds after the command, so that every command can be sent again. No I/O, no
 * state.
 */
abstract class Family {
  /** A lease without a deadline. */
  static final long PERSIST = Clock.NEVER;

  final List<byte[]> keys;
  final LockEvent.Kind kind;

  private Family(LockEvent.Kind kind, List<byte[]> keys) {
    this.kind = kind;
    this.keys = keys;
  }

  byte[] key() {
    return keys.get(0);
  }

  /** READ or WRITE; of other families the empty string. Each mode has its own count of holds. */
  String mode() {
    return "";
  }

  /** True if the server counts the holds of one owner (HOLDS). */
  boolean counts() {
    return false;
  }

  /** True if the owner may acquire it again while it holds it. */
  boolean reentrant() {
    return false;
  }

  boolean hasSlots() {
    return false;
  }

  abstract List<byte[]> acquire(byte[] token, int holds, long leaseMs);

  abstract List<byte[]> release(byte[] token, int holds, boolean failed);

  abstract List<byte[]> renew(byte[] token, long leaseMs);

  /** True if the reply says that the release found the hold. */
  boolean wasHeld(long reply) {
    return reply >= 0;
  }

  /**
   * Releases of each key by itself, for when one of several became something else: then nothing was
   * released.
   */
  List<List<byte[]>> releaseEach(byte[] token) {
    return List.of();
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

  private static List<?> lasting(long leaseMs) {
    return leaseMs == PERSIST ? List.of("PERSIST") : List.of("PX", leaseMs);
  }

  static Family mutex(byte[] key) {
    return new Family(LockEvent.Kind.MUTEX, List.of(key)) {
      @Override
      List<byte[]> acquire(byte[] token, int holds, long leaseMs) {
        return Words.of("LOCK.ACQUIRE", key, token, lasting(leaseMs));
      }

      @Override
      List<byte[]> release(byte[] token, int holds, boolean failed) {
        return Words.of("LOCK.RELEASE", key, token, failed ? List.of("FAILED") : List.of());
      }

      @Override
      List<byte[]> renew(byte[] token, long leaseMs) {
        return Words.of("LOCK.RENEW", key, token, lasting(leaseMs));
      }

      @Override
      boolean wasHeld(long reply) {
        return reply == 1;
      }
    };
  }

  static Family several(List<byte[]> keys) {
    return new Family(LockEvent.Kind.MULTI, keys) {
      @Override
      List<byte[]> acquire(byte[] token, int holds, long leaseMs) {
        return Words.of("MLOCK.ACQUIRE", keys.size(), keys, token, lasting(leaseMs));
      }

      @Override
      List<byte[]> release(byte[] token, int holds, boolean failed) {
        return Words.of("MLOCK.RELEASE", keys.size(), keys, token);
      }

      @Override
      List<byte[]> renew(byte[] token, long leaseMs) {
        return Words.of("MLOCK.RENEW", keys.size(), keys, token, lasting(leaseMs));
      }

      @Override
      boolean wasHeld(long reply) {
        return reply == keys.size();
      }

      @Override
      List<List<byte[]>> releaseEach(byte[] token) {
        return keys.stream().map(key -> Words.of("LOCK.RELEASE", key, token)).toList();
      }
    };
  }

  static Family reentrant(byte[] key) {
    return new Counted("RLOCK", key, "", LockEvent.Kind.REENTRANT, List.of());
  }

  /** One view of a read/write lock; {@code mode} is READ or WRITE. */
  static Family readWrite(byte[] key, String mode) {
    LockEvent.Kind kind = mode.equals("READ") ? LockEvent.Kind.READ : LockEvent.Kind.WRITE;
    return new Counted("RWLOCK", key, mode, kind, List.of());
  }

  static Family semaphore(byte[] key, int limit) {
    return new Counted("SEM", key, "", LockEvent.Kind.SEMAPHORE, List.of("LIMIT", limit));
  }

  /** One permit with its slot number, which no other holder has. */
  static Family slots(byte[] key, int limit) {
    return new Counted("SEM", key, "", LockEvent.Kind.SEMAPHORE, List.of("LIMIT", limit)) {
      @Override
      boolean hasSlots() {
        return true;
      }
    };
  }

  private static class Counted extends Family {
    private final String prefix;
    private final String mode;
    private final List<?> asked;

    Counted(String prefix, byte[] key, String mode, LockEvent.Kind kind, List<?> asked) {
      super(kind, List.of(key));
      this.prefix = prefix;
      this.mode = mode;
      this.asked = mode.isEmpty() ? asked : List.of(mode);
    }

    @Override
    String mode() {
      return mode;
    }

    @Override
    boolean counts() {
      return true;
    }

    @Override
    boolean reentrant() {
      return !prefix.equals("SEM");
    }

    @Override
    List<byte[]> acquire(byte[] token, int holds, long leaseMs) {
      List<?> held = hasSlots() ? List.of("SLOT") : List.of("HOLDS", holds);
      return Words.of(prefix + ".ACQUIRE", key(), token, asked, held, lasting(leaseMs));
    }

    @Override
    List<byte[]> release(byte[] token, int holds, boolean failed) {
      return Words.of(
          prefix + ".RELEASE", key(), token, mode.isEmpty() ? List.of() : mode, "HOLDS", holds);
    }

    @Override
    List<byte[]> renew(byte[] token, long leaseMs) {
      return Words.of(prefix + ".RENEW", key(), token, lasting(leaseMs));
    }
  }

  /** The grant, the end of a coalesced wait, or neither, that a reply to an acquire tells. */
  record Answer(State state, long fence, int holds, int slot) {
    enum State {
      GRANTED,
      QUEUED,
      DONE,
      NOT_GRANTED
    }

    static Answer of(@Nullable Object reply) {
      if (!(reply instanceof List<?> list)) {
        return new Answer(State.NOT_GRANTED, 0, 0, -1);
      }
      long fence = Words.number(list.get(1));
      int holds = list.size() > 2 ? (int) Words.number(list.get(2)) : 1;
      int slot = list.size() > 3 ? (int) Words.number(list.get(3)) : -1;
      State state = list.get(0) == null ? State.DONE : fence == 0 ? State.QUEUED : State.GRANTED;
      return new Answer(state, fence, holds, slot);
    }
  }
}
