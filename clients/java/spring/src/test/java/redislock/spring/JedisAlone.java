package redislock.spring;

import org.springframework.boot.autoconfigure.ImportAutoConfiguration;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import redis.clients.jedis.UnifiedJedis;

/** An application with Jedis and none of the other optional libraries: {@code JedisAlone PORT}. */
public class JedisAlone {
  private JedisAlone() {}

  /** Prints what a locked call returns. */
  public static void main(String[] arguments) {
    System.setProperty("test.port", arguments[0]);
    try (var context = new AnnotationConfigApplicationContext(Application.class)) {
      System.out.println(context.getBean(Work.class).work());
    }
  }

  @Configuration(proxyBeanMethods = false)
  @ImportAutoConfiguration({
    RedisLockAutoConfiguration.class,
    RedisLockBeansAutoConfiguration.class
  })
  static class Application {
    @Bean
    UnifiedJedis client() throws ReflectiveOperationException {
      return JedisClient.of(Integer.getInteger("test.port"));
    }

    @Bean
    Work work() {
      return new Work();
    }
  }

  static class Work {
    @Locked(name = "k")
    public String work() {
      return "worked";
    }
  }
}
