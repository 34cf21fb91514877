package redislock;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The outcome of an acquire. {@code done}: there is no hold, because the hold with this fence did
 * the work (COALESCE).
 *
 * @param deadline in the time of {@link Clock#now()}; {@link Clock#NEVER}: none
 * @param slot -1: none
 */
record Grant(boolean done, long fence, int holds, long deadline, int slot) {
  static Grant done(long fence) {
    return new Grant(true, fence, 0, Clock.NEVER, -1);
  }

  /** Reads the reply to an acquire. */
  static Grant of(List<?> reply, long deadline) {
    int holds = reply.size() > 2 ? (int) Words.number(reply.get(2)) : 1;
    int slot = reply.size() > 3 ? (int) Words.number(reply.get(3)) : -1;
    return new Grant(false, Words.number(reply.get(1)), holds, deadline, slot);
  }

  /** Reads the reply to LOCK.HELD; null: not held. */
  static @Nullable Grant ofHeld(@Nullable Object reply, long sent) {
    if (!(reply instanceof List<?> list)) {
      return null;
    }
    long leftMs = Words.number(list.get(2));
    long deadline = leftMs < 0 ? Clock.NEVER : Clock.after(sent, leftMs);
    return new Grant(
        false, Words.number(list.get(0)), (int) Words.number(list.get(1)), deadline, -1);
  }
}
