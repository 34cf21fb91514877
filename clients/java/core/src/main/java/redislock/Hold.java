package redislock;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/**
 * An acquired lock, until it is released or lost. Thread-safe. The owner is the hold and not the
 * thread, so any thread may use or release it.
 */
public final class Hold implements AutoCloseable {
  final Owner owner;
  private final Context context;
  final LockType lockType;
  private final long leaseMs;
  private final Grant grant;
  private final int perHold;
  private final long since = Clock.now();
  private final AtomicReference<@Nullable CompletableFuture<Boolean>> releasing =
      new AtomicReference<>();

  Hold(Context context, LockType lockType, Owner owner, long leaseMs, Grant grant, int perHold) {
    this.context = context;
    this.lockType = lockType;
    this.owner = owner;
    this.leaseMs = leaseMs;
    this.grant = grant;
    this.perHold = perHold;
  }

  /**
   * Returns the fencing token, which increases with every grant. Send it to the resource that the
   * lock protects, which refuses older ones.
   *
   * @return a positive number below 2^53
   */
  public long fence() {
    return grant.fence();
  }

  /**
   * Returns the owner ID, as LOCK.INFO shows it and as {@link RedisLock#fromToken(String)} takes
   * it.
   *
   * @return the owner ID as text; bytes that are not UTF-8 are shown as {@code \xNN}
   */
  public String token() {
    return Words.text(owner.token);
  }

  /**
   * Returns how many holds the owner had after this grant; of a semaphore, how many permits.
   *
   * @return 1 or more
   */
  public int holds() {
    return grant.holds();
  }

  /**
   * Returns the slot of this hold: the smallest number from 0 that no other holder of the semaphore
   * had.
   *
   * @return the slot; empty without {@link Semaphore#slots()}
   */
  public OptionalInt slot() {
    return grant.slot() < 0 ? OptionalInt.empty() : OptionalInt.of(grant.slot());
  }

  /**
   * Returns the remaining time of the lease, counted by a monotonic clock from before the request
   * was sent.
   *
   * @return the remaining time; zero if the lease has expired, empty if there is none
   */
  public Optional<Duration> remaining() {
    long deadline = owner.deadline;
    return deadline == Clock.NEVER
        ? Optional.empty()
        : Optional.of(Duration.ofMillis(Math.max(0, deadline - Clock.now())));
  }

  /**
   * Returns whether the hold is known to be lost, at the latest when the lease has expired by the
   * local clock. Does not ask the server; see {@link #isHeld()}.
   *
   * @return true if another owner may hold the lock
   */
  public boolean isLost() {
    return owner.isLost();
  }

  /**
   * Returns a stage that completes once when the loss of this hold is known: with {@link
   * RedisLock#autoRenew()} within a third of the lease, with {@link RedisLock#session()} when the
   * connection ends, and otherwise when the lease expires by the local clock. After {@link
   * RedisLocks#close()}, which ends renewals and sessions, it completes as well. It never completes
   * if the hold is released first.
   *
   * <p>Keep a reference to the hold, because the stage alone does not keep it renewed. Dependent
   * stages run on a thread of this client, and may block.
   *
   * @return a stage that completes normally, with the exception that describes the loss
   */
  public CompletionStage<LockLostException> lost() {
    owner.watched(context.driver());
    // Not on the timer's thread, because dependent stages may block.
    return owner.lost.thenApplyAsync(loss -> loss, context.driver().workers);
  }

  /**
   * Restarts the lease from now, with the length of the lock's lease.
   *
   * <p><b>This does not add to what is left of the lease</b>, unlike {@code extend} of the clients
   * for Python, Go and Rust.
   *
   * @throws LockLostException if the lock was lost
   * @throws LockException if the hold was released
   */
  public void extend() {
    extend(leaseMs);
  }

  /**
   * Restarts the lease from now, with this length. Later renewals use it as well.
   *
   * <p><b>This does not add to what is left of the lease</b>, unlike {@code extend} of the clients
   * for Python, Go and Rust: with 40 s left, {@code extend(Duration.ofSeconds(30))} shortens the
   * lease to 30 s.
   *
   * @param lease longer than zero; fractions of a millisecond round up
   * @throws LockLostException if the lock was lost
   * @throws LockException if the hold was released
   * @throws IllegalArgumentException if the lease is zero or negative
   */
  public void extend(Duration lease) {
    extend(Clock.positive("a lease", lease));
  }

  /**
   * Restarts the lease from now, like {@link #extend(Duration)}, and sets a new {@link
   * RedisLock#atLeast} that counts from now: a release within that time does not free the lock, but
   * sets its lease to the rest of the time.
   *
   * @param lease longer than zero
   * @param atLeast zero: any release frees the lock
   * @throws LockLostException if the lock was lost
   * @throws IllegalArgumentException if the lease is zero, a time is negative or above the server's
   *     lock.max-lease, or the hold is bound to a session, which frees the lock when its connection
   *     ends
   */
  public void extend(Duration lease, Duration atLeast) {
    if (owner.line != null) {
      throw new IllegalArgumentException("a session ends with its connection: omit atLeast");
    }
    long atLeastMs = atLeast.isZero() ? 0 : Clock.positive("atLeast", atLeast);
    if (atLeastMs > Clock.positive("a lease", lease)) {
      ask(Repeat.proof(lockType, owner.lock, atLeastMs));
    }
    extend(lease);
    owner.keptUntil = atLeastMs > 0 ? Clock.after(Clock.now(), atLeastMs) : -Clock.NEVER;
  }

  private void extend(long ms) {
    if (owner.isOver()) {
      throw new LockException("the lock \"" + owner.lock + "\" was released", owner.lock);
    }
    if (owner.isLost()) {
      throw lostBeforeExtended();
    }
    Repeat<@Nullable Long> renewal = Repeat.renewal(lockType, owner, ms);
    owner.renews(ms);
    boolean mayHaveRun = true;
    try {
      Long sent = ask(renewal);
      if (sent == null || owner.isLost()) {
        throw lostBeforeExtended();
      }
      owner.leaseMs = ms;
      owner.renewed(sent);
    } catch (RuntimeException e) {
      mayHaveRun = renewal.mayHaveRun();
      if (mayHaveRun) {
        owner.mayBeRenewed(Clock.after(renewal.unanswered, ms));
      }
      throw e;
    } finally {
      owner.renewalEnded(mayHaveRun);
    }
    context.emit(LockEvent.Type.RENEWED, lockType, owner, grant.fence(), 0, null);
  }

  private LockLostException lostBeforeExtended() {
    owner.lose();
    String message = "the lock \"" + owner.lock + "\" was lost before it was extended";
    return new LockLostException(message, owner.lock);
  }

  /**
   * Asks the server whether this hold still holds the lock.
   *
   * @return true if this hold was not released, and the server confirms it
   */
  public boolean isHeld() {
    return !owner.isOver() && ask(Repeat.held(lockType, owner.token, owner.lock)) != null;
  }

  private <T extends @Nullable Object> T ask(Task<T> task) {
    return Futures.result(context.driver().runFor(task, Clock.NEVER));
  }

  /**
   * Runs a command on the server only while the lock is held, atomically (LOCK.EXEC). While the
   * slot of its keys moves to another node, the command is sent again for 10 s at most.
   *
   * @param command the name of the command
   * @param arguments the arguments of the command
   * @return the reply: a string, a number, a list or null; a map is a list of keys and values
   * @throws LockLostException if the lock was lost; the command did not run
   * @throws LockException if the slot is still moving, or the module is missing; the command did
   *     not run
   */
  public @Nullable Object exec(String command, String... arguments) {
    return Words.texts(execute(Words.of(command, List.of(arguments))));
  }

  /**
   * Runs a command like {@link #exec(String, String...)}, with binary arguments and replies.
   *
   * @param command the name of the command, then its arguments
   * @return the reply, with byte arrays instead of strings
   * @throws LockLostException if the lock was lost; the command did not run
   * @throws LockException if the slot is still moving, or the module is missing; the command did
   *     not run
   */
  public @Nullable Object exec(byte[]... command) {
    return execute(List.of(command));
  }

  private @Nullable Object execute(List<byte[]> command) {
    if (owner.isOver() || owner.isLost()) {
      owner.lose();
      throw LockLostException.notRun(owner.lock, null);
    }
    Object reply = ask(Repeat.exec(lockType, owner.token, command));
    if (!(reply instanceof Trouble trouble)) {
      return reply;
    }
    // WRONGTYPE may concern the lock's key or the command's own.
    if (trouble.code().equals("NOTHELD") || trouble.code().equals("WRONGTYPE") && !isHeld()) {
      owner.lose();
      throw LockLostException.notRun(owner.lock, trouble.error);
    }
    throw trouble.ownError(owner.lock);
  }

  /**
   * Releases the hold, and waits for the server's reply: for 10 s and one attempt at most. A call
   * after a successful release does nothing.
   *
   * @throws LockLostException if the lock was lost before
   */
  public void release() {
    Futures.result(releaseOnce(Release.How.DONE, Limits.RELEASE_MS + Limits.LATE_MS));
  }

  /**
   * Releases the hold in the background. Over Lettuce no thread waits; over Jedis one does.
   * Cancelling the future does not stop the release. Dependent stages run on a thread of this
   * client, and may block.
   *
   * @return a future that completes with the server's reply; it fails with the exceptions of {@link
   *     #release()}
   */
  public CompletableFuture<Void> releaseAsync() {
    CompletableFuture<Void> result = new CompletableFuture<>();
    releaseOnce(Release.How.DONE, 0)
        .whenCompleteAsync(
            (held, error) -> {
              if (error == null) {
                result.complete(null);
              } else {
                result.completeExceptionally(Futures.cause(error));
              }
            },
            context.driver().workers);
    return result;
  }

  /**
   * Releases the hold and reports that the work was not done: the next waiting caller of {@link
   * Mutex#once} or {@link Mutex#acquireOrDone} is granted the lock. The lock is free at once, even
   * with {@link RedisLock#atLeast}. Does not throw. Waits for a second at most; the release then
   * goes on in the background.
   */
  public void releaseFailed() {
    releaseInBackground(Release.How.FAILED);
  }

  /**
   * Releases the hold at the end of a try block, whose body may have thrown. Waits for a second at
   * most; the release then goes on in the background until the lease expires. If it is not
   * confirmed by then, the hold counts as lost.
   *
   * @throws LockLostException if the server has replied that the lock was lost before
   */
  @Override
  public void close() {
    CompletableFuture<Boolean> released = releaseInBackground(Release.How.ENDED);
    if (released.isCompletedExceptionally()) {
      Futures.result(released);
    }
  }

  /**
   * Returns the lock, the fence, the owner, and the state as this client knows it, for logs.
   *
   * @return such as {@code hold of "report", fence 7, host:1:2, held}
   */
  @Override
  public String toString() {
    String state = owner.isOver() ? "released" : isLost() ? "lost" : "held";
    return "hold of \"" + owner.lock + "\", fence " + fence() + ", " + token() + ", " + state;
  }

  /** Releases in the background. Never throws, and delays the caller for a second at most. */
  CompletableFuture<Boolean> releaseInBackground(Release.How how) {
    CompletableFuture<Boolean> released = releaseOnce(how, Limits.KEPT_MS);
    Line session = owner.line;
    if (session != null && !released.isDone()) {
      // The server then releases the lock, which is bound to the connection.
      session.close();
    }
    return released;
  }

  /**
   * Releases a grant whose caller has cancelled its request. The caller of this orders it before
   * the owner's next request.
   */
  CompletableFuture<Boolean> abandon() {
    CompletableFuture<Boolean> released = new CompletableFuture<>();
    release(released, Release.How.ENDED, 0);
    Line session = owner.line;
    if (session != null) {
      // As in releaseInBackground().
      released
          .copy()
          .completeOnTimeout(null, Limits.KEPT_MS, TimeUnit.MILLISECONDS)
          .whenComplete((held, error) -> session.close());
    }
    return released;
  }

  /** {@code keptMs}: how long the caller waits at most. */
  private CompletableFuture<Boolean> releaseOnce(Release.How how, long keptMs) {
    CompletableFuture<Boolean> released = new CompletableFuture<>();
    // A failed release may be tried again.
    CompletableFuture<Boolean> latest =
        releasing.updateAndGet(
            last ->
                last != null && (owner.isOver() || !last.isCompletedExceptionally())
                    ? last
                    : released);
    if (latest != released) {
      Futures.await(latest, keptMs);
      return latest;
    }
    Driver driver = context.driver();
    CompletableFuture<?> begins = driver.endings.add(lockType.keys(), owner.token, released);
    if (!lockType.counts() || begins.isDone()) {
      release(released, how, keptMs);
    } else {
      begins.thenRunAsync(() -> release(released, how, 0), driver.workers);
      Futures.await(released, keptMs);
    }
    return released;
  }

  private void release(CompletableFuture<Boolean> result, Release.How how, long keptMs) {
    Release task = new Release(lockType, owner, perHold, how);
    if (task.isLast) {
      // From here on the lock is not renewed, even if the release fails.
      CompletableFuture<?> renewal = owner.keptBy(null);
      if (task.keptUntil > Clock.now() && !renewal.isDone()) {
        // The server may read a renewal on another connection later, which would replace this one.
        renewal
            .copy()
            .completeOnTimeout(null, Limits.LATE_MS, TimeUnit.MILLISECONDS)
            .whenComplete((none, error) -> run(task, result, 0));
        Futures.await(result, keptMs);
        return;
      }
    }
    run(task, result, keptMs);
  }

  private void run(Release task, CompletableFuture<Boolean> result, long keptMs) {
    context
        .driver()
        .runFor(task, keptMs)
        .whenComplete((held, error) -> finish(result, task, held, error));
  }

  private void finish(
      CompletableFuture<Boolean> result,
      Release task,
      @Nullable Boolean held,
      @Nullable Throwable error) {
    if (error != null) {
      // After close() no release can be sent, and it would only find the loss.
      boolean isKnown = owner.lost.isDone() && context.driver().isClosed();
      Line session = owner.line;
      if (task.isLast && session != null) {
        // The server then releases the lock, which is bound to the connection.
        session.close();
      }
      if (task.isLast && (session != null || task.how != Release.How.DONE)) {
        // No caller will retry, so without a confirmed release the lock counts as lost.
        owner.lose();
      } else if (task.isLast) {
        // It is no longer renewed, and its loss is still reported.
        owner.watched(context.driver());
      }
      result.completeExceptionally(isKnown ? lostBefore() : Futures.cause(error));
      return;
    }
    Driver driver = context.driver();
    task.afterwards.forEach(
        each -> driver.endings.add(lockType.keys(), owner.token, driver.start(each, null)));
    if (!held) {
      owner.lose();
    }
    owner.holds(lockType.mode(), task.left);
    if (task.isLast) {
      owner.end();
    }
    if (held) {
      long heldMs = Clock.now() - since;
      context.emit(LockEvent.Type.RELEASED, lockType, owner, grant.fence(), heldMs, null);
      result.complete(true);
    } else {
      result.completeExceptionally(lostBefore());
    }
  }

  private LockLostException lostBefore() {
    String message = "the lock \"" + owner.lock + "\" was lost before it was released";
    return new LockLostException(message, owner.lock);
  }
}
