package redislock;

import java.lang.ref.WeakReference;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * A task beside a hold: renews it, checks a session's connection, or tells the end of its lease.
 * Between two checks it does not refer to the hold: a hold that was dropped ends with its lease,
 * and is not renewed for ever.
 */
abstract class Keeper {
  private final Driver driver;
  private final WeakReference<Owner> ref;
  private boolean stopped;
  private @Nullable ScheduledFuture<?> timer;
  private CompletableFuture<?> underWay = CompletableFuture.completedFuture(null);

  private Keeper(Driver driver, Owner owner) {
    this.driver = driver;
    this.ref = new WeakReference<>(owner);
    owner.keptBy(this);
  }

  /** The time to the next check; {@link Clock#NEVER}: none. */
  long nextMs(Owner owner) {
    return owner.leaseMs == Family.PERSIST ? Clock.NEVER : owner.leaseMs / 3;
  }

  boolean renews() {
    return true;
  }

  /** Completes with true if the lock is held. */
  abstract CompletableFuture<Boolean> check(Owner owner);

  /** Completes when the check that is under way is over. */
  synchronized CompletableFuture<?> stop() {
    stopped = true;
    if (timer != null) {
      timer.cancel(false);
    }
    return underWay;
  }

  /** The lease begins again, maybe with another length. */
  synchronized void again(Owner owner) {
    if (timer != null) {
      timer.cancel(false);
    }
    long ms = nextMs(owner);
    if (!stopped && ms < Clock.NEVER) {
      timer = driver.timer.schedule(this::ring, Math.max(0, ms), TimeUnit.MILLISECONDS);
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
    CompletableFuture<?> checking =
        check(owner).handle((held, error) -> settled(owner, error == null && held));
    synchronized (this) {
      underWay = checking;
    }
  }

  private @Nullable Object settled(Owner owner, boolean held) {
    synchronized (this) {
      if (stopped || owner.isOver()) {
        return null;
      }
    }
    if (!held || owner.isLost()) {
      owner.lose();
    } else {
      again(owner);
    }
    return null;
  }

  /** Renews after each third of the lease; a loss is told within a third. */
  static void renew(Driver driver, Owner owner, Family family, Runnable onRenewed) {
    new Keeper(driver, owner) {
      @Override
      CompletableFuture<Boolean> check(Owner owner) {
        long leaseMs = owner.leaseMs;
        return driver
            .start(Repeat.keeping(family, owner, leaseMs), null)
            .handle(
                (deadline, error) -> {
                  if (deadline != null && owner.leaseMs == leaseMs) {
                    owner.deadline = deadline;
                    onRenewed.run();
                  }
                  // What fails until the deadline was tried again until then.
                  return error != null ? !owner.isLost() : deadline != null;
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
      CompletableFuture<Boolean> check(Owner owner) {
        long sent = Clock.now();
        return line.check(family.held(owner.token), Limits.LATE_MS)
            .thenApply(
                reply -> {
                  owner.deadline = Clock.after(sent, owner.leaseMs);
                  return reply instanceof List<?>;
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
      boolean renews() {
        return false;
      }

      @Override
      CompletableFuture<Boolean> check(Owner owner) {
        return CompletableFuture.completedFuture(true);
      }
    };
  }
}
