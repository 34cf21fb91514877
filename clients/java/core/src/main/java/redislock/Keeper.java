package redislock;

import java.lang.ref.WeakReference;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * A background task of a hold, which renews it, checks a session's connection, or reports the end
 * of its lease. Between two checks it does not refer to the hold, so that a hold that was dropped
 * expires instead of being renewed indefinitely.
 */
final class Keeper {
  private final Driver driver;
  private final WeakReference<Owner> ref;

  /**
   * Completes with true if the lock is held; null: only the deadline is reported, and nothing is
   * sent.
   */
  private final @Nullable Function<Owner, CompletableFuture<Boolean>> check;

  /**
   * What a keeper that renews is renewing; null for a session, or if it only reports the deadline.
   */
  private final @Nullable LockType renewed;

  private boolean stopped;
  private Timeouts.@Nullable Timeout timeout;
  private CompletableFuture<?> underWay = CompletableFuture.completedFuture(null);

  Keeper(
      Driver driver,
      Owner owner,
      @Nullable LockType renewed,
      @Nullable Function<Owner, CompletableFuture<Boolean>> check) {
    this.driver = driver;
    this.renewed = renewed;
    this.ref = new WeakReference<>(owner);
    this.check = check;
    if (renewed != null) {
      driver.renewing.add(this);
    }
    owner.keptBy(this);
  }

  boolean renews() {
    return check != null;
  }

  /** Completes when the running check has ended. */
  synchronized CompletableFuture<?> stop() {
    stopped = true;
    driver.renewing.remove(this);
    if (timeout != null) {
      timeout.cancel();
    }
    return underWay;
  }

  /** The lease was restarted, maybe with another length. {@code atOnce}: it has to be renewed. */
  synchronized void again(Owner owner, boolean atOnce) {
    if (timeout != null) {
      timeout.cancel();
    }
    boolean isEndless = (renews() ? owner.leaseMs : owner.deadline) == Clock.NEVER;
    // The end of a running check calls this again.
    if (!stopped && !isEndless && underWay.isDone()) {
      long ms = renews() ? owner.leaseMs / 3 : owner.deadline - Clock.now() + 1;
      timeout = driver.timeouts.add(renews() && atOnce ? 0 : ms, this::ring);
    }
  }

  private void ring() {
    Owner owner = ref.get();
    if (owner == null || owner.isOver()) {
      driver.renewing.remove(this);
      return;
    }
    if (owner.isAbandoned()) {
      Context.LOG.log(
          System.Logger.Level.WARNING,
          "a thread ended without calling unlock() on the lock \"" + owner.lock + "\"");
      owner.lose();
      Line session = owner.line;
      if (session != null) {
        session.close();
      }
    } else if (owner.isLost()) {
      owner.lose();
    } else if (check == null) {
      again(owner, false);
    } else {
      CompletableFuture<@Nullable Void> checking = new CompletableFuture<>();
      synchronized (this) {
        // A timeout that is already due cannot be cancelled.
        if (stopped || !underWay.isDone()) {
          return;
        }
        underWay = checking;
      }
      check
          .apply(owner)
          .whenComplete(
              (held, error) -> {
                checking.complete(null);
                checked(owner, error == null && held);
              });
    }
  }

  private void checked(Owner owner, boolean held) {
    if (renewed != null) {
      owner.renewalEnded(true);
    } else {
      again(owner, false);
    }
    synchronized (this) {
      if (stopped) {
        return;
      }
    }
    if (!held || owner.isLost()) {
      owner.lose();
    }
  }

  /**
   * Stops renewing: reports the loss, and releases the hold, which frees the lock before its lease
   * expires. Completes with the server's reply, and never fails.
   */
  CompletableFuture<?> end() {
    Owner owner = ref.get();
    if (owner == null || owner.isOver() || renewed == null) {
      return CompletableFuture.completedFuture(null);
    }
    CompletableFuture<?> renewal = owner.keptBy(null);
    owner.lose();
    CompletableFuture<?> ended = renewal.handle((held, error) -> null);
    for (LockType each : renewed.modes()) {
      if (owner.holds(each.mode()) > 0) {
        Release release = new Release(each, owner, Integer.MAX_VALUE, Release.How.ENDED);
        ended =
            ended
                .thenCompose(none -> driver.start(release, null))
                .handle((released, error) -> null);
        owner.holds(each.mode(), 0);
      }
    }
    return ended;
  }

  /** Renews after each third of the lease, and so reports a loss within a third. */
  static void renew(Context context, Owner first, LockType lockType) {
    Driver driver = context.driver();
    new Keeper(
        driver,
        first,
        lockType,
        owner -> {
          long leaseMs = owner.renews();
          Repeat<@Nullable Long> renewal = Repeat.keeping(lockType, owner, leaseMs);
          return driver
              .start(renewal, null)
              .handle(
                  (sent, error) -> {
                    if (sent != null && !owner.isLost()) {
                      owner.renewed(sent);
                      context.emit(LockEvent.Type.RENEWED, lockType, owner, owner.fence, 0, null);
                    } else if (error != null && renewal.mayHaveRun()) {
                      owner.mayBeRenewed(Clock.after(renewal.unanswered, leaseMs));
                    }
                    // It was retried until the deadline.
                    return error != null ? !owner.isLost() : sent != null;
                  });
        });
  }

  /**
   * Checks a session, whose lease the server renews. The lock is lost when the connection ends, or
   * when a check after a third of the lease fails.
   */
  static void session(Driver driver, Owner first, LockType lockType, Line line) {
    Keeper keeper =
        new Keeper(
            driver,
            first,
            null,
            owner -> {
              long sent = Clock.now();
              return line.check(lockType.held(owner.token), Limits.LATE_MS)
                  .thenApply(
                      reply -> {
                        owner.deadline = Clock.after(sent, owner.leaseMs);
                        return reply instanceof List<?>;
                      });
            });
    line.keep(() -> Optional.ofNullable(keeper.ref.get()).ifPresent(Owner::lose));
    Driver.CLEANER.register(first, line::close);
  }
}
