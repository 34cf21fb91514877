package redislock.spring;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code redislock.…} of an application.
 *
 * @param prefix The prefix of the keys of RedisLocks, of Locked methods and of the LockRegistry.
 *     Empty by default.
 * @param registryPrefix What the LockRegistry puts between the prefix and the lock's name, {@code
 *     registry:} by default.
 * @param lease How long the lock of a Locked method or of the LockRegistry stays held after its
 *     process has died, 30 s by default.
 * @param shedlockEnvironment The environment in ShedLock's keys, as in ShedLock's own Redis
 *     providers, {@code default} by default.
 */
@ConfigurationProperties("redislock")
public record RedisLockProperties(
    @DefaultValue("") String prefix,
    @DefaultValue("registry:") String registryPrefix,
    @DefaultValue("30s") Duration lease,
    @DefaultValue("default") String shedlockEnvironment) {
  /**
   * Checks the values.
   *
   * @param prefix any text
   * @param registryPrefix any text
   * @param lease longer than zero
   * @param shedlockEnvironment any text
   * @throws IllegalArgumentException if the lease is zero or less
   */
  public RedisLockProperties {
    if (lease.isNegative() || lease.isZero()) {
      throw new IllegalArgumentException("redislock.lease must be greater than zero, not " + lease);
    }
  }
}
