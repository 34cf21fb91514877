package redislock;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** Milliseconds of the monotonic clock, and the pauses between retries. */
final class Clock {
  /** Later than any other time, but far from an overflow. */
  static final long NEVER = Long.MAX_VALUE / 4;

  /** Longer durations saturate here. The server refuses a lease that long. */
  private static final long LONGEST = NEVER - 1;

  private static final long ORIGIN = System.nanoTime();

  private Clock() {}

  static long now() {
    return (System.nanoTime() - ORIGIN) / 1_000_000;
  }

  /** Adds milliseconds to a time. */
  static long after(long time, long ms) {
    return ms >= NEVER ? NEVER : time + ms;
  }

  /** Whole milliseconds, rounded up; zero or less: 0. */
  private static long ms(Duration duration) {
    if (duration.isNegative()) {
      return 0;
    }
    boolean isLongest = duration.getSeconds() >= LONGEST / 1000;
    return isLongest ? LONGEST : duration.plusNanos(999_999).toMillis();
  }

  /**
   * Whole milliseconds, rounded up.
   *
   * @throws IllegalArgumentException if it is zero or less
   */
  static long positive(String what, Duration duration) {
    if (duration.isNegative() || duration.isZero()) {
      throw new IllegalArgumentException(what + " must be greater than zero, not " + duration);
    }
    return ms(duration);
  }

  /** Whole milliseconds to wait, rounded up; zero or less: 0; for centuries: {@link #NEVER}. */
  static long wait(Duration duration) {
    long ms = ms(duration);
    return ms == LONGEST ? NEVER : ms;
  }

  /** The milliseconds, multiplied by a random number between these two. */
  static long random(long ms, double from, double to) {
    return (long) Math.ceil(ms * ThreadLocalRandom.current().nextDouble(from, to));
  }

  /**
   * Retries for a limited time after the first failure. A request is always tried twice, however
   * late the first attempt failed. The pauses stay far below lock.keep-place (1 s), so that a
   * waiter keeps its queue position.
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

    /** It got a reply, so the next failure is a first one again. */
    void answered() {
      pauseMs = 10;
    }
  }
}
