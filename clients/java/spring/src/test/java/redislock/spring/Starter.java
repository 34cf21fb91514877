package redislock.spring;

import static org.junit.jupiter.api.Assertions.fail;

import io.lettuce.core.RedisClient;
import java.util.concurrent.Callable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import redis.clients.jedis.UnifiedJedis;
import redislock.LockLostException;
import redislock.TestServer;

/** A server, and applications with the starter and one kind of client. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
@Timeout(300)
abstract class Starter {
  TestServer server;

  @BeforeAll
  void startServer() {
    server = new TestServer();
  }

  @AfterAll
  void stopServer() {
    server.close();
  }

  @BeforeEach
  void clear() {
    server.ask("FLUSHALL");
  }

  /**
   * Asserts that a call reports the loss of its lock although it succeeds. A busy machine may need
   * more than the second for which the call awaits its release; then the call is repeated.
   */
  static void assertLost(Callable<?> call) throws Exception {
    boolean wasInTime = false;
    for (int attempt = 0; attempt < 20 && !wasInTime; attempt++) {
      long began = System.nanoTime();
      try {
        call.call();
      } catch (LockLostException e) {
        return;
      }
      wasInTime = System.nanoTime() - began < 900_000_000L;
    }
    fail("the call reported no loss");
  }

  /** The server for beans. It is wrapped because Spring closes a closeable bean. */
  record Redis(TestServer server) {}

  /** An application with these classes. */
  ApplicationContextRunner with(Class<?>... classes) {
    return new ApplicationContextRunner()
        .withConfiguration(
            AutoConfigurations.of(
                RedisLockAutoConfiguration.class, RedisLockBeansAutoConfiguration.class))
        .withPropertyValues("test.port=" + server.port())
        .withBean(Redis.class, () -> new Redis(server))
        .withUserConfiguration(classes);
  }

  @Configuration(proxyBeanMethods = false)
  static class Lettuce {
    @Bean(destroyMethod = "shutdown")
    RedisClient client(@Value("${test.port}") int port) {
      return RedisClient.create("redis://127.0.0.1:" + port);
    }
  }

  @Configuration(proxyBeanMethods = false)
  static class Jedis {
    @Bean
    UnifiedJedis client(@Value("${test.port}") int port) throws ReflectiveOperationException {
      return JedisClient.of(port);
    }
  }

  @Configuration(proxyBeanMethods = false)
  static class SpringData {
    @Bean
    LettuceConnectionFactory connections(@Value("${test.port}") int port) {
      return new LettuceConnectionFactory("127.0.0.1", port);
    }
  }
}
