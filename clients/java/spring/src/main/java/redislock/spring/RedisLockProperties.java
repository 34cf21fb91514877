package redislock.spring;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code redislock.…} of an application.
 *
 * @param prefix What the keys of RedisLocks, of Locked methods and of the LockRegistry begin with.
 * @param registryPrefix What the keys of the LockRegistry have between the prefix and the name.
 * @param lease How long the lock of a Locked method or of the LockRegistry is held after its
 *     process has died.
 * @param shedlockEnvironment The environment in ShedLock's keys, as of ShedLock's own Redis
 *     providers.
 */
@ConfigurationProperties("redislock")
public record RedisLockProperties(
    @DefaultValue("") String prefix,
    @DefaultValue("registry:") String registryPrefix,
    @DefaultValue("30s") Duration lease,
    @DefaultValue("default") String shedlockEnvironment) {
  /**
   * Checks them.
   *
   * @param prefix any
   * @param registryPrefix any
   * @param lease longer than zero
   * @param shedlockEnvironment any
   * @throws IllegalArgumentException if the lease is zero or less
   */
  public RedisLockProperties {
    if (lease.isNegative() || lease.isZero()) {
      throw new IllegalArgumentException("redislock.lease must be greater than zero, not " + lease);
    }
  }
}
