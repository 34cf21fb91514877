package redislock.spring;

import java.util.concurrent.TimeUnit;

/**
 * Counts the locks that calls and threads hold. When an application stops, Spring interrupts them
 * without waiting, so their releases come a moment later. The locks must not be closed before that,
 * because a lock that is not released stays held until its lease expires.
 */
final class InUse {
  private static final long TIMEOUT_NS = TimeUnit.SECONDS.toNanos(5);

  private int count;

  synchronized void begin() {
    count++;
  }

  synchronized void end() {
    count--;
    notifyAll();
  }

  /** Waits until no lock is held, for 5 s at most. */
  synchronized void awaitEnd() {
    long ends = System.nanoTime() + TIMEOUT_NS;
    try {
      for (long left = TIMEOUT_NS; count > 0 && left > 0; left = ends - System.nanoTime()) {
        TimeUnit.NANOSECONDS.timedWait(this, left);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
