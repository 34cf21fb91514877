package redislock.spring;

import io.micrometer.core.instrument.MeterRegistry;
import net.javacrumbs.shedlock.core.LockProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.integration.support.locks.LockRegistry;
import redislock.RedisLocks;
import redislock.shedlock.RedisLockProvider;

/**
 * Further beans of an application with {@link RedisLocks}: a {@link LockRegistry}, ShedLock's
 * {@link LockProvider}, meters, and the health indicator {@code redislock}, each if its library is
 * present. Each backs off if the application defines its own bean.
 */
@AutoConfiguration(
    after = RedisLockAutoConfiguration.class,
    // The names in Boot 3 and in Boot 4.
    afterName = {
      "org.springframework.boot.actuate.autoconfigure.metrics.CompositeMeterRegistryAutoConfiguration",
      "org.springframework.boot.micrometer.metrics.autoconfigure.CompositeMeterRegistryAutoConfiguration"
    })
@ConditionalOnBean(RedisLocks.class)
public class RedisLockBeansAutoConfiguration {
  /** Called by Spring. */
  public RedisLockBeansAutoConfiguration() {}

  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(MeterRegistry.class)
  @ConditionalOnBean(MeterRegistry.class)
  static class Metrics {
    @Bean
    @ConditionalOnMissingBean
    RedisLockMetrics redisLockMetrics(MeterRegistry meters) {
      return new RedisLockMetrics(meters);
    }
  }

  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(LockRegistry.class)
  static class Integration {
    @Bean
    @ConditionalOnMissingBean(LockRegistry.class)
    RedisLockRegistry redisLockRegistry(RedisLocks locks, RedisLockProperties properties) {
      String prefix = properties.prefix() + properties.registryPrefix();
      return new RedisLockRegistry(locks, prefix, properties.lease());
    }
  }

  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass({LockProvider.class, RedisLockProvider.class})
  static class ShedLock {
    @Bean
    @ConditionalOnMissingBean
    LockProvider redisLockProvider(RedisLocks locks, RedisLockProperties properties) {
      return new RedisLockProvider(locks, properties.shedlockEnvironment());
    }
  }

  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(
      name =
          "org.springframework.boot.actuate.autoconfigure.health.ConditionalOnEnabledHealthIndicator")
  @org.springframework.boot.actuate.autoconfigure.health.ConditionalOnEnabledHealthIndicator(
      "redislock")
  static class HealthOfBoot3 {
    @Bean
    @ConditionalOnMissingBean(name = "redislockHealthIndicator")
    RedisLockHealthOfBoot3 redislockHealthIndicator(RedisLocks locks) {
      return new RedisLockHealthOfBoot3(locks);
    }
  }

  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(
      name =
          "org.springframework.boot.health.autoconfigure.contributor.ConditionalOnEnabledHealthIndicator")
  @org.springframework.boot.health.autoconfigure.contributor.ConditionalOnEnabledHealthIndicator(
      "redislock")
  static class HealthOfBoot4 {
    @Bean
    @ConditionalOnMissingBean(name = "redislockHealthIndicator")
    RedisLockHealthOfBoot4 redislockHealthIndicator(RedisLocks locks) {
      return new RedisLockHealthOfBoot4(locks);
    }
  }
}
