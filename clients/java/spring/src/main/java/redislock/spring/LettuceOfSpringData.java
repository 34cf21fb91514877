package redislock.spring;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.codec.RedisCodec;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.data.redis.connection.RedisConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/**
 * A Lettuce client with the settings of the application's connection factory. Not the client of the
 * factory itself: that one stops with the factory, in an early phase of the application's stop, and
 * is replaced when the factory is restarted. This one lives as long as the beans that hold locks.
 */
final class LettuceOfSpringData implements DisposableBean {
  private final LettuceConnectionFactory own;

  /**
   * The client for this factory.
   *
   * @throws IllegalStateException if the factory's connections lead to several servers, of which
   *     any may be the primary
   */
  LettuceOfSpringData(LettuceConnectionFactory factory) {
    RedisConfiguration configuration = factory.getClusterConfiguration();
    if (configuration == null) {
      configuration = factory.getSentinelConfiguration();
    }
    if (configuration == null) {
      configuration = factory.getSocketConfiguration();
    }
    if (configuration == null) {
      // It has a client from its start on, and connects with the first command.
      factory.start();
      if (hasNoServer(factory.getRequiredNativeClient())) {
        throw new IllegalStateException(
            "redis-lock: a static master/replica configuration does not say which server is the"
                + " primary, which holds the locks: define a bean of io.lettuce.core.RedisClient"
                + " for the primary, or use Sentinel or a cluster");
      }
      configuration = factory.getStandaloneConfiguration();
    }
    own = new LettuceConnectionFactory(configuration, factory.getClientConfiguration());
    own.afterPropertiesSet();
  }

  /**
   * The client of a static master/replica configuration, which no method of the factory tells, is
   * the one that was made without a server. Without a codec it connects to none, but checks first
   * that it knows one.
   */
  private static boolean hasNoServer(AbstractRedisClient client) {
    try {
      if (client instanceof RedisClient single) {
        single.connect((RedisCodec<?, ?>) null);
      }
      return false;
    } catch (IllegalStateException e) {
      return true;
    } catch (IllegalArgumentException e) {
      return false;
    }
  }

  AbstractRedisClient client() {
    return own.getRequiredNativeClient();
  }

  @Override
  public void destroy() {
    own.destroy();
  }
}
