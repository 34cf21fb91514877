package redislock.spring;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import org.springframework.integration.support.locks.RenewableLockRegistry;
import redislock.RedisLocks;
import redislock.ThreadLock;

/**
 * A lock registry of Spring Integration over native locks. Its locks are owned by a thread,
 * reentrant, and renewed while they are held.
 */
public final class RedisLockRegistry implements RenewableLockRegistry, AutoCloseable {
  private final RedisLocks locks;
  private final Duration lease;
  private final InUse inUse = new InUse();

  /**
   * Creates a registry.
   *
   * @param locks the locks to use
   * @param prefix the prefix of the keys, such as {@code registry:}
   * @param lease how long a lock stays held after this process has died
   */
  public RedisLockRegistry(RedisLocks locks, String prefix, Duration lease) {
    this.locks = locks.withPrefix(prefix);
    this.lease = lease;
  }

  @Override
  public Lock obtain(Object key) {
    return new Counted(lock(key));
  }

  private ThreadLock lock(Object key) {
    return locks.mutex(key.toString()).lease(lease).autoRenew().asLock();
  }

  @Override
  public void renewLock(Object key) {
    lock(key).hold().extend();
  }

  /**
   * Renews a lock that the current thread holds.
   *
   * @param key the key of the lock
   * @param lease the lease from now on
   */
  public void renewLock(Object key, Duration lease) {
    lock(key).hold().extend(lease);
  }

  /**
   * Waits until the threads that hold locks of this registry have unlocked them, for 5 s at most.
   * Spring calls this when the application stops, before it closes the {@link RedisLocks}, because
   * a leader that is stopped unlocks in a separate thread.
   */
  @Override
  public void close() {
    inUse.awaitEnd();
  }

  /** A lock that counts as in use while it is held. */
  private final class Counted implements Lock {
    private final ThreadLock lock;

    Counted(ThreadLock lock) {
      this.lock = lock;
    }

    @Override
    public void lock() {
      lock.lock();
      inUse.begin();
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
      lock.lockInterruptibly();
      inUse.begin();
    }

    @Override
    public boolean tryLock() {
      return counted(lock.tryLock());
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
      return counted(lock.tryLock(time, unit));
    }

    private boolean counted(boolean isLocked) {
      if (isLocked) {
        inUse.begin();
      }
      return isLocked;
    }

    @Override
    public void unlock() {
      // Throws if this thread does not hold the lock; the count then stays.
      lock.hold();
      try {
        lock.unlock();
      } finally {
        inUse.end();
      }
    }

    @Override
    public Condition newCondition() {
      return lock.newCondition();
    }
  }
}
