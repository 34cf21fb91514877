package redislock;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A lock of the server as a {@code java.util.concurrent.locks.Lock}. It is owned by a thread and
 * reentrant within it; only the outermost lock asks the server. Instances with the same name and
 * type, of the same {@link RedisLocks}, are the same lock. Conditions are not supported.
 */
public final class ThreadLock implements Lock {
  /** What a thread holds, and how many times. */
  record Held(Hold hold, int count) {}

  /** The lock on the server. */
  record Key(LockEvent.Kind kind, List<String> keys) {}

  private final RedisLock<?> lock;
  private final Key key;

  /** Per thread, so that the hold of a thread that has ended is dropped and no longer renewed. */
  private final ThreadLocal<Map<Key, Held>> ofThread;

  ThreadLock(RedisLock<?> lock, ThreadLocal<Map<Key, Held>> ofThread) {
    this.lock = lock;
    this.ofThread = ofThread;
    this.key =
        new Key(lock.lockType.kind(), lock.lockType.keys().stream().map(Words::json).toList());
  }

  private boolean reenter() {
    Held held = ofThread.get().get(key);
    if (held == null) {
      return false;
    }
    if (held.hold.isLost()) {
      throw new LockLostException(
          "the current hold was lost: unlock it before locking again", lock.name());
    }
    ofThread.get().put(key, new Held(held.hold, held.count + 1));
    return true;
  }

  private void hold(Hold hold) {
    if (lock.settings.token == null && lock.settings.within == null) {
      hold.owner.thread = Thread.currentThread();
    }
    ofThread.get().put(key, new Held(hold, 1));
  }

  @Override
  public void lock() {
    try {
      lockInterruptibly();
    } catch (InterruptedException e) {
      hold(uninterruptibly(RedisLock.FOREVER));
    }
  }

  @Override
  public void lockInterruptibly() throws InterruptedException {
    if (!reenter()) {
      hold(lock.acquire());
    }
  }

  /** Retries after an interrupt, which is kept for later like any further one. */
  private Hold uninterruptibly(Duration wait) {
    Thread.currentThread().interrupt();
    return Futures.result(lock.acquireAsync(wait));
  }

  @Override
  public boolean tryLock() {
    try {
      return tryLock(0, TimeUnit.MILLISECONDS);
    } catch (InterruptedException e) {
      try {
        hold(uninterruptibly(Duration.ZERO));
        return true;
      } catch (NotAcquiredException held) {
        return false;
      }
    }
  }

  @Override
  public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
    if (reenter()) {
      return true;
    }
    // Saturates at 292 years.
    Duration wait = Duration.ofNanos(unit.toNanos(time));
    Optional<Hold> granted = lock.tryAcquire(wait);
    granted.ifPresent(this::hold);
    return granted.isPresent();
  }

  /**
   * Returns the hold of the current thread.
   *
   * @return the hold
   * @throws IllegalMonitorStateException if the current thread does not hold the lock
   */
  public Hold hold() {
    return held().hold;
  }

  private Held held() {
    Held held = ofThread.get().get(key);
    if (held == null) {
      throw new IllegalMonitorStateException(
          "this thread does not hold the lock \"" + lock.name() + "\"");
    }
    return held;
  }

  /**
   * Unlocks once. The lock is released when the current thread has unlocked it as often as it
   * locked it.
   *
   * @throws IllegalMonitorStateException if the current thread does not hold the lock
   * @throws LockLostException if the lock was lost before
   */
  @Override
  public void unlock() {
    Held held = held();
    if (held.count > 1) {
      ofThread.get().put(key, new Held(held.hold, held.count - 1));
      return;
    }
    ofThread.get().remove(key);
    if (ofThread.get().isEmpty()) {
      ofThread.remove();
    }
    held.hold.release();
  }

  /**
   * Returns the lock and that it is owned by threads, for logs.
   *
   * @return such as {@code asLock of mutex "report" (lease PT30S)}
   */
  @Override
  public String toString() {
    return "asLock of " + lock;
  }

  @Override
  public Condition newCondition() {
    throw new UnsupportedOperationException("a lock of the server does not support conditions");
  }
}
