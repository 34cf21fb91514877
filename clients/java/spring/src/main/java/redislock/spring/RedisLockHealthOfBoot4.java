package redislock.spring;

import org.springframework.boot.health.contributor.AbstractHealthIndicator;
import org.springframework.boot.health.contributor.Health;
import redislock.RedisLocks;

/** {@link RedisLockHealth} for the health endpoint of Spring Boot 4. */
final class RedisLockHealthOfBoot4 extends AbstractHealthIndicator {
  private final RedisLocks locks;

  RedisLockHealthOfBoot4(RedisLocks locks) {
    super("locks cannot be acquired");
    this.locks = locks;
  }

  @Override
  protected void doHealthCheck(Health.Builder builder) throws InterruptedException {
    RedisLockHealth.check(locks);
    builder.up();
  }
}
