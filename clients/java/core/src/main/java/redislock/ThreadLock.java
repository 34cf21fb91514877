package redislock;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A lock of the server as a {@link Lock}: owned by threads, and reentrant within one, which asks
 * the server once. All locks of one name and family, of the same {@link RedisLocks}, are one. There
 * are no conditions.
 */
public final class ThreadLock implements Lock {
  /** What a thread holds, and how often. */
  record Held(Hold hold, int count) {}

  /** The lock, as the server knows it. */
  record Key(LockEvent.Kind kind, List<String> keys) {}

  private final RedisLock<?> lock;
  private final Key key;

  /** Of the thread: what a thread that has ended holds is forgotten, and no longer renewed. */
  private final ThreadLocal<Map<Key, Held>> ofThread;

  ThreadLock(RedisLock<?> lock, ThreadLocal<Map<Key, Held>> ofThread) {
    this.lock = lock;
    this.ofThread = ofThread;
    this.key = new Key(lock.family.kind(), lock.family.keys().stream().map(Words::told).toList());
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

  /** After an interrupt, which is kept for later, as further ones are. */
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
   * What this thread holds.
   *
   * @return the hold
   * @throws IllegalMonitorStateException if it does not hold the lock
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
   * Releases the lock, if this thread has locked it once.
   *
   * @throws IllegalMonitorStateException if this thread does not hold it
   * @throws LockLostException if it was lost before
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
   * For logs: the lock, and that it is owned by threads.
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
