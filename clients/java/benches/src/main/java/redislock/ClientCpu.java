package redislock;

import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import redis.clients.jedis.params.SetParams;

/**
 * The CPU time of the Java threads for an acquire and a release of a free lock, for a command under
 * a lock, and for a hand-off between threads: raw commands, the usual locks, and this client.
 *
 * <p>All rows are measured in turns in one process. The ratios compare a row with the raw commands
 * of the same library in the same round, because times vary on a busy machine.
 */
public final class ClientCpu {
  private static final String RELEASE =
      "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"
          + " return 0";
  private static final String SECTION =
      "if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000) then return nil end"
          + " local n = redis.call('INCR', KEYS[2]) redis.call('DEL', KEYS[1]) return n";
  private static final String TOKEN = "bench:1:0123456789abcdef";
  private static final Duration LEASE = Duration.ofSeconds(30);

  private ClientCpu() {}

  private interface Work {
    void run() throws Exception;
  }

  /**
   * {@code threads}: how many run the work at the same time. {@code base}: what it is compared
   * with.
   */
  private record Row(String name, String base, int threads, Work work, List<double[]> rounds) {
    Row(String name, String base, int threads, Work work) {
      this(name, base, threads, work, new ArrayList<>());
    }
  }

  /**
   * Prints a table.
   *
   * @param arguments {@code --rounds=N --pairs=N --port=N}, and parts of the names of the rows
   */
  public static void main(String[] arguments) {
    int status = 0;
    try {
      run(arguments);
    } catch (Exception e) {
      e.printStackTrace();
      status = 1;
    }
    System.exit(status);
  }

  private static int option(String[] arguments, String name, int otherwise) {
    return Arrays.stream(arguments)
        .filter(each -> each.startsWith("--" + name + "="))
        .mapToInt(each -> Integer.parseInt(each.substring(name.length() + 3)))
        .findFirst()
        .orElse(otherwise);
  }

  private static void run(String[] arguments) throws Exception {
    int rounds = option(arguments, "rounds", 41);
    int pairs = option(arguments, "pairs", 1000);
    int port = option(arguments, "port", 0);
    int handOffs = option(arguments, "hand-offs", 1000);
    try (Server server = port == 0 ? new Server() : null) {
      List<Row> rows = rows(port == 0 ? server.port : port);
      List<String> names = Arrays.stream(arguments).filter(each -> !each.startsWith("--")).toList();
      if (!names.isEmpty()) {
        rows.removeIf(row -> names.stream().noneMatch(row.name::contains));
      }
      int warmUp = Math.max(5, rounds / 3);
      for (int round = -warmUp; round < rounds; round++) {
        for (Row row : rows) {
          double[] figures = measured(row, row.threads == 1 ? pairs : handOffs);
          if (round >= 0) {
            row.rounds.add(figures);
          }
        }
      }
      System.out.printf(
          "| row | client CPU µs | least | most | a second | ratio | to |%n"
              + "| --- | --: | --: | --: | --: | --: | --- |%n");
      for (Row row : rows) {
        Row base = rows.stream().filter(each -> each.name.equals(row.base)).findFirst().orElse(row);
        double[] cpu = sorted(row, 0);
        System.out.printf(
            Locale.US,
            "| %s | %.1f | %.1f | %.1f | %,.0f | %.2f | %s |%n",
            row.name,
            cpu[cpu.length / 2],
            cpu[0],
            cpu[cpu.length - 1],
            sorted(row, 1)[cpu.length / 2],
            ratio(row, base),
            base.name);
      }
    }
  }

  private static double[] sorted(Row row, int figure) {
    return row.rounds.stream().mapToDouble(each -> each[figure]).sorted().toArray();
  }

  private static double ratio(Row row, Row base) {
    double[] ratios = new double[row.rounds.size()];
    for (int round = 0; round < ratios.length; round++) {
      ratios[round] = row.rounds.get(round)[0] / base.rounds.get(round)[0];
    }
    Arrays.sort(ratios);
    return ratios[ratios.length / 2];
  }

  /** CPU microseconds of each, and how many in a second. */
  private static double[] measured(Row row, int count) throws Exception {
    if (row.threads == 1) {
      Map<Long, Long> cpu = cpu();
      long began = System.nanoTime();
      for (int each = 0; each < count; each++) {
        row.work.run();
      }
      long took = System.nanoTime() - began;
      return new double[] {since(cpu) / count, count / (took / 1e9)};
    }
    ExecutorService pool = Executors.newFixedThreadPool(row.threads);
    CountDownLatch begin = new CountDownLatch(1);
    AtomicLong done = new AtomicLong();
    AtomicBoolean over = new AtomicBoolean();
    List<Future<?>> all = new ArrayList<>();
    for (int thread = 0; thread < row.threads; thread++) {
      all.add(
          pool.submit(
              () -> {
                begin.await();
                while (!over.get()) {
                  row.work.run();
                  if (done.incrementAndGet() >= count) {
                    over.set(true);
                  }
                }
                return null;
              }));
    }
    Thread.sleep(5);
    Map<Long, Long> cpu = cpu();
    long began = System.nanoTime();
    begin.countDown();
    for (Future<?> each : all) {
      each.get();
    }
    long took = System.nanoTime() - began;
    double spent = since(cpu) / done.get();
    pool.shutdown();
    return new double[] {spent, done.get() / (took / 1e9)};
  }

  /** The CPU time of each Java thread: not of the compiler's, nor of the garbage collector's. */
  private static Map<Long, Long> cpu() {
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    Map<Long, Long> times = new HashMap<>();
    for (long id : threads.getAllThreadIds()) {
      times.put(id, Math.max(0, threads.getThreadCpuTime(id)));
    }
    return times;
  }

  /** The microseconds since then. */
  private static double since(Map<Long, Long> earlier) {
    long sum = 0;
    for (Map.Entry<Long, Long> each : cpu().entrySet()) {
      sum += each.getValue() - earlier.getOrDefault(each.getKey(), 0L);
    }
    return sum / 1e3;
  }

  private static Work pair(Mutex mutex) {
    return () -> mutex.acquire().release();
  }

  private static Work pair(RLock lock) {
    return () -> {
      lock.lock();
      lock.unlock();
    };
  }

  private static Work pair(LockProvider provider, String name) {
    return () ->
        provider
            .lock(new LockConfiguration(Instant.now(), name, LEASE, Duration.ZERO))
            .orElseThrow()
            .unlock();
  }

  private static List<Row> rows(int port) {
    String uri = "redis://127.0.0.1:" + port;
    io.lettuce.core.RedisClient lettuce = io.lettuce.core.RedisClient.create(uri);
    redis.clients.jedis.RedisClient jedis =
        redis.clients.jedis.RedisClient.create("127.0.0.1", port);
    io.lettuce.core.api.StatefulRedisConnection<String, String> connection = lettuce.connect();
    RedisCommands<String, String> commands = connection.sync();
    RedisLocks overLettuce = RedisLocks.over(lettuce);
    RedisLocks overJedis = RedisLocks.over(jedis);
    Config config = new Config();
    config.useSingleServer().setAddress(uri).setSubscriptionConnectionPoolSize(50);
    RedissonClient redisson = Redisson.create(config);

    LettuceConnectionFactory factory =
        new LettuceConnectionFactory(new RedisStandaloneConfiguration("127.0.0.1", port));
    factory.afterPropertiesSet();
    factory.start();

    String release = commands.scriptLoad(RELEASE);
    String section = commands.scriptLoad(SECTION);
    byte[] key = "jedis-raw".getBytes(StandardCharsets.UTF_8);
    byte[] token = TOKEN.getBytes(StandardCharsets.UTF_8);
    byte[] digest = release.getBytes(StandardCharsets.UTF_8);
    List<byte[]> sectionKeys =
        List.of("jedis-s".getBytes(StandardCharsets.UTF_8), "n".getBytes(StandardCharsets.UTF_8));
    byte[] sectionDigest = section.getBytes(StandardCharsets.UTF_8);
    Mutex overLettuceMutex = overLettuce.mutex("lettuce-lock");
    Mutex overJedisMutex = overJedis.mutex("jedis-lock");
    Mutex runLettuce = overLettuce.mutex("lettuce-run");
    Mutex runJedis = overJedis.mutex("jedis-run");
    Mutex contended = overLettuce.mutex("lettuce-contended");
    Mutex contendedJedis = overJedis.mutex("jedis-contended");

    List<Row> rows = new ArrayList<>();
    String raw = "Lettuce: SET and EVALSHA";
    rows.add(
        new Row(
            raw,
            raw,
            1,
            () -> {
              commands.set("lettuce-raw", TOKEN, SetArgs.Builder.nx().px(30_000));
              commands.evalsha(
                  release, ScriptOutputType.INTEGER, new String[] {"lettuce-raw"}, TOKEN);
            }));
    rows.add(new Row("Lettuce: this client", raw, 1, pair(overLettuceMutex)));
    rows.add(new Row("Redisson: RLock", raw, 1, pair(redisson.getLock("redisson"))));
    rows.add(
        new Row(
            "ShedLock: its RedisLockProvider, Lettuce",
            "ShedLock: its RedisLockProvider, Lettuce",
            1,
            pair(new RedisLockProvider(factory, "own"), "shed")));
    rows.add(
        new Row(
            "ShedLock: this provider, Lettuce",
            "ShedLock: its RedisLockProvider, Lettuce",
            1,
            pair(new redislock.shedlock.RedisLockProvider(overLettuce, "ours"), "shed")));
    String script = "Lettuce: a script for the section";
    rows.add(
        new Row(
            script,
            script,
            1,
            () ->
                commands.evalsha(
                    section, ScriptOutputType.INTEGER, new String[] {"lettuce-s", "n"}, TOKEN)));
    rows.add(new Row("Lettuce: this client's run", script, 1, () -> runLettuce.run("INCR", "n")));
    String rawJedis = "Jedis: SET and EVALSHA";
    rows.add(
        new Row(
            rawJedis,
            rawJedis,
            1,
            () -> {
              jedis.set(key, token, SetParams.setParams().nx().px(30_000));
              jedis.evalsha(digest, List.of(key), List.of(token));
            }));
    rows.add(new Row("Jedis: this client", rawJedis, 1, pair(overJedisMutex)));
    String scriptJedis = "Jedis: a script for the section";
    rows.add(
        new Row(
            scriptJedis,
            scriptJedis,
            1,
            () -> jedis.evalsha(sectionDigest, sectionKeys, List.of(token))));
    rows.add(new Row("Jedis: this client's run", scriptJedis, 1, () -> runJedis.run("INCR", "n")));
    for (int threads : new int[] {2, 48}) {
      String base = "hand-offs, " + threads + " threads, Lettuce";
      rows.add(new Row(base, base, threads, pair(contended)));
      rows.add(
          new Row(
              "hand-offs, " + threads + " threads, Jedis", base, threads, pair(contendedJedis)));
      rows.add(
          new Row(
              "hand-offs, " + threads + " threads, Redisson",
              base,
              threads,
              pair(redisson.getLock("redisson-contended"))));
    }
    return rows;
  }
}
