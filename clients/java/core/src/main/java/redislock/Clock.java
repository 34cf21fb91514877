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
    boolean isEndless = duration.compareTo(Duration.ofDays(36_500)) > 0;
    return isEndless ? NEVER : duration.plusNanos(999_999).toMillis();
  }

  /** So many milliseconds, times a random number between these two. */
  static long random(long ms, double from, double to) {
    return (long) Math.ceil(ms * ThreadLocalRandom.current().nextDouble(from, to));
  }

  /**
   * Sends again for so long after the first failure; there is a second try, however late the first
   * one failed. The pauses stay far below lock.keep-place (1 s): a waiter keeps its place in the
   * queue.
   */
  static final class Resend {
    private static final long LONGEST_MS = 250;

    private final long limitMs;
    private long until = -1;
    private long pauseMs = 10;

    Resend(long limitMs) {
      this.limitMs = limitMs;
    }

    boolean over() {
      boolean isFirst = until < 0;
      until = isFirst ? after(now(), limitMs) : until;
      return !isFirst && now() >= until;
    }

    long pause() {
      return pause(until < 0 ? now() : until);
    }

    long pause(long until) {
      long ms = random(pauseMs, 0.5, 1);
      pauseMs = Math.min(pauseMs * 2, LONGEST_MS);
      return Math.max(0, Math.min(ms, until - now()));
    }

    /** It was answered: the next failure is a first one. */
    void answered() {
      pauseMs = 10;
    }
  }
}
