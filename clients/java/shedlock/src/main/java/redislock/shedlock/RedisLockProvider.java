package redislock.shedlock;

import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import redislock.Hold;
import redislock.LockLostException;
import redislock.Mutex;
import redislock.RedisLocks;

/**
 * A ShedLock provider over native locks. Its keys are those of ShedLock's own Redis providers,
 * {@code job-lock:default:name}, so that both exclude each other while some instances still use one
 * of those.
 */
public final class RedisLockProvider implements ExtensibleLockProvider {
  private static final System.Logger LOG = System.getLogger("redislock");
  private static final Duration POLL = Duration.ofMillis(100);

  private final RedisLocks locks;

  /**
   * Creates a provider for the environment {@code default}.
   *
   * @param locks the locks to use
   */
  public RedisLockProvider(RedisLocks locks) {
    this(locks, "default");
  }

  /**
   * Creates a provider.
   *
   * @param locks the locks to use
   * @param environment the environment in the keys, as in ShedLock's own providers
   */
  public RedisLockProvider(RedisLocks locks, String environment) {
    this.locks = locks.withPrefix("job-lock:" + environment + ":");
  }

  @Override
  public Optional<SimpleLock> lock(LockConfiguration configuration) {
    Mutex mutex =
        locks
            .mutex(configuration.getName())
            .lease(configuration.getLockAtMostFor())
            // The key of an old instance is a string, which means held and is no error.
            .mixed(POLL);
    if (!configuration.getLockAtLeastFor().isZero()) {
      mutex = mutex.atLeast(configuration.getLockAtLeastFor());
    }
    try {
      return mutex.tryAcquire().map(hold -> new Held(configuration, hold));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return Optional.empty();
    }
  }

  private static final class Held extends AbstractSimpleLock {
    private final Hold hold;

    Held(LockConfiguration configuration, Hold hold) {
      super(configuration);
      this.hold = hold;
    }

    @Override
    protected void doUnlock() {
      try {
        hold.release();
      } catch (LockLostException e) {
        LOG.log(System.Logger.Level.WARNING, "the task took longer than lockAtMostFor", e);
      }
    }

    @Override
    protected Optional<SimpleLock> doExtend(LockConfiguration configuration) {
      try {
        hold.extend(configuration.getLockAtMostFor(), configuration.getLockAtLeastFor());
        return Optional.of(new Held(configuration, hold));
      } catch (LockLostException e) {
        return Optional.empty();
      }
    }
  }
}
