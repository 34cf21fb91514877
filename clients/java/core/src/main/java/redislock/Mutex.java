package redislock;

import java.time.Duration;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * A lock with one holder at a time. Immutable. Not reentrant: each acquire is a new owner, so a
 * thread that holds the lock and acquires it again waits for its own hold, indefinitely by default.
 * For nested calls use {@link #asLock()}, which is owned by threads, or {@link
 * ReentrantMutex#within}.
 */
public final class Mutex extends RedisLock<Mutex> {
  Mutex(Context context, String name, LockType lockType, Settings settings) {
    super(context, name, lockType, settings);
  }

  @Override
  Mutex with(Settings settings) {
    return new Mutex(context, name, lockType, settings);
  }

  /**
   * Shares the key with clients that hold it as a string (SET NX), for a migration. Acquiring then
   * polls after 0.5 to 1.5 times the interval and never waits in the queue, so that both sides make
   * progress. Removes {@link #session}.
   *
   * @param interval longer than zero; 100 ms is usual
   * @return a lock that polls
   * @throws IllegalArgumentException if the interval is zero or negative
   */
  public Mutex mixed(Duration interval) {
    return with(settings.with(copy -> copy.mixed(Clock.positive("an interval", interval))));
  }

  /**
   * Looks for the shared value of {@link #once}.
   *
   * @param <T> the type of the value
   * @param <E> what it throws
   */
  @FunctionalInterface
  public interface Read<T, E extends Exception> {
    /**
     * Looks for the value.
     *
     * @return the value, or null if there is none
     * @throws E propagated to the caller
     */
    @Nullable T get() throws E;
  }

  /**
   * Computes the shared value of {@link #once}, and stores it where {@link Read} finds it.
   *
   * @param <T> the type of the value
   * @param <E> what it throws
   */
  @FunctionalInterface
  public interface Make<T, E extends Exception> {
    /**
     * Computes and stores the value.
     *
     * @param hold the lock under which it is computed
     * @return the value
     * @throws E propagated to the caller; the next caller computes the value
     */
    T get(Hold hold) throws E;
  }

  /**
   * Returns the value that {@code read} finds. If there is none, one caller computes it with {@code
   * make} and the others wait: single-flight, or request coalescing. The lock is renewed meanwhile.
   *
   * @param <T> the type of the value
   * @param <E> what {@code read} and {@code make} throw
   * @param read looks for the value; called again after each wait
   * @param make computes and stores the value
   * @param wait limits the wait for another caller, but not {@code read} and {@code make}; zero or
   *     less: do not wait
   * @return the value
   * @throws E an exception of {@code read} or {@code make}, unchanged
   * @throws InterruptedException if the thread was interrupted; nothing is left behind
   * @throws NotMadeException if there was no value in time
   * @throws IllegalArgumentException with {@link #atLeast}, {@link #mixed} or {@link #withoutLease}
   */
  public <T, E extends Exception> T once(Read<T, E> read, Make<T, E> make, Duration wait)
      throws E, InterruptedException {
    if (settings.atLeastMs > 0 || settings.pollMs > 0 || settings.leaseMs == LockType.PERSIST) {
      throw new IllegalArgumentException(
          "once needs a lease, and cannot be combined with atLeast or mixed");
    }
    long waitMs = Clock.wait(wait);
    long ends = Clock.after(Clock.now(), waitMs);
    T value = read.get();
    while (value == null) {
      Attempt attempt = ask(Duration.ofMillis(Math.max(0, ends - Clock.now())), true);
      if (attempt.hold != null) {
        return made(attempt.hold, read, make);
      }
      value = read.get();
      // Done, but no value (evicted, or the lock was held for something else): try again.
      if (value == null && attempt.grant == null) {
        throw new NotMadeException(
            "no value after " + waitMs + " ms: another caller holds the lock \"" + name + "\"",
            name,
            attempt.holder());
      }
    }
    return value;
  }

  private <T, E extends Exception> T made(Hold hold, Read<T, E> read, Make<T, E> make)
      throws E, InterruptedException {
    T value;
    try {
      // Another caller may have stored it while this one was acquiring the lock.
      value = read.get();
      if (value == null) {
        if (Thread.interrupted()) {
          throw new InterruptedException();
        }
        value = make.get(hold);
      }
    } catch (Throwable e) {
      hold.releaseInBackground(Release.How.FAILED);
      // exec refused because the lock was lost, so another caller computes the value.
      T found = e instanceof LockLostException && hold.isLost() ? read.get() : null;
      if (found == null) {
        throw e;
      }
      return found;
    }
    try {
      hold.release();
    } catch (LockLostException e) {
      // Another caller may have computed the value as well: return what all others read.
      T found = read.get();
      return found == null ? value : found;
    } catch (RuntimeException e) {
      // The value is stored. Renewal has stopped, so the lease ends the hold.
      Context.LOG.log(
          System.Logger.Level.WARNING, "the lock \"" + name + "\" could not be released", e);
    }
    return value;
  }

  /**
   * Acquires the lock, but stops waiting once the holder has released it with its work done. {@link
   * #once} is built on it.
   *
   * @param wait how long to wait; zero or less: not at all
   * @return granted, done by another holder, or neither
   * @throws InterruptedException if the thread was interrupted; nothing is left behind
   * @throws LockException if waiting cannot help
   */
  public Outcome acquireOrDone(Duration wait) throws InterruptedException {
    if (settings.atLeastMs > 0 || settings.pollMs > 0) {
      throw new IllegalArgumentException(
          "coalescing needs releases that free the lock, and a queue: omit atLeast and mixed");
    }
    Attempt attempt = ask(wait, true);
    boolean isDone = attempt.grant != null && attempt.grant.done();
    return new Outcome(attempt.hold, isDone ? attempt.grant.fence() : 0);
  }

  /**
   * The result of {@link #acquireOrDone}.
   *
   * @param hold the hold; null if the lock was not granted
   * @param doneBy the fencing token of the hold that did the work; 0 if it was not done
   */
  public record Outcome(@Nullable Hold hold, long doneBy) {
    /**
     * Returns the hold if the lock was granted.
     *
     * @return the hold; empty if the lock was not granted
     */
    public Optional<Hold> granted() {
      return Optional.ofNullable(hold);
    }

    /**
     * Returns whether another holder did the work.
     *
     * @return false if the lock was granted, or the wait timed out
     */
    public boolean isDone() {
      return doneBy != 0;
    }
  }
}
