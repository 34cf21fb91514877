package redislock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import org.junit.jupiter.api.Test;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.integration.support.locks.LockRegistry;
import redislock.RedisLocks;
import redislock.TestServer;

/** The properties of the starter, and its health. */
final class SettingsTest extends Starter {
  static class Work {
    private final TestServer server;

    Work(TestServer server) {
      this.server = server;
    }

    @Locked(name = "work")
    public long leftMs(String key) {
      return (Long) server.ask("PTTL", key);
    }

    @Locked(name = "work", lease = "20s")
    public long ownMs(String key) {
      return (Long) server.ask("PTTL", key);
    }
  }

  private static void run(ApplicationContextRunner runner, Checked<ApplicationContext> test) {
    runner
        .withUserConfiguration(Application.class)
        .run(context -> test.accept(context.getSourceApplicationContext()));
  }

  @Configuration(proxyBeanMethods = false)
  static class Application {
    @Bean
    Work work(Redis redis) {
      return new Work(redis.server());
    }
  }

  private interface Checked<T> {
    void accept(T value) throws Exception;
  }

  private static void locksAJob(ApplicationContext context) {
    LockConfiguration job =
        new LockConfiguration(ClockProvider.now(), "job", Duration.ofSeconds(5), Duration.ZERO);
    assertTrue(context.getBean(LockProvider.class).lock(job).isPresent());
  }

  @Test
  void withoutThem() {
    run(
        with(Lettuce.class),
        context -> {
          long leftMs = context.getBean(Work.class).leftMs("work");
          assertTrue(leftMs > 25_000 && leftMs <= 30_000, leftMs + " ms");
          context.getBean(LockRegistry.class).obtain("k").lock();
          assertTrue(server.exists("registry:k"));
          context.getBean(LockRegistry.class).obtain("k").unlock();
          locksAJob(context);
          assertTrue(server.exists("job-lock:default:job"));
        });
  }

  @Test
  void eachIsUsed() {
    run(
        with(Lettuce.class)
            .withPropertyValues(
                "redislock.prefix=app:",
                "redislock.registry-prefix=locks:",
                "redislock.lease=10s",
                "redislock.shedlock-environment=staging"),
        context -> {
          long leftMs = context.getBean(Work.class).leftMs("app:work");
          assertTrue(leftMs > 5_000 && leftMs <= 10_000, leftMs + " ms");
          long ownMs = context.getBean(Work.class).ownMs("app:work");
          assertTrue(ownMs > 15_000 && ownMs <= 20_000, ownMs + " ms");
          context.getBean(RedisLocks.class).mutex("k").acquire();
          assertTrue(server.exists("app:k"));
          context.getBean(LockRegistry.class).obtain("k").lock();
          long lockedMs = (Long) server.ask("PTTL", "app:locks:k");
          assertTrue(lockedMs > 5_000 && lockedMs <= 10_000, lockedMs + " ms");
          context.getBean(LockRegistry.class).obtain("k").unlock();
          locksAJob(context);
          assertTrue(server.exists("job-lock:staging:job"));
        });
  }

  @Test
  void anInvalidLeaseDoesNotStart() {
    for (String each : List.of("0s", "-1s", "0.5ms", "soon")) {
      with(Lettuce.class)
          .withPropertyValues("redislock.lease=" + each)
          .run(context -> assertNotNull(context.getStartupFailure(), each));
    }
  }

  /** For the completion in an editor. */
  @Test
  void eachIsDescribed() throws Exception {
    String path = "META-INF/spring-configuration-metadata.json";
    String metadata = "";
    for (var url : java.util.Collections.list(getClass().getClassLoader().getResources(path))) {
      try (var in = url.openStream()) {
        String text = new String(in.readAllBytes(), java.nio.charset.StandardCharsets.UTF_8);
        metadata += text.contains("redislock.spring") ? text : "";
      }
    }
    for (String each : List.of("prefix", "registry-prefix", "lease", "shedlock-environment")) {
      assertTrue(metadata.contains("\"redislock." + each + "\""), each);
    }
  }

  /** In Boot 3 or Boot 4. */
  private static Object health(ApplicationContext context) throws Exception {
    Object indicator = context.getBean("redislockHealthIndicator");
    Class<?> type = indicator.getClass();
    while (!type.getSimpleName().equals("AbstractHealthIndicator")) {
      type = type.getSuperclass();
    }
    return type.getMethod("health").invoke(indicator);
  }

  @Configuration(proxyBeanMethods = false)
  static class Stopped {
    @Bean(destroyMethod = "shutdown")
    io.lettuce.core.RedisClient client() {
      return io.lettuce.core.RedisClient.create("redis://127.0.0.1:1");
    }
  }

  @Configuration(proxyBeanMethods = false)
  static class Limited {
    @Bean(destroyMethod = "shutdown")
    io.lettuce.core.RedisClient client(
        @org.springframework.beans.factory.annotation.Value("${test.port}") int port) {
      return io.lettuce.core.RedisClient.create("redis://limited:secret@127.0.0.1:" + port);
    }
  }

  @Test
  void itsHealthIsThatOfTheServer() {
    for (Class<?> each : List.of(Lettuce.class, Jedis.class)) {
      run(with(each), context -> assertEquals("UP {}", health(context).toString()));
    }
    run(
        with(Stopped.class),
        context -> {
          String health = health(context).toString();
          assertTrue(health.startsWith("DOWN "), health);
        });
    server.ask("ACL", "SETUSER", "limited", "on", ">secret", "+@all", "~other:*", "&*");
    run(
        with(Limited.class),
        context -> {
          String health = health(context).toString();
          assertTrue(health.contains("NOPERM") || health.contains("No permissions"), health);
        });
    run(
        with(Limited.class).withPropertyValues("redislock.prefix=other:"),
        context -> assertEquals("UP {}", health(context).toString()));
    try (TestServer plain = TestServer.withoutModule()) {
      run(
          with(Lettuce.class).withPropertyValues("test.port=" + plain.port()),
          context -> {
            String health = health(context).toString();
            assertTrue(health.contains("this server has no redis-lock module"), health);
          });
    }
    run(
        with(Lettuce.class).withPropertyValues("management.health.redislock.enabled=false"),
        context -> assertFalse(context.containsBean("redislockHealthIndicator")));
  }
}
