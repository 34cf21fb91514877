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
 * A granted hold, until it is released or lost. Thread-safe; the owner is the hold, so any thread
 * may use or release it.
 */
public final class Hold implements AutoCloseable {
  final Owner owner;
  private final Context context;
  final Family family;
  private final long leaseMs;
  private final Grant grant;
  private final int perHold;
  private final long since = Clock.now();
  private final AtomicReference<@Nullable CompletableFuture<Boolean>> releasing =
      new AtomicReference<>();

  Hold(Context context, Family family, Owner owner, long leaseMs, Grant grant, int perHold) {
    this.context = context;
    this.family = family;
    this.owner = owner;
    this.leaseMs = leaseMs;
    this.grant = grant;
    this.perHold = perHold;
  }

  /**
   * The fencing token: it grows with every grant. Give it to the resource that the lock protects,
   * which refuses older ones.
   *
   * @return positive, below 2^53
   */
  public long fence() {
    return grant.fence();
  }

  /**
   * The owner, for {@link RedisLock#fromToken(String)} and as LOCK.INFO shows it.
   *
   * @return text; bytes that are not UTF-8 as {@code \xNN}
   */
  public String token() {
    return Words.text(owner.token);
  }

  /**
   * The owner's count of holds when this one was granted, this one included; of a semaphore, its
   * permits.
   *
   * @return 1 or more
   */
  public int holds() {
    return grant.holds();
  }

  /**
   * The smallest number from 0 that no other holder of the semaphore has.
   *
   * @return empty without {@link Semaphore#slots()}
   */
  public OptionalInt slot() {
    return grant.slot() < 0 ? OptionalInt.empty() : OptionalInt.of(grant.slot());
  }

  /**
   * The time until the lease ends, counted from before the request was sent.
   *
   * @return zero: it is over; empty: it has no end
   */
  public Optional<Duration> remaining() {
    long deadline = owner.deadline;
    return deadline == Clock.NEVER
        ? Optional.empty()
        : Optional.of(Duration.ofMillis(Math.max(0, deadline - Clock.now())));
  }

  /**
   * Whether the hold is known to be lost: by the local clock, at the latest when the lease is over.
   *
   * @return true: others may hold the lock
   */
  public boolean isLost() {
    return owner.isLost();
  }

  /**
   * Completes once, when the loss is known: with renewal within a third of the lease, with a
   * session when the connection ends, otherwise when the lease is over by the local clock; so too
   * behind {@link RedisLocks#close()}, at which renewed holds and sessions end. Never, if it was
   * released before. Keep the hold: it is not renewed for this stage alone. What depends on it runs
   * on a thread of this client's own, and may block.
   *
   * @return completes normally, with the exception that describes the loss
   */
  public CompletionStage<LockLostException> lost() {
    owner.watched(context.driver());
    // Not on the timer's thread: what depends on it may block.
    return owner.lost.thenApplyAsync(loss -> loss, context.driver().workers);
  }

  /**
   * Begins the lease again from now.
   *
   * @throws LockLostException if it was lost
   */
  public void extend() {
    extend(leaseMs);
  }

  /**
   * Begins the lease again from now, with this length; later renewals have it too.
   *
   * @param lease longer than zero; fractions of a millisecond round up
   * @throws LockLostException if it was lost
   * @throws IllegalArgumentException if it is zero or less
   */
  public void extend(Duration lease) {
    extend(Clock.positive("a lease", lease));
  }

  /**
   * As {@link #extend(Duration)}, with a new {@link RedisLock#atLeast} that counts from now: a
   * release within that time does not free the lock, but sets its lease to the rest of the time.
   *
   * @param lease longer than zero
   * @param atLeast zero: any release frees the lock
   * @throws LockLostException if it was lost
   * @throws IllegalArgumentException if a time is zero or less, or above the server's
   *     lock.max-lease, or if the hold is bound to a session, which frees the lock when its
   *     connection ends
   */
  public void extend(Duration lease, Duration atLeast) {
    if (owner.line != null) {
      throw new IllegalArgumentException("a session ends with its connection: omit atLeast");
    }
    long atLeastMs = atLeast.isZero() ? 0 : Clock.positive("atLeast", atLeast);
    if (atLeastMs > Clock.positive("a lease", lease)) {
      ask(Repeat.proof(family, owner.lock, atLeastMs));
    }
    extend(lease);
    owner.keptUntil = atLeastMs > 0 ? Clock.after(Clock.now(), atLeastMs) : -Clock.NEVER;
  }

  private void extend(long ms) {
    if (owner.isOver()) {
      throw new LockException("the lock \"" + owner.lock + "\" was released", owner.lock);
    }
    Long deadline = ask(Repeat.renewal(family, owner, ms));
    if (deadline == null) {
      owner.lose();
      throw new LockLostException(
          "the lock \"" + owner.lock + "\" was lost before it was extended", owner.lock);
    }
    owner.renewed(ms, deadline);
    context.tell(LockEvent.Type.RENEWED, family, owner, grant.fence(), 0, null);
  }

  /**
   * Asks the server.
   *
   * @return true if this was not released, and the server says that it is held
   */
  public boolean isHeld() {
    return !owner.isOver() && ask(Repeat.held(family, owner.token, owner.lock)) != null;
  }

  private <T extends @Nullable Object> T ask(Task<T> task) {
    return Futures.result(context.driver().runFor(task, Clock.NEVER));
  }

  /**
   * Runs a command on the server only while this is held, in one step (LOCK.EXEC). While the slot
   * of its keys moves to another node, it is sent again for 10 s at most.
   *
   * @param command its name
   * @param arguments of the command
   * @return its reply: strings, numbers, lists, null; a map is a list of keys and values
   * @throws LockLostException if the lock was lost: the command did not run
   * @throws LockException if the slot still moves, or the module is missing: it did not run
   */
  public @Nullable Object exec(String command, String... arguments) {
    return Words.texts(execute(Words.of(command, List.of(arguments))));
  }

  /**
   * As {@link #exec(String, String...)}, with bytes.
   *
   * @param command its name, then its arguments
   * @return its reply, with bytes in place of strings
   * @throws LockLostException if the lock was lost: the command did not run
   * @throws LockException as above: it did not run
   */
  public @Nullable Object exec(byte[]... command) {
    return execute(List.of(command));
  }

  private @Nullable Object execute(List<byte[]> command) {
    if (owner.isOver()) {
      throw LockLostException.notRun(owner.lock, null);
    }
    Object reply = ask(Repeat.exec(family, owner.token, command));
    if (!(reply instanceof Trouble trouble)) {
      return reply;
    }
    // WRONGTYPE may be of the lock's key or of the command's own.
    if (trouble.code().equals("NOTHELD") || trouble.code().equals("WRONGTYPE") && !isHeld()) {
      owner.lose();
      throw LockLostException.notRun(owner.lock, trouble.error);
    }
    throw trouble.ownError(owner.lock);
  }

  /**
   * Releases the hold, and waits until the server has answered, 10 s and an attempt at most. After
   * a release, another call does nothing.
   *
   * @throws LockLostException if it was lost before
   */
  public void release() {
    Futures.result(releaseOnce(Release.How.DONE, Limits.RELEASE_MS + Limits.LATE_MS));
  }

  /**
   * As {@link #release()}, beside the caller: over Lettuce no thread waits, over Jedis one does.
   * Cancelling the future does not end the release. What depends on it runs on a thread of this
   * client's own, and may block.
   *
   * @return completes when the server has answered; fails with what {@link #release()} throws
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
   * Releases the hold, and says that the work was not done: a caller of {@link Mutex#once} or
   * {@link Mutex#acquireOrDone} that waits is granted the lock. With {@link RedisLock#atLeast} the
   * lock is free at once. Does not throw; waits for a second at most, and goes on beside the
   * caller.
   */
  public void releaseFailed() {
    releaseBeside(Release.How.FAILED);
  }

  /**
   * Releases the hold, at the end of a block whose body may have thrown: waits for a second at
   * most, and goes on beside the caller until the lease is over. Where no release was confirmed by
   * then, the hold counts as lost.
   *
   * @throws LockLostException if the server has answered that it was lost before
   */
  @Override
  public void close() {
    CompletableFuture<Boolean> released = releaseBeside(Release.How.ENDED);
    if (released.isCompletedExceptionally()) {
      Futures.result(released);
    }
  }

  /**
   * For logs: the lock, the fence, the owner, and what is known here of its state.
   *
   * @return such as {@code hold of "report", fence 7, host:1:2, held}
   */
  @Override
  public String toString() {
    String state = owner.isOver() ? "released" : isLost() ? "lost" : "held";
    return "hold of \"" + owner.lock + "\", fence " + fence() + ", " + token() + ", " + state;
  }

  /** Never throws; lasts a second at most. */
  CompletableFuture<Boolean> releaseBeside(Release.How how) {
    CompletableFuture<Boolean> released = releaseOnce(how, Limits.KEPT_MS);
    Line session = owner.line;
    if (session != null && !released.isDone()) {
      // The server releases what is bound to the connection.
      session.close();
    }
    return released;
  }

  /** {@code keptMs}: its caller waits so long at most. */
  private CompletableFuture<Boolean> releaseOnce(Release.How how, long keptMs) {
    CompletableFuture<Boolean> released = new CompletableFuture<>();
    // A release that has failed may be tried again.
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
    CompletableFuture<?> begins = driver.endings.add(family.keys(), owner.token, released);
    if (!family.counts() || begins.isDone()) {
      release(released, how, keptMs);
    } else {
      begins.thenRunAsync(() -> release(released, how, 0), driver.workers);
      Futures.await(released, keptMs);
    }
    return released;
  }

  private void release(CompletableFuture<Boolean> result, Release.How how, long keptMs) {
    Release task = new Release(family, owner, perHold, how);
    if (task.isLast) {
      // From here on the lock is not renewed, even if the release fails.
      CompletableFuture<?> renewal = owner.keptBy(null);
      if (task.keptUntil > Clock.now() && !renewal.isDone()) {
        // Another connection's renewal may be read later, and its lease would stand.
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
        .whenComplete((held, error) -> settle(result, task, held, error));
  }

  private void settle(
      CompletableFuture<Boolean> result,
      Release task,
      @Nullable Boolean held,
      @Nullable Throwable error) {
    if (error != null) {
      // Behind the end of the locks no release can be sent, and the loss is what it would find.
      boolean isKnown = owner.lost.isDone() && context.driver().isClosed();
      if (task.isLast && owner.line != null) {
        // The end of a session's connection releases it.
        owner.line.close();
      }
      if (task.isLast && task.how != Release.How.DONE) {
        // No caller tries again: without a confirmed release the lock counts as lost.
        owner.lose();
      }
      result.completeExceptionally(isKnown ? lostBefore() : Futures.cause(error));
      return;
    }
    Driver driver = context.driver();
    task.afterwards.forEach(
        each -> driver.endings.add(family.keys(), owner.token, driver.start(each, null)));
    if (!held) {
      owner.lose();
    }
    owner.holds(family.mode(), task.left);
    if (task.isLast) {
      owner.end();
    }
    if (held) {
      long heldMs = Clock.now() - since;
      context.tell(LockEvent.Type.RELEASED, family, owner, grant.fence(), heldMs, null);
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
