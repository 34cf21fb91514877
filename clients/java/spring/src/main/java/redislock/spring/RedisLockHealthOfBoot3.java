package redislock.spring;

import org.springframework.boot.actuate.health.AbstractHealthIndicator;
import org.springframework.boot.actuate.health.Health;
import redislock.RedisLocks;

/** {@link RedisLockHealth} for the health endpoint of Spring Boot 3. */
final class RedisLockHealthOfBoot3 extends AbstractHealthIndicator {
  private final RedisLocks locks;

  RedisLockHealthOfBoot3(RedisLocks locks) {
    super("locks cannot be acquired");
    this.locks = locks;
  }

  @Override
  protected void doHealthCheck(Health.Builder builder) throws InterruptedException {
    RedisLockHealth.check(locks);
    builder.up();
  }
}
