package redislock;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** Milliseconds by the monotonic clock, and the pauses between retries. */
final class Clock {
  /** Later than any other time; still far from an overflow. */
  static final long NEVER = Long.MAX_VALUE / 4;

  private static final long ORIGIN = System.nanoTime();

  private Clock() {}

  static long now() {
    return (System.nanoTime() - ORIGIN) / 1_000_000;
  }

  /** The time so many milliseconds after another. */
  static long after(long time, long ms) {
    return ms >= NEVER ? NEVER : time + ms;
  }

  /** Whole milliseconds, rounded up, {@link #NEVER} at most. */
  static long ms(Duration duration) {
    if (duration.compareTo(Duration.ofDays(36_500)) > 0) {
      return NEVER;
    }
    return duration.plusNanos(999_999).toMillis();
  }

  /** A random part, from 1/2 to 1, of a pause. */
  static long jittered(long ms) {
    return (long) Math.ceil(ms * (0.5 + ThreadLocalRandom.current().nextDouble() / 2));
  }

  /** Jittered pauses, far below lock.keep-place (1 s): a waiter keeps its place in the queue. */
  static final class Backoff {
    private final long last;
    private long longest = 10;

    Backoff(long last) {
      this.last = last;
    }

    long next(long until) {
      long ms = jittered(longest);
      longest = Math.min(longest * 2, last);
      return Math.max(0, Math.min(ms, until - now()));
    }
  }

  /**
   * Resends for so long after the first failure; there is a second try, however late the first one
   * failed.
   */
  static final class Resend {
    private final long limitMs;
    private final Backoff backoff;
    private long until = -1;

    Resend(long limitMs, long lastMs) {
      this.limitMs = limitMs;
      this.backoff = new Backoff(lastMs);
    }

    boolean over() {
      if (until < 0) {
        until = after(now(), limitMs);
        return false;
      }
      return now() >= until;
    }

    long pause() {
      return backoff.next(until < 0 ? now() : until);
    }
  }
}
