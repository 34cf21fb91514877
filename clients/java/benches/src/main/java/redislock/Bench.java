package redislock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Compares this lock with Redisson's on one server in one run. Prints a section of Markdown.
 * Counted at the server: its CPU time and the commands, including those within scripts.
 */
public final class Bench {
  private static final int THREADS = 48;
  private static final int CALLERS = 1000;
  private static final long MAKING_MS = 100;
  private static final long TIMEOUT_MS = 20_000;

  private Bench() {}

  private interface Take {
    Runnable take() throws InterruptedException;
  }

  private interface Once {
    String get(AtomicReference<String> value, AtomicInteger made) throws InterruptedException;
  }

  private record Contender(String name, Take take, Once once, AutoCloseable end) {}

  private record Row(long count, double seconds, double cpuUs, double commands, int changed) {}

  public static void main(String[] arguments) {
    int status = 0;
    try {
      run(Arrays.asList(arguments).contains("--quick"));
    } catch (Exception e) {
      e.printStackTrace();
      status = 1;
    }
    // Threads that still wait for a lock would keep the process alive.
    System.exit(status);
  }

  private static void run(boolean quick) throws Exception {
    double seconds = quick ? 0.5 : 5;
    try (Server server = new Server()) {
      List<Contender> all = contenders(server.port);
      System.out.printf(
          "## Java: this lock beside Redisson%n%nRedis %s, Java %s, Lettuce, Jedis and Redisson"
              + " %s; %d cores, %s s each, one run.%nCommands include those that scripts"
              + " call.%n",
          version(server),
          System.getProperty("java.version"),
          Redisson.class.getPackage().getImplementationVersion(),
          Runtime.getRuntime().availableProcessors(),
          number(seconds));
      System.out.printf(
          "%nOne thread, a free lock: acquire and release.%n%n| lock | pairs per second | server"
              + " CPU µs | commands |%n| --- | --: | --: | --: |%n");
      for (Contender each : all) {
        pairs(server, each, 1, seconds / 5);
        Row row = pairs(server, each, 1, seconds);
        System.out.printf(
            Locale.US,
            "| %s | %,.0f | %.1f | %.1f |%n",
            each.name,
            row.count / row.seconds,
            row.cpuUs,
            row.commands);
      }
      System.out.printf(
          "%n%d threads want one lock and hold it for no time. Without a queue the thread that"
              + " released it often takes%nit again: changed hands counts the grants to another"
              + " one.%n%n| lock | grants per second | changed hands | server CPU µs | commands"
              + " |%n| --- | --: | --: | --: | --: |%n",
          THREADS);
      for (Contender each : all) {
        Row row = pairs(server, each, THREADS, seconds);
        System.out.printf(
            Locale.US,
            "| %s | %,.0f | %d%% | %.1f | %.1f |%n",
            each.name,
            row.count / row.seconds,
            100L * row.changed / Math.max(1, row.count),
            row.cpuUs,
            row.commands);
      }
      System.out.printf(
          "%n%,d callers want one value that is missing and takes %d ms to make; Redisson's look"
              + " before and under the%nlock.%n%n| single-flight | made | commands | until the last"
              + " has it |%n| --- | --: | --: | --: |%n",
          CALLERS, MAKING_MS);
      for (Contender each : all) {
        once(server, each);
      }
      for (Contender each : all) {
        each.end.close();
      }
    }
  }

  private static List<Contender> contenders(int port) {
    List<Contender> all = new ArrayList<>();
    io.lettuce.core.RedisClient lettuce =
        io.lettuce.core.RedisClient.create("redis://127.0.0.1:" + port);
    redis.clients.jedis.RedisClient jedis =
        redis.clients.jedis.RedisClient.create("127.0.0.1", port);
    RedisLocks overLettuce = RedisLocks.over(lettuce);
    RedisLocks overJedis = RedisLocks.over(jedis);
    all.add(ours("redis-lock-client, Lettuce", overLettuce, lettuce::shutdown));
    all.add(ours("redis-lock-client, Jedis", overJedis, jedis::close));
    Config config = new Config();
    config
        .useSingleServer()
        .setAddress("redis://127.0.0.1:" + port)
        .setSubscriptionConnectionPoolSize(50);
    RedissonClient redisson = Redisson.create(config);
    all.add(redisson("Redisson RLock (pub/sub)", redisson.getLock("lock"), redisson, () -> {}));
    all.add(
        redisson("Redisson fair lock", redisson.getFairLock("fair"), redisson, redisson::shutdown));
    return all;
  }

  private static Contender ours(String name, RedisLocks locks, AutoCloseable end) {
    Mutex mutex = locks.mutex("ours");
    Mutex once = locks.mutex("once");
    return new Contender(
        name,
        () -> mutex.acquire()::release,
        (value, made) -> once.once(value::get, hold -> make(value, made), Duration.ofMinutes(1)),
        () -> {
          locks.close();
          end.close();
        });
  }

  private static Contender redisson(
      String name, RLock lock, RedissonClient redisson, AutoCloseable end) {
    return new Contender(
        name,
        () -> {
          lock.lock();
          return lock::unlock;
        },
        (value, made) -> {
          if (value.get() == null) {
            lock.lock();
            try {
              if (value.get() == null) {
                make(value, made);
              }
            } finally {
              lock.unlock();
            }
          }
          return value.get();
        },
        end);
  }

  private static String make(AtomicReference<String> value, AtomicInteger made) {
    made.incrementAndGet();
    try {
      Thread.sleep(MAKING_MS);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
    value.set("made");
    return "made";
  }

  private static Row pairs(Server server, Contender contender, int threads, double seconds)
      throws Exception {
    AtomicBoolean over = new AtomicBoolean();
    AtomicLong count = new AtomicLong();
    AtomicReference<Thread> last = new AtomicReference<>();
    AtomicInteger changed = new AtomicInteger();
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    List<Future<?>> all = new ArrayList<>();
    double[] before = spent(server);
    long began = System.nanoTime();
    for (int each = 0; each < threads; each++) {
      all.add(
          pool.submit(
              () -> {
                while (!over.get()) {
                  Runnable release = contender.take.take();
                  count.incrementAndGet();
                  if (last.getAndSet(Thread.currentThread()) != Thread.currentThread()) {
                    changed.incrementAndGet();
                  }
                  release.run();
                }
                return null;
              }));
    }
    Thread.sleep((long) (seconds * 1000));
    over.set(true);
    for (Future<?> each : all) {
      each.get();
    }
    double took = (System.nanoTime() - began) / 1e9;
    double[] after = spent(server);
    pool.shutdown();
    long pairs = Math.max(1, count.get());
    return new Row(
        pairs, took, (after[0] - before[0]) / pairs, (after[1] - before[1]) / pairs, changed.get());
  }

  private static void once(Server server, Contender contender) throws Exception {
    AtomicReference<String> value = new AtomicReference<>();
    AtomicInteger made = new AtomicInteger();
    CountDownLatch begin = new CountDownLatch(1);
    ExecutorService pool = Executors.newFixedThreadPool(CALLERS);
    List<Future<String>> all = new ArrayList<>();
    for (int each = 0; each < CALLERS; each++) {
      all.add(
          pool.submit(
              () -> {
                begin.await();
                return contender.once.get(value, made);
              }));
    }
    double[] before = spent(server);
    long began = System.nanoTime();
    begin.countDown();
    int answered = 0;
    int failed = 0;
    String error = "";
    for (Future<String> each : all) {
      long leftMs = TIMEOUT_MS - (System.nanoTime() - began) / 1_000_000;
      try {
        each.get(Math.max(0, leftMs), TimeUnit.MILLISECONDS);
        answered++;
      } catch (ExecutionException e) {
        failed++;
        error = e.getCause().getClass().getSimpleName();
      } catch (TimeoutException e) {
        each.cancel(true);
      }
    }
    double took = (System.nanoTime() - began) / 1e9;
    double[] after = spent(server);
    pool.shutdownNow();
    String until = String.format(Locale.US, "%.2f s", took);
    if (answered < CALLERS) {
      int late = CALLERS - answered - failed;
      until = late + " had none after " + TIMEOUT_MS / 1000 + " s";
      if (failed > 0) {
        until += ", " + failed + " failed: " + error;
      }
    }
    System.out.printf(
        "| %s | %d | %,.0f | %s |%n", contender.name, made.get(), after[1] - before[1], until);
  }

  /** The server's CPU time in microseconds, and its commands. */
  private static double[] spent(Server server) {
    double cpu = 0;
    for (String line : server.ask("INFO", "cpu").toString().split("\r\n")) {
      if (line.matches("used_cpu_(sys|user):.*")) {
        cpu += Double.parseDouble(line.substring(line.indexOf(':') + 1)) * 1e6;
      }
    }
    double commands = 0;
    for (String line : server.ask("INFO", "commandstats").toString().split("\r\n")) {
      if (line.startsWith("cmdstat_") && !line.startsWith("cmdstat_info")) {
        commands += Double.parseDouble(line.replaceAll(".*:calls=(\\d+).*", "$1"));
      }
    }
    return new double[] {cpu, commands};
  }

  private static String version(Server server) {
    return server.ask("INFO", "server").toString().replaceAll("(?s).*redis_version:(\\S+).*", "$1");
  }

  private static String number(double seconds) {
    return seconds == Math.rint(seconds) ? "" + (long) seconds : "" + seconds;
  }
}
