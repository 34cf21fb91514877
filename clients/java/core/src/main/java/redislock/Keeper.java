package redislock;

import java.lang.ref.WeakReference;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * A task beside a hold: renews it, checks a session's connection, or tells the end of its lease.
 * Between two checks it does not refer to the hold: a hold that was dropped ends with its lease,
 * and is not renewed for ever.
 */
abstract class Keeper {
  private final Driver driver;
  private final WeakReference<Owner> ref;
  private final ReentrantLock mutex = new ReentrantLock();
  private boolean stopped;
  private @Nullable ScheduledFuture<?> timer;
  private CompletableFuture<?> underWay = CompletableFuture.completedFuture(null);

  private Keeper(Driver driver, Owner owner) {
    this.driver = driver;
    this.ref = new WeakReference<>(owner);
    owner.keptBy(this);
    set(nextMs(owner));
  }

  abstract long nextMs(Owner owner);

  abstract CompletableFuture<?> check(Owner owner);

  /** Completes when the check that is under way is over. */
  CompletableFuture<?> stop() {
    mutex.lock();
    try {
      stopped = true;
      if (timer != null) {
        timer.cancel(false);
      }
      return underWay;
    } finally {
      mutex.unlock();
    }
  }

  /** The lease begins again, with another length. */
  void again() {
    Owner owner = ref.get();
    if (owner != null) {
      set(nextMs(owner));
    }
  }

  private void set(long ms) {
    mutex.lock();
    try {
      if (timer != null) {
        timer.cancel(false);
      }
      if (!stopped && ms < Clock.NEVER) {
        timer = driver.timer.schedule(this::ring, Math.max(0, ms), TimeUnit.MILLISECONDS);
      }
    } finally {
      mutex.unlock();
    }
  }

  private void ring() {
    Owner owner = ref.get();
    if (owner == null || owner.isOver()) {
      return;
    }
    if (owner.isLost()) {
      owner.lose();
      return;
    }
    CompletableFuture<?> checking = check(owner).handle((result, error) -> null);
    mutex.lock();
    try {
      underWay = checking;
    } finally {
      mutex.unlock();
    }
  }

  /** The outcome of a check: the next one is a third of the lease later, unless it was the last. */
  final void settled(Owner owner, boolean held) {
    boolean isOver;
    mutex.lock();
    try {
      isOver = stopped || owner.isOver();
    } finally {
      mutex.unlock();
    }
    if (isOver) {
      return;
    }
    if (!held || owner.isLost()) {
      owner.lose();
    } else {
      set(nextMs(owner));
    }
  }

  /** Renews after each third of the lease; a loss is told within a third. */
  static void renew(Driver driver, Owner owner, Family family, Runnable onRenewed) {
    new Keeper(driver, owner) {
      @Override
      long nextMs(Owner owner) {
        return owner.leaseMs / 3;
      }

      @Override
      CompletableFuture<?> check(Owner owner) {
        long leaseMs = owner.leaseMs;
        return driver
            .start(Repeat.keeping(family, owner.token, owner.lock, leaseMs, owner.deadline), null)
            .whenComplete(
                (deadline, error) -> {
                  if (deadline != null && owner.leaseMs == leaseMs) {
                    owner.deadline = deadline;
                    onRenewed.run();
                  }
                  // What fails until the deadline was tried again until then.
                  settled(owner, error != null ? !owner.isLost() : deadline != null);
                });
      }
    };
  }

  /**
   * The server renews. The lock is lost when the connection ends, or when a check after a third of
   * the lease fails.
   */
  static void session(Driver driver, Owner owner, Family family, Line line) {
    WeakReference<Owner> ref = new WeakReference<>(owner);
    line.keep(
        () -> {
          Owner kept = ref.get();
          if (kept != null) {
            kept.lose();
          }
        });
    Driver.CLEANER.register(owner, line::close);
    new Keeper(driver, owner) {
      @Override
      long nextMs(Owner owner) {
        return owner.leaseMs / 3;
      }

      @Override
      CompletableFuture<?> check(Owner owner) {
        long sent = Clock.now();
        return line.check(family.held(owner.token), Limits.LATE_MS)
            .whenComplete(
                (reply, error) -> {
                  boolean held = error == null && reply instanceof List<?>;
                  if (held && owner.leaseMs != Family.PERSIST) {
                    owner.deadline = Clock.after(sent, owner.leaseMs);
                  }
                  settled(owner, held);
                });
      }
    };
  }

  /** Tells the loss when the lease is over by the local clock. */
  static void deadline(Driver driver, Owner owner) {
    new Keeper(driver, owner) {
      @Override
      long nextMs(Owner owner) {
        return owner.deadline == Clock.NEVER ? Clock.NEVER : owner.deadline - Clock.now() + 1;
      }

      @Override
      CompletableFuture<?> check(Owner owner) {
        settled(owner, true);
        return CompletableFuture.completedFuture(null);
      }
    };
  }

  /** The failure itself, without what a future wraps around it. */
  static Throwable cause(Throwable error) {
    return error instanceof CompletionException && error.getCause() != null
        ? error.getCause()
        : error;
  }
}
