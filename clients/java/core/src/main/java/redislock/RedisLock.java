package redislock;

import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/**
 * The options and methods of all lock types. Locks are immutable and thread-safe: each option
 * returns a new lock with the same name. A later option replaces an earlier one, and removes the
 * options that it excludes. Any method that asks the server may throw an exception of the Redis
 * library if the server cannot be reached.
 *
 * @param <L> the lock type
 */
public abstract sealed class RedisLock<L extends RedisLock<L>>
    permits Mutex, ReentrantMutex, Semaphore, MultiMutex {
  static final Duration FOREVER = Duration.ofSeconds(Long.MAX_VALUE);

  final Context context;
  final String name;
  final LockType lockType;
  final Settings settings;

  RedisLock(Context context, String name, LockType lockType, Settings settings) {
    this.context = context;
    this.name = name;
    this.lockType = lockType;
    this.settings = settings;
  }

  abstract L with(Settings settings);

  /**
   * Returns the name of the lock, as it was given, without a prefix.
   *
   * @return the name; of a {@link MultiMutex}, all names separated by blanks
   */
  public final String name() {
    return name;
  }

  /**
   * Sets the lease: how long the lock is held without a renewal. The default is 30 s.
   *
   * @param lease longer than zero, up to the server's lock.max-lease; fractions of a millisecond
   *     round up
   * @return a lock with this lease
   * @throws IllegalArgumentException if the lease is zero or negative
   */
  public final L lease(Duration lease) {
    return with(settings.with(copy -> copy.leaseMs = Clock.positive("a lease", lease)));
  }

  /**
   * Removes the lease: the lock is held until it is released, even if this process dies. Removes
   * {@link #autoRenew}, {@link #session} and {@link #atLeast}.
   *
   * @return a lock without a lease
   */
  public final L withoutLease() {
    return with(settings.with(Settings::withoutLease));
  }

  /**
   * Renews the lease after each third of it, until the release, or until the {@link Hold} was
   * garbage collected. Removes {@link #session} and {@link #withoutLease}.
   *
   * @return a lock whose holds are renewed
   */
  public final L autoRenew() {
    return with(settings.with(Settings::autoRenew));
  }

  /**
   * Binds each hold to a dedicated connection: the server renews the lease while the connection
   * lives, and releases the lock when it ends. Removes {@link #autoRenew}, {@link #withoutLease},
   * {@link #atLeast} and {@link Mutex#mixed}.
   *
   * @return a lock whose holds are bound to a connection
   */
  public final L session() {
    return with(settings.with(Settings::session));
  }

  /**
   * Limits work to once per interval: a release within this time of the grant does not free the
   * lock, but sets its lease to the rest of that time. Removes {@link #session}, {@link
   * #token(String)} and {@link #withoutLease}.
   *
   * @param time longer than zero, up to the server's lock.max-lease; with a longer one, acquiring
   *     throws an IllegalArgumentException
   * @return a lock that stays held for at least this time
   * @throws IllegalArgumentException if the time is zero or negative
   */
  public final L atLeast(Duration time) {
    return with(settings.with(copy -> copy.atLeast(Clock.positive("atLeast", time))));
  }

  /**
   * Sets the owner ID. The default is a new one for each hold. Removes {@link #atLeast} and {@link
   * ReentrantMutex#within}.
   *
   * @param token 1 to 1,024 bytes in UTF-8
   * @return a lock with this owner
   */
  public final L token(String token) {
    return token(Words.bytes(token));
  }

  /**
   * Sets the owner ID, as bytes. The default is a new one for each hold. Removes {@link #atLeast}
   * and {@link ReentrantMutex#within}.
   *
   * @param token 1 to 1,024 bytes
   * @return a lock with this owner
   */
  public final L token(byte[] token) {
    return with(settings.with(copy -> copy.token(token.clone())));
  }

  /**
   * Names the holder in a {@link NotAcquiredException}. That takes one more request, only if the
   * lock was not granted.
   *
   * @return a lock that reports its holder
   */
  public final L tellHolder() {
    return with(settings.with(copy -> copy.tellHolder = true));
  }

  /**
   * Requires that this many replicas confirm each grant in time. If fewer do, the lock is released
   * and acquiring throws a {@link NotReplicatedException}.
   *
   * @param count 1 or more
   * @param timeout longer than zero
   * @return a lock whose grants are confirmed by replicas
   */
  public final L replicas(int count, Duration timeout) {
    return with(
        settings.with(
            copy -> {
              copy.replicas = count;
              copy.replicaTimeoutMs = Clock.positive("a timeout", timeout);
            }));
  }

  /**
   * Acquires the lock. Waits indefinitely in the server's queue, first come, first served.
   *
   * @return the hold, which must be closed
   * @throws InterruptedException if the thread was interrupted; neither a queued request nor a hold
   *     is left behind
   * @throws LockException if waiting cannot help: a deadlock, a key of another type, too many
   *     waiters
   */
  public final Hold acquire() throws InterruptedException {
    return acquire(FOREVER);
  }

  /**
   * Acquires the lock, and waits for it for a limited time.
   *
   * @param wait how long to wait; zero or less: not at all
   * @return the hold, which must be closed
   * @throws InterruptedException if the thread was interrupted; nothing is left behind
   * @throws NotAcquiredException if the lock was not granted in time
   * @throws LockException if waiting cannot help
   */
  public final Hold acquire(Duration wait) throws InterruptedException {
    Attempt attempt = ask(wait, false);
    if (attempt.hold == null) {
      throw attempt.notAcquired();
    }
    return attempt.hold;
  }

  /**
   * Acquires the lock if it is free, without waiting.
   *
   * @return the hold, which must be closed; empty if the lock was not granted
   * @throws InterruptedException if the thread was interrupted; nothing is left behind
   * @throws LockException as {@link #acquire()}
   */
  public final Optional<Hold> tryAcquire() throws InterruptedException {
    return Optional.ofNullable(ask(Duration.ZERO, false).hold);
  }

  /**
   * Acquires the lock like {@link #acquire(Duration)}, but returns an empty Optional if the wait
   * timed out.
   *
   * @param wait how long to wait; zero or less: not at all
   * @return the hold, which must be closed; empty if the lock was not granted in time
   * @throws InterruptedException if the thread was interrupted; nothing is left behind
   * @throws LockException as {@link #acquire()}
   */
  public final Optional<Hold> tryAcquire(Duration wait) throws InterruptedException {
    return Optional.ofNullable(ask(wait, false).hold);
  }

  /**
   * Acquires the lock in the background. Over Lettuce no thread waits; over Jedis one does.
   * Cancelling the future, or completing it in any other way, withdraws the request and releases a
   * grant. Dependent stages run on a thread of this client, and may block; {@link
   * Hold#releaseAsync()} does not block.
   *
   * @param wait how long to wait; zero or less: not at all
   * @return a future of the hold; it fails with the exceptions of {@link #acquire(Duration)}
   */
  public final CompletableFuture<Hold> acquireAsync(Duration wait) {
    Asked result = new Asked();
    new Attempt(Clock.wait(wait), false, null).start(result);
    return result;
  }

  /**
   * Acquires the lock, runs one command on the server, and releases the lock, all in one packet and
   * as a new owner. If the lock is held, this waits indefinitely, as {@link #acquire()} does. With
   * {@link #session()} the lock becomes free as soon as the connection ends, even if only a part of
   * the packet arrived.
   *
   * <p>If the connection ends before the command's reply, or the thread is interrupted while it
   * waits, the command may have run. It is not sent again, and the lock is released. Cannot be
   * combined with {@link #token(String)}, {@link #atLeast}, {@link #replicas}, {@link
   * Semaphore#slots()} or {@link ReentrantMutex#within}.
   *
   * @param command the name of the command
   * @param arguments the arguments of the command
   * @return the reply of the command, in the form that {@link Hold#exec(String, String...)} returns
   * @throws InterruptedException if the thread was interrupted
   * @throws LockLostException if the lock was lost before the command, which did not run
   * @throws LockException as {@link #acquire()}; the command did not run
   */
  public final @Nullable Object run(String command, String... arguments)
      throws InterruptedException {
    return run(FOREVER, command, arguments);
  }

  /**
   * Runs one command under the lock like {@link #run(String, String...)}, but waits for the lock
   * for a limited time.
   *
   * @param wait how long to wait; zero or less: not at all
   * @param command the name of the command
   * @param arguments the arguments of the command
   * @return the reply of the command
   * @throws InterruptedException if the thread was interrupted
   * @throws NotAcquiredException if the lock was not granted in time; the command did not run
   */
  public final @Nullable Object run(Duration wait, String command, String... arguments)
      throws InterruptedException {
    return Words.texts(run(Clock.wait(wait), Words.of(command, List.of(arguments))));
  }

  /**
   * Runs one command under the lock like {@link #run(Duration, String, String...)}, with binary
   * arguments and replies.
   *
   * @param wait how long to wait; zero or less: not at all
   * @param command the name of the command, then its arguments
   * @return the reply of the command, with byte arrays instead of strings
   * @throws InterruptedException if the thread was interrupted
   * @throws NotAcquiredException if the lock was not granted in time; the command did not run
   */
  public final @Nullable Object run(Duration wait, byte[]... command) throws InterruptedException {
    return run(Clock.wait(wait), List.of(command));
  }

  private @Nullable Object run(long waitMs, List<byte[]> command) throws InterruptedException {
    if (settings.token != null
        || settings.atLeastMs > 0
        || settings.replicas > 0
        || settings.within != null
        || lockType.hasSlots()
        || command.isEmpty()) {
      throw new IllegalArgumentException(
          "run needs a command, and cannot be combined with token, atLeast, replicas, slots or"
              + " within: its owner holds for one command only");
    }
    // Without a lease, a process that dies meanwhile would leave the lock held indefinitely.
    RedisLock<L> lock = settings.leaseMs == LockType.PERSIST ? lease(Duration.ofSeconds(30)) : this;
    RedisLock<L>.Attempt attempt = lock.new Attempt(waitMs, false, command).run();
    if (!(attempt.task instanceof Run run) || attempt.grant == null) {
      throw attempt.notAcquired();
    }
    if (run.error != null) {
      throw run.error;
    }
    return run.reply;
  }

  final Attempt ask(Duration wait, boolean coalesce) throws InterruptedException {
    return new Attempt(Clock.wait(wait), coalesce, null).run();
  }

  /**
   * Returns a hold for a token that was granted elsewhere, to extend, use or release it here. Its
   * release returns everything that the token holds. With {@link #autoRenew()} the lease is
   * restarted.
   *
   * @param token the owner ID, as it was given or as {@link Hold#token()} shows it
   * @return the hold
   * @throws InterruptedException if the thread was interrupted
   * @throws LockLostException if the token does not hold the lock
   * @throws IllegalArgumentException with {@link #session} or {@link #atLeast}, which start at the
   *     grant
   */
  public final Hold fromToken(String token) throws InterruptedException {
    return fromToken(Words.bytes(token));
  }

  /**
   * Returns a hold for a token like {@link #fromToken(String)}, given as bytes.
   *
   * @param token the owner ID
   * @return the hold
   * @throws InterruptedException if the thread was interrupted
   * @throws LockLostException if the token does not hold the lock
   * @throws IllegalArgumentException with {@link #session} or {@link #atLeast}, which start at the
   *     grant
   */
  public final Hold fromToken(byte[] token) throws InterruptedException {
    if (settings.session || settings.atLeastMs > 0) {
      throw new IllegalArgumentException("session and atLeast start at the grant: omit them");
    }
    Owner owner = owner(token.clone());
    Grant found = context.driver().run(Repeat.held(lockType, token, name), null);
    if (found == null) {
      throw new LockLostException("the token does not hold the lock \"" + name + "\"", name);
    }
    Hold hold = keep(owner, found, false, null, Integer.MAX_VALUE);
    // The lease may have been shortened elsewhere.
    owner.deadline = found.deadline();
    if (settings.autoRenew) {
      hold.extend();
      renew(owner);
    }
    return hold;
  }

  /**
   * Asks the server whether any owner holds the lock.
   *
   * @return true if the key exists, even if it holds another value
   * @throws InterruptedException if the thread was interrupted
   */
  public final boolean isLocked() throws InterruptedException {
    return query(Words.of("EXISTS", lockType.keys()), (reply, sent) -> Words.number(reply)) > 0;
  }

  /**
   * Asks the server for the holders and the number of waiters (LOCK.INFO). A {@link MultiMutex}
   * reports its first key.
   *
   * @return the state of the lock; empty if it is free and has no waiters
   * @throws InterruptedException if the thread was interrupted
   */
  public final Optional<LockInfo> info() throws InterruptedException {
    return query(Words.of("LOCK.INFO", lockType.key()), (reply, sent) -> LockInfo.of(reply));
  }

  private <T> T query(List<byte[]> words, Repeat.Result<T> result) throws InterruptedException {
    return context.driver().run(Repeat.query(lockType, name, words, result), null);
  }

  /**
   * Returns this lock as a {@code java.util.concurrent.locks.Lock}, which is owned by a thread and
   * reentrant within it.
   *
   * @return a view of this lock
   */
  public final ThreadLock asLock() {
    return new ThreadLock(this, context.threads());
  }

  /**
   * Returns the type, name and options of the lock, for logs.
   *
   * @return such as {@code mutex "report" (lease PT30S, autoRenew)}
   */
  @Override
  public final String toString() {
    return lockType.kind().name().toLowerCase(Locale.ROOT) + " \"" + name + "\" (" + settings + ")";
  }

  /** The owner for a token that the caller provides. */
  private Owner owner(byte[] token) {
    return lockType.counts()
        ? context.owner(lockType, name, token, settings.leaseMs)
        : new Owner(name, token, settings.leaseMs);
  }

  /** Registers a grant and starts its renewal. {@code line}: the connection that it is bound to. */
  private Hold keep(Owner owner, Grant grant, boolean autoRenew, @Nullable Line line, int perHold) {
    Driver driver = context.driver();
    boolean isFirst = owner.holds(lockType.mode()) == 0;
    owner.granted(grant, lockType.mode());
    if (line != null) {
      owner.line = line;
      Keeper.session(driver, owner, lockType, line);
    } else if (autoRenew) {
      renew(owner);
    }
    if (isFirst && context.isObserved()) {
      long since = Clock.now();
      owner.lost.thenRun(
          () -> {
            if (owner.holds(lockType.mode()) > 0) {
              context.emit(
                  LockEvent.Type.LOST, lockType, owner, owner.fence, Clock.now() - since, null);
            }
          });
      owner.watched(driver);
    }
    return new Hold(context, lockType, owner, settings.leaseMs, grant, perHold);
  }

  private void renew(Owner owner) {
    if (!owner.isRenewed()) {
      Keeper.renew(context, owner, lockType);
    }
  }

  /**
   * The future of a caller. Whether the caller gets the grant, or has cancelled it, is decided
   * before the code that depends on it runs.
   */
  private static final class Asked extends CompletableFuture<Hold> {
    private final AtomicBoolean isDecided = new AtomicBoolean();

    /** False: the caller has completed it. Otherwise {@link #grant} follows. */
    boolean take() {
      return isDecided.compareAndSet(false, true);
    }

    void grant(Hold hold) {
      super.complete(hold);
    }

    @Override
    public boolean complete(Hold hold) {
      return take() && super.complete(hold);
    }

    @Override
    public boolean completeExceptionally(Throwable error) {
      return take() && super.completeExceptionally(error);
    }

    @Override
    public boolean cancel(boolean mayInterrupt) {
      return take() && super.cancel(mayInterrupt);
    }
  }

  /** One acquire, from waiting for the owner's earlier requests to the hold. */
  final class Attempt {
    private final long began = Clock.now();
    private final WaitLimit waitLimit;
    private final boolean coalesce;
    private final @Nullable List<byte[]> command;
    private final Owner owner;
    private final boolean isNew;

    /**
     * Completes when this request has ended, and what it left on the server is undone. The owner's
     * next request waits for it.
     */
    private final CompletableFuture<@Nullable Void> over = new CompletableFuture<>();

    /** Completes when no earlier request of the owner is outstanding that could end this one. */
    private final CompletableFuture<?> begins;

    private @Nullable Acquire task;
    private @Nullable Line line;

    /** True if only {@link #end} completes {@link #over}; otherwise a cleanup does. */
    private boolean hasReturned;

    /** null: not granted. */
    @Nullable Grant grant;

    /** null: not granted, or a command was run instead. */
    @Nullable Hold hold;

    Attempt(long waitMs, boolean coalesce, @Nullable List<byte[]> command) {
      this.waitLimit = WaitLimit.of(waitMs, settings.pollMs);
      this.coalesce = coalesce;
      this.command = command;
      Owner outer = settings.within;
      byte[] token = settings.token;
      isNew = outer == null && token == null;
      if (outer != null) {
        owner = outer;
      } else {
        owner = isNew ? new Owner(name, Context.newToken(), settings.leaseMs) : owner(token);
      }
      Endings endings = context.driver().endings;
      begins = isNew ? Endings.NONE : endings.add(lockType.keys(), owner.token, over);
    }

    Attempt run() throws InterruptedException {
      try {
        begins.get(turnMs(), TimeUnit.MILLISECONDS);
        Grant granted = context.driver().run(task(), line);
        hasReturned = true;
        settled(granted);
        return this;
      } catch (TimeoutException | ExecutionException e) {
        throw failed(busy());
      } catch (InterruptedException | RuntimeException e) {
        failed(e);
        throw e;
      } finally {
        end();
      }
    }

    void start(Asked result) {
      CompletableFuture<?> turn = begins.copy().orTimeout(turnMs(), TimeUnit.MILLISECONDS);
      result.whenComplete((hold, error) -> turn.cancel(false));
      turn.thenCompose(
              none -> {
                CompletableFuture<@Nullable Grant> asking = context.driver().start(task(), line);
                result.whenComplete((hold, error) -> asking.cancel(true));
                return asking;
              })
          // Not on a thread of the Redis library, nor on the timer's: what depends on it may block.
          .whenCompleteAsync(
              (grant, error) -> finish(result, grant, error), context.driver().workers);
    }

    private void finish(Asked result, @Nullable Grant grant, @Nullable Throwable error) {
      Throwable failure = null;
      try {
        if (error != null) {
          Throwable cause = Futures.cause(error);
          failure = failed(cause instanceof TimeoutException ? busy() : cause);
        } else {
          hasReturned = true;
          settled(grant);
          failure = hold == null ? notAcquired() : null;
        }
      } catch (RuntimeException e) {
        failure = e;
      }
      // What depends on the result may be the owner's next request, so this one ends first.
      if (failure != null) {
        end();
        result.completeExceptionally(failure);
      } else if (result.take()) {
        end();
        result.grant(hold);
      } else {
        hasReturned = false;
        end();
        hold.abandon().whenComplete((released, late) -> over.complete(null));
      }
    }

    private long turnMs() {
      return waitLimit.waitMs() == 0
          ? Limits.RESEND_MS
          : Math.max(0, waitLimit.ends() - Clock.now());
    }

    private LockException busy() {
      return new LockException("an earlier request of this owner has not ended yet", name);
    }

    private Acquire task() {
      boolean isNested = owner.fence > 0;
      if (owner.isOver()) {
        throw new LockException(
            "the owner has released the lock: within needs a current hold", name);
      }
      if (isNested && owner.isLost()) {
        throw new LockLostException(
            "the current hold was lost: release it before acquiring again", name);
      }
      int before = owner.holds(lockType.mode());
      if (lockType.hasSlots() && before > 0) {
        throw new LockException("this owner already has a slot: release it first", name);
      }
      Driver driver = context.driver();
      boolean isSession = settings.session && !isNested;
      // What runs a command is bound to a connection of the pool, where its request has one.
      boolean isPooled = command != null && !driver.waitsByMessage();
      boolean needsLine = (isSession || settings.replicas > 0) && !isPooled;
      line = needsLine ? driver.line(lockType.key()) : null;
      Request request =
          new Request(
              lockType,
              owner,
              !isNew,
              before,
              owner.holdsBeside(lockType.mode()),
              settings,
              isSession,
              coalesce,
              waitLimit,
              !needsLine && driver.waitsByMessage(),
              driver.isCluster(),
              driver.sliceMs(),
              () -> driver.endings.isDistrusted(lockType.keys(), owner.token),
              over,
              () -> context.emit(LockEvent.Type.QUEUED, lockType, owner, 0, 0, null),
              error -> Context.warn("the request for the lock \"" + name + "\"", error));
      return task = command == null ? new Acquire(request, false) : new Run(request, command);
    }

    private void settled(@Nullable Grant granted) {
      long waitedMs = Clock.now() - began;
      grant = granted;
      if (grant == null || grant.done()) {
        context.emit(LockEvent.Type.NOT_GRANTED, lockType, owner, 0, waitedMs, null);
        return;
      }
      if (task instanceof Run run) {
        // A failed release is repeated in the background.
        context.driver().undo(run, null);
        context.emit(LockEvent.Type.GRANTED, lockType, owner, grant.fence(), waitedMs, null);
        if (run.error instanceof LockLostException) {
          context.emit(LockEvent.Type.LOST, lockType, owner, grant.fence(), 0, null);
        } else if (!run.open) {
          context.emit(LockEvent.Type.RELEASED, lockType, owner, grant.fence(), 0, null);
        }
        return;
      }
      if (grant.fence() != owner.fence && settings.atLeastMs > 0) {
        owner.keptUntil = Clock.after(Clock.now(), settings.atLeastMs);
      }
      // While once makes a value, its lock is kept.
      boolean isRenewed = settings.autoRenew || coalesce && !settings.session;
      Line kept = settings.session && owner.line == null ? line : null;
      if (kept != null) {
        line = null;
      }
      hold = keep(owner, grant, isRenewed, kept, settings.permits);
      context.emit(LockEvent.Type.GRANTED, lockType, owner, grant.fence(), waitedMs, null);
    }

    NotAcquiredException notAcquired() {
      String message =
          "the lock \"" + name + "\" was not granted within " + waitLimit.waitMs() + " ms";
      NotAcquiredException refused = new NotAcquiredException(message, name, holder());
      if (task != null && task.hindrance() != null) {
        refused.initCause(task.hindrance());
      }
      return refused;
    }

    @Nullable String holder() {
      return task == null ? null : task.holder;
    }

    private <E extends Throwable> E failed(E error) {
      context.emit(LockEvent.Type.NOT_GRANTED, lockType, owner, 0, Clock.now() - began, error);
      return error;
    }

    private void end() {
      if (line != null) {
        line.close();
      }
      if (task == null || hasReturned && !task.isUndone.get()) {
        over.complete(null);
      }
    }
  }
}
