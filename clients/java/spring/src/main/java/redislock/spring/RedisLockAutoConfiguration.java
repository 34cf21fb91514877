package redislock.spring;

import io.lettuce.core.AbstractRedisClient;
import io.micrometer.observation.ObservationRegistry;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Role;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.util.ClassUtils;
import redis.clients.jedis.UnifiedJedis;
import redislock.LockObserver;
import redislock.RedisLocks;

/**
 * {@link RedisLocks} over the Redis client of the application (a bean of Jedis or Lettuce, or the
 * Lettuce client of Spring Data), observed by all {@link LockObserver} beans, and {@link Locked}.
 */
@AutoConfiguration(
    // Of Boot 3, and of Boot 4.
    afterName = {
      "org.springframework.boot.autoconfigure.data.redis.RedisAutoConfiguration",
      "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration"
    })
public class RedisLockAutoConfiguration {
  /** Made by Spring. */
  public RedisLockAutoConfiguration() {}

  @Bean
  @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
  static LockedAdvisor redisLockAdvisor(ApplicationContext context) {
    boolean observes = ClassUtils.isPresent("io.micrometer.observation.ObservationRegistry", null);
    return new LockedAdvisor(
        () -> context.getBean(RedisLocks.class),
        () -> observes ? Observations.registry(context) : null);
  }

  private static final class Observations {
    static @org.jspecify.annotations.Nullable Object registry(ApplicationContext context) {
      return context.getBeanProvider(ObservationRegistry.class).getIfAvailable();
    }
  }

  private static RedisLocks observed(AutoCloseable client, ObjectProvider<LockObserver> observers) {
    RedisLocks locks = RedisLocks.over(client);
    var all = observers.orderedStream().toList();
    return all.isEmpty() ? locks : locks.observedBy(event -> all.forEach(each -> each.on(event)));
  }

  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(UnifiedJedis.class)
  static class Jedis {
    @Bean(destroyMethod = "close")
    @ConditionalOnBean(UnifiedJedis.class)
    @ConditionalOnMissingBean
    RedisLocks redisLocks(UnifiedJedis client, ObjectProvider<LockObserver> observers) {
      return observed(client, observers);
    }
  }

  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(AbstractRedisClient.class)
  static class Lettuce {
    @Bean(destroyMethod = "close")
    @ConditionalOnBean(AbstractRedisClient.class)
    @ConditionalOnMissingBean
    RedisLocks redisLocks(AbstractRedisClient client, ObjectProvider<LockObserver> observers) {
      return observed(client, observers);
    }
  }

  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass({AbstractRedisClient.class, LettuceConnectionFactory.class})
  static class SpringData {
    @Bean(destroyMethod = "close")
    @ConditionalOnBean(LettuceConnectionFactory.class)
    @ConditionalOnMissingBean
    RedisLocks redisLocks(
        LettuceConnectionFactory connections, ObjectProvider<LockObserver> observers) {
      return observed(connections.getRequiredNativeClient(), observers);
    }
  }
}
