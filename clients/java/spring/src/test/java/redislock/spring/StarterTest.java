package redislock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.micrometer.observation.Observation;
import io.micrometer.observation.ObservationHandler;
import io.micrometer.observation.ObservationRegistry;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import java.util.stream.Collectors;
import net.javacrumbs.shedlock.core.LockProvider;
import org.junit.jupiter.api.Test;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.embedded.EmbeddedDatabaseBuilder;
import org.springframework.jdbc.datasource.embedded.EmbeddedDatabaseType;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.TransactionSynchronizationManager;
import redislock.LockLostException;
import redislock.NotAcquiredException;
import redislock.RedisLocks;
import redislock.TestServer;

final class StarterTest extends Starter {
  @Test
  void theBeansExistForEachClient() {
    for (Class<?> each : List.of(Lettuce.class, Jedis.class, SpringData.class)) {
      with(each)
          .run(
              context -> {
                context.getBean(RedisLocks.class).mutex("k").acquire().release();
                assertTrue(context.getBean(LockRegistry.class) instanceof RedisLockRegistry);
                assertTrue(
                    context.getBean(LockProvider.class)
                        instanceof redislock.shedlock.RedisLockProvider);
              });
    }
    with().run(context -> assertTrue(context.getBeansOfType(RedisLocks.class).isEmpty()));
  }

  @Test
  void aBeanOfTheApplicationComesFirst() {
    RedisClient client = RedisClient.create("redis://127.0.0.1:" + server.port());
    try (RedisLocks mine = RedisLocks.over(client)) {
      with(Lettuce.class)
          .withBean("mine", RedisLocks.class, () -> mine)
          .run(context -> assertSame(mine, context.getBean(RedisLocks.class)));
    } finally {
      client.shutdown();
    }
  }

  @Test
  void theStarterLoadsWithoutTheOptionalLibraries() {
    with(Lettuce.class)
        .withClassLoader(
            new org.springframework.boot.test.context.FilteredClassLoader(
                "redis.clients",
                "net.javacrumbs",
                "org.springframework.integration",
                "org.springframework.data",
                "io.micrometer"))
        .run(
            context -> {
              assertNull(context.getStartupFailure());
              context.getBean(RedisLocks.class).mutex("k").acquire().release();
            });
  }

  /** In a process whose class path has nothing else: a missing class fails at link time. */
  @Test
  void anApplicationWithJedisAloneRuns() throws Exception {
    String path =
        Arrays.stream(System.getProperty("java.class.path").split(File.pathSeparator))
            .filter(
                each ->
                    !each.matches(
                        ".*/(lettuce|netty|reactor|reactive|rxjava|micrometer|shedlock|kotlin"
                            + "|redis-lock-shedlock|spring-(data|integration|tx|jdbc|web|messaging)"
                            + "|spring-boot-(actuator|health)|HikariCP|h2)[^/]*"))
            .filter(each -> !each.endsWith("shedlock/target/classes"))
            .collect(Collectors.joining(File.pathSeparator));
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    Process process =
        new ProcessBuilder(java, "-cp", path, JedisAlone.class.getName(), "" + server.port())
            .redirectErrorStream(true)
            .start();
    String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), printed);
    assertTrue(printed.endsWith("worked\n"), printed);
    assertFalse(server.exists("k"));
  }

  /** A table whose rows count the updates committed before the lock was acquired. */
  @Configuration(proxyBeanMethods = false)
  @EnableTransactionManagement
  static class Orders {
    @Bean(destroyMethod = "shutdown")
    org.springframework.jdbc.datasource.embedded.EmbeddedDatabase database() {
      return new EmbeddedDatabaseBuilder()
          .generateUniqueName(true)
          .setType(EmbeddedDatabaseType.H2)
          .build();
    }

    @Bean
    JdbcTemplate jdbc(javax.sql.DataSource database) {
      JdbcTemplate jdbc = new JdbcTemplate(database);
      jdbc.execute("create table orders (id int, quantity int)");
      jdbc.update("insert into orders values (7, 0)");
      return jdbc;
    }

    @Bean
    DataSourceTransactionManager transactions(javax.sql.DataSource database) {
      return new DataSourceTransactionManager(database);
    }

    @Bean
    OrderService service(JdbcTemplate jdbc, Redis redis) {
      return new OrderService(jdbc, redis.server());
    }
  }

  static class OrderService {
    private final JdbcTemplate jdbc;
    private final TestServer server;

    OrderService(JdbcTemplate jdbc, TestServer server) {
      this.jdbc = jdbc;
      this.server = server;
    }

    @Locked(name = "order:#{#id}", waitFor = "10s", lease = "5s")
    @Transactional
    public int add(int id, long ms) throws InterruptedException {
      assertTrue(TransactionSynchronizationManager.isActualTransactionActive());
      assertTrue(server.exists("order:" + id));
      int quantity =
          jdbc.queryForObject("select quantity from orders where id = ?", Integer.class, id);
      Thread.sleep(ms);
      jdbc.update("update orders set quantity = ? where id = ?", quantity + 1, id);
      return quantity + 1;
    }

    @Locked(name = "order:#{#id}", waitFor = "0s")
    public void refuse(int id) {}

    @Locked(name = "order:#{#id}")
    @Transactional
    public void fail(int id) {
      jdbc.update("update orders set quantity = 99 where id = ?", id);
      throw new IllegalStateException("mine");
    }

    @Locked(name = "order:#{#id}")
    public void lose(int id) {
      server.ask("LOCK.BREAK", "order:" + id);
    }
  }

  @Test
  void theCommitComesBeforeTheRelease() {
    with(Lettuce.class, Orders.class)
        .run(
            context -> {
              OrderService service = context.getBean(OrderService.class);
              ExecutorService threads = Executors.newFixedThreadPool(8);
              List<Future<Integer>> all = new ArrayList<>();
              for (int each = 0; each < 40; each++) {
                all.add(threads.submit(() -> service.add(7, 1)));
              }
              for (Future<Integer> each : all) {
                each.get(30, TimeUnit.SECONDS);
              }
              // Released before the commit, the next holder would have read a quantity of before
              // it.
              JdbcTemplate jdbc = context.getBean(JdbcTemplate.class);
              assertEquals(40, jdbc.queryForObject("select quantity from orders", Integer.class));
              // Longer than its lease.
              assertEquals(41, service.add(7, 7000));
              threads.shutdown();
            });
  }

  @Test
  void whatALockedMethodThrows() {
    with(Lettuce.class, Orders.class)
        .run(
            context -> {
              OrderService service = context.getBean(OrderService.class);
              try (var hold = context.getBean(RedisLocks.class).mutex("order:7").acquire()) {
                assertThrows(NotAcquiredException.class, () -> service.refuse(7));
                hold.extend();
              }
              service.refuse(7);
              assertEquals(
                  "mine",
                  assertThrows(IllegalStateException.class, () -> service.fail(7)).getMessage());
              assertFalse(server.exists("order:7"));
              assertEquals(
                  0,
                  context
                      .getBean(JdbcTemplate.class)
                      .queryForObject("select quantity from orders", Integer.class));
              assertLost(
                  () -> {
                    service.lose(7);
                    return null;
                  });
            });
  }

  @Test
  void observationsAndMeters() {
    List<String> observed = new CopyOnWriteArrayList<>();
    ObservationRegistry observations = ObservationRegistry.create();
    observations
        .observationConfig()
        .observationHandler(
            new ObservationHandler<Observation.Context>() {
              @Override
              public void onStop(Observation.Context context) {
                observed.add(
                    context.getName()
                        + " "
                        + context.getHighCardinalityKeyValue("redislock.key").getValue());
              }

              @Override
              public boolean supportsContext(Observation.Context context) {
                return true;
              }
            });
    with(Lettuce.class, Orders.class)
        .withBean(ObservationRegistry.class, () -> observations)
        .withBean(MeterRegistry.class, SimpleMeterRegistry::new)
        .run(
            context -> {
              context.getBean(OrderService.class).add(7, 0);
              assertEquals(
                  List.of("redislock.acquire order:7", "redislock.hold order:7"), observed);
              MeterRegistry meters = context.getBean(MeterRegistry.class);
              assertEquals(
                  1, meters.get("redislock.wait.duration").tag("granted", "true").timer().count());
              assertEquals(
                  1, meters.get("redislock.hold.duration").tag("lost", "false").timer().count());
            });
  }

  @Test
  void aLockOfTheRegistryIsOwnedByItsThread() {
    with(Lettuce.class)
        .run(
            context -> {
              RedisLockRegistry registry = context.getBean(RedisLockRegistry.class);
              Lock lock = registry.obtain("k");
              lock.lock();
              assertTrue(server.exists("registry:k"));
              assertTrue(registry.obtain("k").tryLock());
              registry.obtain("k").unlock();
              registry.renewLock("k");
              ExecutorService threads = Executors.newCachedThreadPool();
              assertFalse(threads.submit(() -> registry.obtain("k").tryLock()).get());
              threads
                  .submit(
                      () ->
                          assertThrows(
                              IllegalMonitorStateException.class, () -> registry.renewLock("k")))
                  .get();
              Future<Boolean> waiting =
                  threads.submit(
                      () -> {
                        boolean locked = registry.obtain("k").tryLock(10, TimeUnit.SECONDS);
                        registry.obtain("k").unlock();
                        return locked;
                      });
              server.untilWaiting("registry:k", 1);
              registry.obtain("k").unlock();
              assertTrue(waiting.get());
              threads.shutdown();
              int[] ran = new int[1];
              registry.executeLocked("k", () -> ran[0]++);
              assertEquals(1, ran[0]);
              lock.lock();
              server.ask("LOCK.BREAK", "registry:k");
              assertThrows(LockLostException.class, lock::unlock);
            });
  }

  /** The README's application, twice: one instance is killed while it holds the lock. */
  @Test
  void theApplicationOfTheReadme(@org.junit.jupiter.api.io.TempDir Path folder) throws Exception {
    redislock.Readme.compile("ReportApplication", folder, server.port());
    Process first = application(folder, 300);
    try {
      server.until(() -> server.exists("report:2026"));
      String owner = owner();
      // Longer than its lease.
      Thread.sleep(3000);
      assertEquals(owner, owner());
      Process second = application(folder, 0);
      try {
        server.untilWaiting("report:2026", 1);
        first.destroyForcibly();
        String printed = new String(second.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, second.waitFor(), printed);
        assertTrue(printed.contains("written 2026"), printed);
        assertFalse(server.exists("report:2026"));
      } finally {
        second.destroyForcibly();
      }
    } finally {
      first.destroyForcibly();
    }
  }

  /** The README's application with ShedLock, in two instances. */
  @Test
  void theShedLockOfTheReadme(@org.junit.jupiter.api.io.TempDir Path folder) throws Exception {
    redislock.Readme.compile("CleanupApplication", folder, server.port());
    String[] command = {"-Dspring.data.redis.port=" + server.port(), "cleanup.CleanupApplication"};
    List<Long> runs = new CopyOnWriteArrayList<>();
    List<Process> instances = new ArrayList<>();
    try {
      for (int each = 0; each < 2; each++) {
        Process instance = redislock.Readme.start(folder, command);
        instances.add(instance);
        Thread reader =
            new Thread(
                () ->
                    instance
                        .inputReader()
                        .lines()
                        .filter(line -> line.startsWith("cleaned up at "))
                        .forEach(line -> runs.add(Long.parseLong(line.split(" ")[3]))));
        reader.setDaemon(true);
        reader.start();
      }
      server.until(() -> runs.size() >= 3);
      assertTrue(server.exists("job-lock:default:cleanup"));
    } finally {
      instances.forEach(Process::destroyForcibly);
    }
    List<Long> inOrder = runs.stream().sorted().toList();
    for (int each = 1; each < inOrder.size(); each++) {
      long apart = inOrder.get(each) - inOrder.get(each - 1);
      // The job prints a moment after its grant, from which the four seconds count.
      assertTrue(apart > 3500, apart + " ms");
    }
  }

  private Process application(Path folder, int seconds) {
    return redislock.Readme.start(
        folder,
        "-Dspring.data.redis.port=" + server.port(),
        "reports.ReportApplication",
        "" + seconds);
  }

  private String owner() {
    List<?> info = (List<?>) server.ask("LOCK.INFO", "report:2026");
    return ((List<?>) ((List<?>) info.get(9)).get(0)).get(1).toString();
  }
}
