package redislock.spring;

import java.time.Duration;
import java.util.concurrent.locks.Lock;
import org.springframework.integration.support.locks.RenewableLockRegistry;
import redislock.RedisLocks;

/**
 * A lock registry of Spring Integration over native locks. Its locks are owned by threads, and
 * renewed for as long as they are held.
 */
public final class RedisLockRegistry implements RenewableLockRegistry {
  private final RedisLocks locks;
  private final Duration lease;

  /**
   * A registry.
   *
   * @param locks over the client to use
   * @param prefix of the keys, as {@code registry:}
   * @param lease how long a lock is held after this process has died
   */
  public RedisLockRegistry(RedisLocks locks, String prefix, Duration lease) {
    this.locks = locks.withPrefix(prefix);
    this.lease = lease;
  }

  @Override
  public Lock obtain(Object key) {
    return lock(key);
  }

  private redislock.ThreadLock lock(Object key) {
    return locks.mutex(key.toString()).lease(lease).autoRenew().asLock();
  }

  @Override
  public void renewLock(Object key) {
    lock(key).hold().extend();
  }

  /**
   * Renews a lock of this thread.
   *
   * @param key of the lock
   * @param lease from now
   */
  public void renewLock(Object key, Duration lease) {
    lock(key).hold().extend(lease);
  }
}
