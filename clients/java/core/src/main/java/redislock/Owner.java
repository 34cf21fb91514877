package redislock;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/**
 * The holds of one owner on one lock, with their local deadline and whether they are lost.
 * Thread-safe; its monitor is never held during I/O.
 *
 * <pre>
 *   open ──release──▶ over
 *     └──lose──▶ lost (reported once) ──release──▶ over
 * </pre>
 *
 * <p>Renewals by the keeper and by callers use different connections, or wait for the same one in
 * no fixed order, so the server may execute those that overlap in any order. Meanwhile the deadline
 * counts with the shortest of their leases, and when all have ended, the keeper renews at once.
 */
final class Owner {
  final String lock;
  final byte[] token;

  /**
   * Completes with the loss, which is then final even if the server still has the hold. Never
   * completes once everything was released.
   */
  final CompletableFuture<LockLostException> lost = new CompletableFuture<>();

  /** The length of the lease, including that of later renewals. */
  volatile long leaseMs;

  /** 0 until the first grant. */
  volatile long fence;

  volatile long deadline = Clock.NEVER;

  /** A release before this time keeps the lock held until then (atLeast). */
  volatile long keptUntil = -Clock.NEVER;

  /**
   * The connection of a session. While it lives the server renews the lease, so no local deadline
   * applies.
   */
  volatile @Nullable Line line;

  /**
   * The thread that owns the lock, for {@link ThreadLock} only. If it ends without unlock(),
   * nothing will release the lock, so it must not be renewed any more.
   */
  volatile @Nullable Thread thread;

  private volatile boolean over;
  private final Map<String, Integer> holds = new HashMap<>(2);
  private @Nullable Keeper keeper;

  /** Renewals without a reply. */
  private int renewing;

  /** True if some of these renewals were outstanding at the same time. */
  private boolean overlap;

  /** The shortest lease of these renewals. */
  private long shortestMs = Clock.NEVER;

  Owner(String lock, byte[] token, long leaseMs) {
    this.lock = lock;
    this.token = token;
    this.leaseMs = leaseMs;
  }

  boolean isOver() {
    return over;
  }

  boolean isLost() {
    return lost.isDone() || !over && line == null && Clock.now() >= deadline;
  }

  boolean isAbandoned() {
    Thread holding = thread;
    return holding != null && !holding.isAlive();
  }

  /** Reports the loss, unless it was reported before or everything was released. */
  void lose() {
    if (!over) {
      keptBy(null);
      lost.complete(new LockLostException("the lock \"" + lock + "\" was lost", lock));
    }
  }

  synchronized void granted(Grant grant, String mode) {
    // The server does not shorten the lease of a holder that acquires again.
    boolean isAgain = fence == grant.fence();
    deadline = isAgain ? Math.max(deadline, grant.deadline()) : grant.deadline();
    fence = grant.fence();
    holds.put(mode, grant.holds());
  }

  /** A renewal with this lease begins. */
  synchronized void renews(long leaseMs) {
    overlap |= renewing > 0;
    renewing++;
    shortestMs = Math.min(shortestMs, leaseMs);
  }

  /** A renewal by the keeper begins. Returns its lease. */
  synchronized long renews() {
    renews(leaseMs);
    return leaseMs;
  }

  /** A renewal that was sent at this time has restarted the lease. */
  synchronized void renewed(long sent) {
    deadline = Clock.after(sent, shortestMs);
  }

  /**
   * A renewal has ended, after {@link #renewed(long)} if it succeeded.
   *
   * @param mayHaveRun false: it has certainly failed, and must not postpone the next one
   */
  synchronized void renewalEnded(boolean mayHaveRun) {
    renewing--;
    boolean isUnordered = overlap && renewing == 0;
    if (renewing == 0) {
      overlap = false;
      shortestMs = Clock.NEVER;
    }
    if (keeper != null && (mayHaveRun || isUnordered)) {
      keeper.again(this, isUnordered);
    }
  }

  /** The server may have executed a renewal whose reply was lost. */
  synchronized void mayBeRenewed(long deadline) {
    this.deadline = Math.min(this.deadline, deadline);
    overlap = true;
  }

  /**
   * How long a release in the background is retried: until the lease has expired, even one that the
   * owner was given elsewhere.
   */
  long retryMs() {
    long until = deadline;
    return until == Clock.NEVER ? Clock.NEVER : Math.max(leaseMs, until - Clock.now());
  }

  synchronized int holds(String mode) {
    return holds.getOrDefault(mode, 0);
  }

  synchronized void holds(String mode, int count) {
    holds.put(mode, count);
  }

  synchronized boolean holdsBeside(String mode) {
    for (Map.Entry<String, Integer> each : holds.entrySet()) {
      if (!each.getKey().equals(mode) && each.getValue() > 0) {
        return true;
      }
    }
    return false;
  }

  /** True if it is renewed, or bound to a session. */
  synchronized boolean isRenewed() {
    return keeper != null && keeper.renews();
  }

  /** Someone listens for a loss, so from now on a timer watches the deadline. */
  synchronized void watched(Driver driver) {
    if (keeper == null && !over && !lost.isDone()) {
      new Keeper(driver, this, null, null);
    }
  }

  /**
   * Replaces the keeper; null: there is none from now on. Completes when the running check of the
   * earlier one has ended.
   */
  synchronized CompletableFuture<?> keptBy(@Nullable Keeper next) {
    Keeper earlier = keeper;
    keeper = next;
    if (next != null) {
      next.again(this, false);
    }
    return earlier == null ? CompletableFuture.completedFuture(null) : earlier.stop();
  }

  /** Released or abandoned: from here on no loss is reported. */
  void end() {
    over = true;
    keptBy(null);
    Line session = line;
    if (session != null) {
      session.close();
    }
  }
}
