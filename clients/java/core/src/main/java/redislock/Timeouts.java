package redislock;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Timeouts of which few expire, such as those of replies. The timer's thread sleeps until the
 * earliest one that is known and then looks at all of them. Adding a later one or cancelling one
 * therefore wakes no thread, which would cost more CPU time than the command itself.
 */
final class Timeouts {
  /** Timeouts that expire within this time of each other share a check. */
  private static final long TOGETHER_MS = 5;

  private final ScheduledExecutorService timer;
  private final Set<Timeout> all = ConcurrentHashMap.newKeySet();

  /** When the next check is due; {@link Clock#NEVER}: no check is scheduled. */
  private final AtomicLong next = new AtomicLong(Clock.NEVER);

  Timeouts(ScheduledExecutorService timer) {
    this.timer = timer;
  }

  /** A timeout that has neither expired nor been cancelled. */
  final class Timeout {
    private final long due;
    private final Runnable expired;

    private Timeout(long due, Runnable expired) {
      this.due = due;
      this.expired = expired;
    }

    void cancel() {
      all.remove(this);
    }
  }

  /** Runs this on the timer's thread after the time, unless it is cancelled before. */
  Timeout add(long ms, Runnable expired) {
    Timeout timeout = new Timeout(Clock.after(Clock.now() + 1, Math.max(0, ms)), expired);
    all.add(timeout);
    checkAt(timeout.due);
    return timeout;
  }

  private void checkAt(long due) {
    long scheduled = next.get();
    while (due < scheduled) {
      if (next.compareAndSet(scheduled, due)) {
        timer.schedule(() -> check(due), Math.max(0, due - Clock.now()), TimeUnit.MILLISECONDS);
        return;
      }
      scheduled = next.get();
    }
  }

  private void check(long due) {
    if (!next.compareAndSet(due, Clock.NEVER)) {
      // An earlier check was scheduled since, and has scheduled the next one.
      return;
    }
    long now = Clock.now();
    long earliest = Clock.NEVER;
    for (Timeout each : all) {
      if (each.due > now) {
        earliest = Math.min(earliest, each.due);
      } else if (all.remove(each)) {
        timer.execute(each.expired);
      }
    }
    if (earliest != Clock.NEVER) {
      // The more timeouts there are, the longer a check takes, and the fewer are made.
      checkAt(Math.max(earliest, now + TOGETHER_MS + all.size() / 1000));
    }
  }
}
