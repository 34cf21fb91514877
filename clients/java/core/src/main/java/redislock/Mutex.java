package redislock;

import java.time.Duration;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * A lock with one holder. Immutable. Not reentrant: each acquire has an owner of its own, so one by
 * a thread that holds the lock waits for its own hold, without end by default. For nested calls see
 * {@link #asLock()}, which is owned by threads, and {@link ReentrantMutex#within}.
 */
public final class Mutex extends RedisLock<Mutex> {
  Mutex(Context context, String name, Family family, Settings settings) {
    super(context, name, family, settings);
  }

  @Override
  Mutex with(Settings settings) {
    return new Mutex(context, name, family, settings);
  }

  /**
   * Beside old clients, which hold the key as a string (SET NX): never waits in the queue, but
   * polls, so that both sides progress. Polls come after half to one and a half of the interval.
   * Replaces {@link #session}.
   *
   * @param interval longer than zero; 100 ms is usual
   * @return a lock
   */
  public Mutex mixed(Duration interval) {
    return with(settings.with(copy -> copy.mixed(Clock.positive("an interval", interval))));
  }

  /**
   * Looks for a shared value.
   *
   * @param <T> the type of the value
   * @param <E> what it throws
   */
  @FunctionalInterface
  public interface Read<T, E extends Exception> {
    /**
     * Looks.
     *
     * @return null: it is not there
     * @throws E passed on to the caller
     */
    @Nullable T get() throws E;
  }

  /**
   * Makes a shared value, and stores it where the {@link Read} finds it.
   *
   * @param <T> the type of the value
   * @param <E> what it throws
   */
  @FunctionalInterface
  public interface Make<T, E extends Exception> {
    /**
     * Makes the value.
     *
     * @param hold under which it is made
     * @return the value
     * @throws E passed on to the caller; the next caller makes the value
     */
    T get(Hold hold) throws E;
  }

  /**
   * Single-flight: of all callers that miss one value, one makes it, and the others wait until it
   * is there. The hold is renewed meanwhile.
   *
   * @param <T> the type of the value
   * @param <E> what {@code read} and {@code make} throw
   * @param read looks for the value; called again after each answer
   * @param make makes and stores it
   * @param wait limits the wait, not {@code read} and {@code make}; zero or less: none
   * @return the value that is stored
   * @throws E what {@code read} or {@code make} has thrown, as it is
   * @throws InterruptedException if the thread was interrupted; nothing is left behind
   * @throws NotMadeException if the value was not there in time
   */
  public <T, E extends Exception> T once(Read<T, E> read, Make<T, E> make, Duration wait)
      throws E, InterruptedException {
    if (settings.atLeastMs > 0 || settings.pollMs > 0 || settings.leaseMs == Family.PERSIST) {
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
      // Done but not there (it was evicted, or the lock was held for something else): asked again.
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
      // It may have been made while this caller asked for the lock, which may be cancelled
      // meanwhile.
      value = read.get();
      if (value == null) {
        if (Thread.interrupted()) {
          throw new InterruptedException();
        }
        value = make.get(hold);
      }
    } catch (Throwable e) {
      hold.releaseBeside(Release.How.FAILED);
      // Refused by exec: another caller makes the value.
      T found = e instanceof LockLostException && hold.isLost() ? read.get() : null;
      if (found == null) {
        throw e;
      }
      return found;
    }
    try {
      hold.release();
    } catch (LockLostException e) {
      // Another caller may have made the value too: what all others read is returned.
      T found = read.get();
      return found == null ? value : found;
    } catch (RuntimeException e) {
      // The value is made. Renewal has stopped, so the lease ends the hold.
      Context.LOG.log(
          System.Logger.Level.WARNING, "the lock \"" + name + "\" could not be released", e);
    }
    return value;
  }

  /**
   * The parts of {@link #once}: an acquire that a release by the holder answers too.
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
   * The answer to an acquire with coalescing.
   *
   * @param hold the hold; null: not granted
   * @param doneBy the fence of the hold that did the work; 0: it was not done
   */
  public record Outcome(@Nullable Hold hold, long doneBy) {
    /**
     * The hold, if it was granted.
     *
     * @return empty: not granted
     */
    public Optional<Hold> granted() {
      return Optional.ofNullable(hold);
    }

    /**
     * Whether another hold did the work.
     *
     * @return false: granted, or the time was over
     */
    public boolean isDone() {
      return doneBy != 0;
    }
  }
}
