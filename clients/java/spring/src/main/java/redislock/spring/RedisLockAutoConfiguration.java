package redislock.spring;

import io.lettuce.core.AbstractRedisClient;
import io.micrometer.observation.ObservationRegistry;
import org.jspecify.annotations.Nullable;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Role;
import org.springframework.core.annotation.Order;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.util.ClassUtils;
import redis.clients.jedis.UnifiedJedis;
import redislock.LockObserver;
import redislock.RedisLocks;

/**
 * Provides {@link RedisLocks} over the Redis client of the application (a bean of Jedis or Lettuce,
 * or a Lettuce client with the settings of Spring Data), observed by all {@link LockObserver}
 * beans, and enables {@link Locked}.
 */
@AutoConfiguration(
    // The names in Boot 3 and in Boot 4.
    afterName = {
      "org.springframework.boot.autoconfigure.data.redis.RedisAutoConfiguration",
      "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration"
    })
@EnableConfigurationProperties(RedisLockProperties.class)
public class RedisLockAutoConfiguration {
  /** Called by Spring. */
  public RedisLockAutoConfiguration() {}

  @Bean
  @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
  static LockedAdvisor redisLockAdvisor(ApplicationContext context) {
    boolean observes = ClassUtils.isPresent("io.micrometer.observation.ObservationRegistry", null);
    LockedCalls calls =
        new LockedCalls(
            () -> context.getBean(RedisLocks.class),
            () -> context.getBean(RedisLockProperties.class).lease(),
            () -> observes ? Observations.registry(context) : null);
    // As for Spring Boot's own proxies.
    boolean isSubclassing =
        context
            .getEnvironment()
            .getProperty("spring.aop.proxy-target-class", Boolean.class, Boolean.TRUE);
    return new LockedAdvisor(calls, isSubclassing);
  }

  private static final class Observations {
    static @Nullable Object registry(ApplicationContext context) {
      return context.getBeanProvider(ObservationRegistry.class).getIfAvailable();
    }
  }

  private static RedisLocks locks(
      AutoCloseable client,
      RedisLockProperties properties,
      ObjectProvider<LockObserver> observers) {
    RedisLocks locks = RedisLocks.over(client).withPrefix(properties.prefix());
    var all = observers.orderedStream().toList();
    return all.isEmpty() ? locks : locks.observedBy(event -> all.forEach(each -> each.on(event)));
  }

  // Ordered explicitly, because the order of nested classes is undefined.
  @Order(1)
  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(UnifiedJedis.class)
  static class Jedis {
    @Bean(destroyMethod = "close")
    @ConditionalOnBean(UnifiedJedis.class)
    @ConditionalOnMissingBean
    RedisLocks redisLocks(
        UnifiedJedis client,
        RedisLockProperties properties,
        ObjectProvider<LockObserver> observers) {
      return locks(client, properties, observers);
    }
  }

  @Order(2)
  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(AbstractRedisClient.class)
  static class Lettuce {
    @Bean(destroyMethod = "close")
    @ConditionalOnBean(AbstractRedisClient.class)
    @ConditionalOnMissingBean
    RedisLocks redisLocks(
        AbstractRedisClient client,
        RedisLockProperties properties,
        ObjectProvider<LockObserver> observers) {
      return locks(client, properties, observers);
    }
  }

  @Order(3)
  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass({AbstractRedisClient.class, LettuceConnectionFactory.class})
  @ConditionalOnBean(LettuceConnectionFactory.class)
  @ConditionalOnMissingBean(RedisLocks.class)
  static class SpringData {
    @Bean
    LettuceOfSpringData redisLockClient(LettuceConnectionFactory connections) {
      return new LettuceOfSpringData(connections);
    }

    @Bean(destroyMethod = "close")
    RedisLocks redisLocks(
        LettuceOfSpringData made,
        RedisLockProperties properties,
        ObjectProvider<LockObserver> observers) {
      return locks(made.client(), properties, observers);
    }
  }

  @Order(4)
  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass({UnifiedJedis.class, JedisConnectionFactory.class})
  @ConditionalOnBean(JedisConnectionFactory.class)
  @ConditionalOnMissingBean(RedisLocks.class)
  static class SpringDataWithJedis {
    @Bean
    RedisLocks redisLocks() {
      throw new IllegalStateException(
          "redis-lock: Spring Data's Jedis connections have no client that locks can share:"
              + " define a bean of redis.clients.jedis.RedisClient (before Jedis 7.2: JedisPooled),"
              + " or use Lettuce");
    }
  }
}
