package redislock.spring;

import io.micrometer.core.instrument.MeterRegistry;
import java.time.Duration;
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
 * What else an application with {@link RedisLocks} has: with their libraries a {@link
 * LockRegistry}, ShedLock's {@link LockProvider}, and meters. Each gives way to a bean of the
 * application's own.
 */
@AutoConfiguration(
    after = RedisLockAutoConfiguration.class,
    // Of Boot 3, and of Boot 4.
    afterName = {
      "org.springframework.boot.actuate.autoconfigure.metrics.CompositeMeterRegistryAutoConfiguration",
      "org.springframework.boot.micrometer.metrics.autoconfigure.CompositeMeterRegistryAutoConfiguration"
    })
@ConditionalOnBean(RedisLocks.class)
public class RedisLockBeansAutoConfiguration {
  /** Made by Spring. */
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
    RedisLockRegistry redisLockRegistry(RedisLocks locks) {
      return new RedisLockRegistry(locks, "registry:", Duration.ofSeconds(30));
    }
  }

  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass({LockProvider.class, RedisLockProvider.class})
  static class ShedLock {
    @Bean
    @ConditionalOnMissingBean
    LockProvider redisLockProvider(RedisLocks locks) {
      return new RedisLockProvider(locks);
    }
  }
}
