package redislock;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** Milliseconds by the monotonic clock, and the pauses between retries. */
final class Clock {
  /** Later than any other time; still far from an overflow. */
  static final long NEVER = Long.MAX_VALUE / 4;

  /** The longest time that a duration stands for: a server refuses such a lease as too long. */
  private static final long LONGEST = NEVER - 1;

  private static final long ORIGIN = System.nanoTime();

  private Clock() {}

  static long now() {
    return (System.nanoTime() - ORIGIN) / 1_000_000;
  }

  /** The time so many milliseconds after another. */
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

  /** Whole milliseconds to wait, rounded up; zero or less: 0; centuries: {@link #NEVER} ends. */
  static long wait(Duration duration) {
    long ms = ms(duration);
    return ms == LONGEST ? NEVER : ms;
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
