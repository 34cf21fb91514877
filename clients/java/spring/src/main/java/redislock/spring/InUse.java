package redislock.spring;

import java.util.concurrent.TimeUnit;

/**
 * Counts the locks that calls and threads hold. When an application stops, Spring interrupts them
 * and goes on, so their releases come a moment later: the locks must not be closed before that,
 * because a lock that is not released stays held for its lease.
 */
final class InUse {
  private static final long PATIENCE_NS = TimeUnit.SECONDS.toNanos(5);

  private int count;

  synchronized void begin() {
    count++;
  }

  synchronized void end() {
    count--;
    notifyAll();
  }

  /** Waits until nothing is held, 5 s at most. */
  synchronized void awaitEnd() {
    long ends = System.nanoTime() + PATIENCE_NS;
    try {
      for (long left = PATIENCE_NS; count > 0 && left > 0; left = ends - System.nanoTime()) {
        TimeUnit.NANOSECONDS.timedWait(this, left);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
