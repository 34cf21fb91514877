package redislock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * The holds of one owner on one lock: until when they are sure to last, and whether they are lost.
 * Thread-safe.
 *
 * <pre>
 *   open ──release──▶ over
 *     └──lose──▶ lost (told once) ──release──▶ over
 * </pre>
 */
final class Owner {
  final String lock;
  final byte[] token;

  /** The length of the lease; of later renewals too. */
  volatile long leaseMs;

  /** 0: nothing was granted yet. */
  volatile long fence;

  volatile int slot = -1;
  volatile long deadline = Clock.NEVER;

  /** A release before this time leaves the lock held until then (at_least). */
  volatile long keptUntil = -Clock.NEVER;

  /**
   * Only of a session: its connection. While it lives the server renews the lease, so no local
   * deadline applies.
   */
  volatile @Nullable Line line;

  private volatile boolean over;
  private volatile @Nullable LockLostException lostAs;
  private final ReentrantLock mutex = new ReentrantLock();
  private final Map<String, Integer> holds = new HashMap<>(2);
  private final List<Consumer<LockLostException>> tells = new ArrayList<>(1);
  private final List<Keeper> keepers = new ArrayList<>(1);
  private @Nullable Runnable watch;
  private boolean watched;
  private final AtomicReference<CompletableFuture<@Nullable Void>> last =
      new AtomicReference<>(CompletableFuture.completedFuture(null));

  Owner(String lock, byte[] token, long leaseMs) {
    this.lock = lock;
    this.token = token;
    this.leaseMs = leaseMs;
  }

  boolean isOver() {
    return over;
  }

  boolean isLost() {
    return told() || !over && line == null && Clock.now() >= deadline;
  }

  /** True if the loss was told: it is final, even if the server still has the hold. */
  boolean told() {
    return lostAs != null;
  }

  /** Tells the loss, unless it is told already or all was released. */
  void lose() {
    List<Consumer<LockLostException>> told;
    LockLostException error;
    mutex.lock();
    try {
      if (lostAs != null || over) {
        return;
      }
      error = lostAs = new LockLostException("the lock \"" + lock + "\" was lost", lock);
      told = List.copyOf(tells);
    } finally {
      mutex.unlock();
    }
    stopKeepers();
    told.forEach(tell -> tell.accept(error));
  }

  void onLost(Consumer<LockLostException> tell) {
    LockLostException already;
    mutex.lock();
    try {
      already = lostAs;
      if (already == null) {
        tells.add(tell);
      }
    } finally {
      mutex.unlock();
    }
    if (already != null) {
      tell.accept(already);
    }
  }

  /**
   * How to watch the deadline. This costs a timer, so it starts with the first listener for a loss.
   */
  void watchedBy(Runnable watch) {
    mutex.lock();
    try {
      this.watch = watch;
      if (!watched) {
        return;
      }
    } finally {
      mutex.unlock();
    }
    watch.run();
  }

  /** A loss is listened for: from now on the deadline is watched. */
  void watched() {
    Runnable start;
    mutex.lock();
    try {
      start = watched ? null : watch;
      watched = true;
    } finally {
      mutex.unlock();
    }
    if (start != null) {
      start.run();
    }
    if (isLost()) {
      lose();
    }
  }

  void granted(Grant grant, String mode) {
    mutex.lock();
    try {
      fence = grant.fence();
      slot = grant.slot();
      deadline = grant.deadline();
      holds.put(mode, grant.holds());
    } finally {
      mutex.unlock();
    }
  }

  /** The lease has begun again, with this length. */
  void renewed(long leaseMs, long deadline) {
    this.leaseMs = leaseMs;
    this.deadline = deadline;
    keepers().forEach(Keeper::again);
  }

  int holds(String mode) {
    mutex.lock();
    try {
      return holds.getOrDefault(mode, 0);
    } finally {
      mutex.unlock();
    }
  }

  void holds(String mode, int count) {
    mutex.lock();
    try {
      holds.put(mode, count);
    } finally {
      mutex.unlock();
    }
  }

  boolean holdsBeside(String mode) {
    mutex.lock();
    try {
      return holds.entrySet().stream()
          .anyMatch(each -> !each.getKey().equals(mode) && each.getValue() > 0);
    } finally {
      mutex.unlock();
    }
  }

  void keptBy(Keeper keeper) {
    mutex.lock();
    try {
      keepers.add(keeper);
    } finally {
      mutex.unlock();
    }
  }

  boolean isKept() {
    return !keepers().isEmpty();
  }

  private List<Keeper> keepers() {
    mutex.lock();
    try {
      return List.copyOf(keepers);
    } finally {
      mutex.unlock();
    }
  }

  /** Returns when what they have under way is over. */
  CompletableFuture<?> stopKeepers() {
    List<Keeper> stopped = keepers();
    mutex.lock();
    try {
      keepers.clear();
    } finally {
      mutex.unlock();
    }
    return CompletableFuture.allOf(
        stopped.stream().map(Keeper::stop).toArray(CompletableFuture[]::new));
  }

  /** Released or given up: no loss is told from here on. */
  void end() {
    over = true;
    stopKeepers();
    Line session = line;
    if (session != null) {
      session.close();
    }
  }

  /** One request of this owner; it runs when its earlier requests are over. */
  final class Turn {
    private final CompletableFuture<@Nullable Void> mine = new CompletableFuture<>();

    /** Completes when the earlier requests are over. */
    final CompletableFuture<@Nullable Void> begins = last.getAndSet(mine);

    void end() {
      // Also of a turn that its caller left before it began.
      begins.whenComplete((none, error) -> mine.complete(null));
    }
  }
}
