package redislock;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/**
 * The holds of one owner on one lock: until when they are sure to last, and whether they are lost.
 * Thread-safe; its monitor is held for a moment only, never over I/O.
 *
 * <pre>
 *   open ──release──▶ over
 *     └──lose──▶ lost (told once) ──release──▶ over
 * </pre>
 */
final class Owner {
  final String lock;
  final byte[] token;

  /**
   * Completes with the loss, which is final then, even if the server still has the hold; not once
   * all was released.
   */
  final CompletableFuture<LockLostException> lost = new CompletableFuture<>();

  /** The length of the lease; of later renewals too. */
  volatile long leaseMs;

  /** 0: nothing was granted yet. */
  volatile long fence;

  volatile long deadline = Clock.NEVER;

  /** A release before this time leaves the lock held until then (at_least). */
  volatile long keptUntil = -Clock.NEVER;

  /**
   * Only of a session: its connection. While it lives the server renews the lease, so no local
   * deadline applies.
   */
  volatile @Nullable Line line;

  /**
   * Only of a lock that is owned by a thread: that thread. Where it has ended without unlock(),
   * nothing releases the lock any more, and nothing is to renew it.
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

  /** Tells the loss, unless it is told already or all was released. */
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

  /** The lease has begun again, with this length. */
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
    return holds.entrySet().stream()
        .anyMatch(each -> !each.getKey().equals(mode) && each.getValue() > 0);
  }

  /** True if a renewal keeps it, or a session. */
  synchronized boolean isRenewed() {
    return keeper != null && keeper.renews();
  }

  /** A loss is listened for: from now on the deadline is watched, which costs a timer. */
  synchronized void watched(Driver driver) {
    if (keeper == null && !over && !lost.isDone()) {
      new Keeper(driver, this, null, null);
    }
  }

  /**
   * In place of an earlier keeper; null: none from now on. Completes when what that one has under
   * way is over.
   */
  synchronized CompletableFuture<?> keptBy(@Nullable Keeper next) {
    Keeper earlier = keeper;
    keeper = next;
    if (next != null) {
      next.again(this);
    }
    return earlier == null ? CompletableFuture.completedFuture(null) : earlier.stop();
  }

  /** Released or given up: no loss is told from here on. */
  void end() {
    over = true;
    keptBy(null);
    Line session = line;
    if (session != null) {
      session.close();
    }
  }
}
