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
    fence = grant.fence();
    deadline = grant.deadline();
    holds.put(mode, grant.holds());
  }

  /** The lease was restarted, with this length. */
  synchronized void renewed(long leaseMs, long deadline) {
    this.leaseMs = leaseMs;
    this.deadline = deadline;
    if (keeper != null) {
      keeper.again(this);
    }
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
      next.again(this);
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
