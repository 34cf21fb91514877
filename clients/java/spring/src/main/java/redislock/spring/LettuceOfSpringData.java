package redislock.spring;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.codec.RedisCodec;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.data.redis.connection.RedisConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/**
 * A Lettuce client with the settings of the application's connection factory. It is not the client
 * of the factory itself, which stops in an early phase of the application's shutdown and is
 * replaced when the factory is restarted. This one lives as long as the beans that hold locks.
 */
final class LettuceOfSpringData implements DisposableBean {
  private final LettuceConnectionFactory own;

  /**
   * Creates the client for this factory.
   *
   * @throws IllegalStateException if the factory connects to multiple servers, any of which may be
   *     the primary
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
      // It has a client once it is started, and connects with the first command.
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
   * No method of the factory reveals a static master/replica configuration, but its client was
   * created without a server. Connecting without a codec fails in any case, but first checks that
   * the client knows a server.
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
