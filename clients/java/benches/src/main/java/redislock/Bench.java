package redislock;

import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.commands.ProtocolCommand;

/**
 * Prints the section of results/benchmarks-clients.md about Java. Its introduction (clients/bench)
 * has the terms.
 */
public final class Bench {
  private static final String KEY = "lock";
  private static final String TOKEN = "bench:1:0123456789abcdef";
  private static final Duration LEASE = Duration.ofSeconds(30);
  private static final String RELEASE =
      "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"
          + " return 0";
  private static final String SCRIPT =
      "if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000) then return nil end"
          + " local n = redis.call('INCR', KEYS[2]) redis.call('DEL', KEYS[1]) return n";
  private static final String INCREMENT = "INCR under the lock";
  private static final long COMPUTE_MS = 100;
  private static final long TIMEOUT_MS = 20_000;

  private final Server server = new Server();
  private final int warmUp;
  private final int rounds;
  private final int pairMs;
  private final int handOffMs;
  private final int callers;

  private Bench(boolean quick) {
    warmUp = quick ? 1 : 30;
    rounds = quick ? 3 : 9;
    pairMs = quick ? 50 : 100;
    handOffMs = quick ? 100 : 200;
    callers = quick ? 100 : 1000;
  }

  private interface Work {
    void run() throws Exception;
  }

  /** Acquires a lock and returns its release. */
  private interface Take {
    Work take() throws Exception;
  }

  /** Sends a command through the library with nothing around it. */
  private interface Call {
    Object call(String command, String... words);
  }

  private interface Once {
    String get(AtomicReference<String> entry, Compute compute) throws Exception;
  }

  private interface Compute {
    String get() throws InterruptedException;
  }

  /** One connection or pool of a library; {@code connect}: another connection. */
  private interface Library {
    Call connect();

    RedisLocks locks();
  }

  /**
   * A lock that is open.
   *
   * @param lock what a caller of a pair does; true: the lock may be held
   * @param increment an INCR without the lock
   * @param run an INCR under the lock, if not with the other two
   */
  private record Opened(Function<Boolean, Take> lock, Work increment, Work run, Once once) {}

  private interface Opening {
    /** {@code ends} receives what is to be closed. */
    Opened open(Deque<Work> ends);
  }

  /** The lock of a row. {@code base}: the rows with the same library are compared with this one. */
  private record Contender(String name, String library, boolean base, Opening opening) {}

  /** CPU microseconds of client and server, requests and bytes. */
  private record Cost(double client, double server, double requests, double bytes) {
    Cost each(double work) {
      return new Cost(client / work, server / work, requests / work, bytes / work);
    }
  }

  private record Row(
      Contender contender, List<Take> takes, double connections, List<Cost> rounds) {}

  public static void main(String[] arguments) {
    int status = 0;
    Bench bench = new Bench(Arrays.asList(arguments).contains("--quick"));
    try (bench.server) {
      bench.run();
    } catch (Exception e) {
      e.printStackTrace();
      status = 1;
    }
    // Threads that still wait for a lock would keep the process alive.
    System.exit(status);
  }

  private void run() throws Exception {
    List<Contender> sets = List.of(rawSet("Lettuce"), rawSet("Jedis"));
    List<Contender> raw = List.of(rawLock("Lettuce"), rawLock("Jedis"));
    List<Contender> ours = List.of(ours("Lettuce"), ours("Jedis"));
    List<Contender> redisson =
        List.of(
            redisson("Redisson RLock", client -> client.getLock(KEY)),
            redisson("Redisson fair lock", client -> client.getFairLock(KEY)));
    List<Contender> scripts = List.of(script("Lettuce"), script("Jedis"));
    List<Contender> shedLock = List.of(shedLockOurs(), shedLock());
    System.out.printf(
        "## Java%n%nRedis %s, Java %s, Lettuce %s, Jedis %s, Redisson %s and ShedLock %s;%n%d"
            + " rounds of %d ms, of %d ms for a hand-off. Redisson and ShedLock are compared with"
            + " raw commands%nthrough Lettuce. Client CPU is that of Java threads, without compiler"
            + " and garbage collector.%nJedis opens connections when it needs them; with raw"
            + " commands each caller of a hand-off has one.%n%n| workload | lock | client CPU, µs |"
            + " to raw commands | server CPU, µs | requests | bytes | connections | allocations"
            + " |%n| --- | --- | --: | --: | --: | --: | --: | --: | --: |%n",
        info().get("redis_version"),
        System.getProperty("java.version"),
        version("lettuce-core"),
        version("jedis"),
        version("redisson"),
        version("shedlock-provider-redis-spring"),
        rounds,
        pairMs,
        handOffMs);
    print("pair", 1, List.of(sets, raw, ours, redisson, shedLock));
    print("hand-off, 2", 2, List.of(raw, ours, redisson));
    print("hand-off, 48", 48, List.of(raw, ours, redisson));
    print(INCREMENT, 1, List.of(scripts, ours, redisson, shedLock));
    System.out.printf(
        "%n%,d threads miss one cache entry, which takes %d ms to compute and is stored in the"
            + " process.%nWith this client they call `once`, with the other locks they read the"
            + " entry before the lock and under it,%nfor at most %d s.%n%n"
            + "| lock | computed | have it | after, s | client CPU, ms | server CPU, ms | requests"
            + " |%n| --- | --: | --: | --: | --: | --: | --: |%n",
        callers, COMPUTE_MS, TIMEOUT_MS / 1000);
    for (Contender each : List.of(ours.get(0), ours.get(1), redisson.get(0), redisson.get(1))) {
      once(each);
    }
  }

  /** Measures the rows of one work in turns, and prints them. */
  private void print(String work, int callers, List<List<Contender>> contenders) throws Exception {
    Deque<Work> ends = new ArrayDeque<>();
    List<Row> rows = new ArrayList<>();
    for (Contender each : contenders.stream().flatMap(List::stream).toList()) {
      double before = number(info(), "total_connections_received");
      Opened opened = each.opening.open(ends);
      List<Take> takes = new ArrayList<>();
      while (takes.size() < callers) {
        takes.add(taking(opened, work, callers));
      }
      round(takes);
      double connections = number(info(), "total_connections_received") - before;
      rows.add(new Row(each, takes, connections, new ArrayList<>()));
    }
    for (int round = 1; round < warmUp + rounds; round++) {
      for (Row row : rows) {
        Cost cost = round(row.takes);
        if (round >= warmUp) {
          row.rounds.add(cost);
        }
      }
    }
    close(ends);
    for (Row row : rows) {
      print(work, row, base(row.contender, rows));
    }
  }

  private static Row base(Contender contender, List<Row> rows) {
    return rows.stream()
        .filter(row -> row.contender.base && row.contender.library.equals(contender.library))
        .findFirst()
        .orElseThrow();
  }

  private void print(String work, Row row, Row base) {
    double[] cpu = sorted(row, Cost::client);
    double[] ratios = new double[rounds];
    for (int round = 0; round < rounds; round++) {
      ratios[round] = row.rounds.get(round).client / base.rounds.get(round).client;
    }
    Arrays.sort(ratios);
    System.out.printf(
        Locale.US,
        "| %s | %s | %,.0f (%,.0f to %,.0f) | %.2f | %,.0f | %,.1f | %,.0f | %,.0f | – |%n",
        work,
        row.contender.name,
        cpu[rounds / 2],
        cpu[0],
        cpu[rounds - 1],
        ratios[rounds / 2],
        sorted(row, Cost::server)[rounds / 2],
        sorted(row, Cost::requests)[rounds / 2],
        sorted(row, Cost::bytes)[rounds / 2],
        row.connections);
  }

  private static double[] sorted(Row row, Function<Cost, Double> figure) {
    return row.rounds.stream().mapToDouble(figure::apply).sorted().toArray();
  }

  /** What a caller of the lock does, except to release it. */
  private static Take taking(Opened opened, String work, int callers) {
    if (work.equals(INCREMENT) && opened.run != null) {
      return () -> {
        opened.run.run();
        return () -> {};
      };
    }
    Take take = opened.lock.apply(callers > 1);
    if (!work.equals(INCREMENT)) {
      return take;
    }
    return () -> {
      Work release = take.take();
      opened.increment.run();
      return release;
    };
  }

  /** The callers, each in its thread, work for a while and until the lock has been handed off. */
  private Cost round(List<Take> takes) throws Exception {
    long until = System.nanoTime() + (takes.size() == 1 ? pairMs : handOffMs) * 1_000_000L;
    AtomicInteger done = new AtomicInteger();
    AtomicReference<Take> last = new AtomicReference<>();
    AtomicInteger holders = new AtomicInteger();
    ExecutorService pool = Executors.newFixedThreadPool(takes.size());
    Cost cost =
        cost(
            () -> {
              List<Future<?>> all = new ArrayList<>();
              for (Take each : takes) {
                all.add(
                    pool.submit(
                        () -> {
                          while (System.nanoTime() < until || done.get() == 0) {
                            Work release = each.take();
                            if (holders.incrementAndGet() > 1) {
                              throw new IllegalStateException("two holders");
                            }
                            Take before = last.getAndSet(each);
                            if (takes.size() == 1 || (before != null && before != each)) {
                              done.incrementAndGet();
                            }
                            holders.decrementAndGet();
                            release.run();
                          }
                          return null;
                        }));
              }
              for (Future<?> each : all) {
                each.get();
              }
            });
    pool.shutdown();
    return cost.each(done.get());
  }

  /** The cost of {@code work}, without that of the queries of the server. */
  private Cost cost(Work work) throws Exception {
    double[] first = counted();
    double[] before = counted();
    Map<Long, Long> cpu = cpu();
    work.run();
    long client = 0;
    for (Map.Entry<Long, Long> each : cpu().entrySet()) {
      client += each.getValue() - cpu.getOrDefault(each.getKey(), 0L);
    }
    double[] all = counted();
    for (int at = 0; at < all.length; at++) {
      all[at] += first[at] - 2 * before[at];
    }
    return new Cost(client / 1e3, all[0], all[1], all[2]);
  }

  private static Map<Long, Long> cpu() {
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    Map<Long, Long> times = new HashMap<>();
    for (long id : threads.getAllThreadIds()) {
      times.put(id, Math.max(0, threads.getThreadCpuTime(id)));
    }
    return times;
  }

  /** The server's CPU time, requests and bytes. */
  private double[] counted() {
    Map<String, String> info = info();
    double cpu = number(info, "used_cpu_user") + number(info, "used_cpu_sys");
    double bytes = number(info, "total_net_input_bytes") + number(info, "total_net_output_bytes");
    return new double[] {cpu * 1e6, number(info, "total_commands_processed"), bytes};
  }

  private static double number(Map<String, String> info, String field) {
    return Double.parseDouble(info.get(field));
  }

  private Map<String, String> info() {
    Map<String, String> fields = new HashMap<>();
    for (String line : server.ask("INFO").toString().split("\r\n")) {
      String[] parts = line.split(":", 2);
      fields.put(parts[0], parts[parts.length - 1]);
    }
    return fields;
  }

  private static String version(String jar) {
    return System.getProperty("java.class.path").replaceAll(".*/" + jar + "-([^/]*)\\.jar.*", "$1");
  }

  private static void close(Deque<Work> ends) throws Exception {
    while (!ends.isEmpty()) {
      ends.pop().run();
    }
  }

  /** Many threads miss one cache entry at the same time. */
  private void once(Contender contender) throws Exception {
    Deque<Work> ends = new ArrayDeque<>();
    Opened opened = contender.opening.open(ends);
    AtomicReference<String> entry = new AtomicReference<>();
    AtomicInteger computed = new AtomicInteger();
    AtomicInteger have = new AtomicInteger();
    Compute compute =
        () -> {
          computed.incrementAndGet();
          Thread.sleep(COMPUTE_MS);
          entry.set("computed");
          return "computed";
        };
    ExecutorService pool = Executors.newFixedThreadPool(callers);
    List<Future<?>> all = new ArrayList<>();
    long began = System.nanoTime();
    Cost cost =
        cost(
            () -> {
              for (int each = 0; each < callers; each++) {
                all.add(pool.submit(() -> opened.once.get(entry, compute)));
              }
              for (Future<?> each : all) {
                long leftNs = TIMEOUT_MS * 1_000_000 - (System.nanoTime() - began);
                try {
                  each.get(Math.max(0, leftNs), TimeUnit.NANOSECONDS);
                  have.incrementAndGet();
                } catch (ExecutionException | TimeoutException e) {
                  each.cancel(true);
                }
              }
            });
    double seconds = (System.nanoTime() - began) / 1e9;
    pool.shutdownNow();
    System.out.printf(
        Locale.US,
        "| %s | %d | %,d | %.2f | %,.0f | %,.0f | %,.0f |%n",
        contender.name,
        computed.get(),
        have.get(),
        seconds,
        cost.client / 1e3,
        cost.server / 1e3,
        cost.requests);
    close(ends);
    pool.awaitTermination(TIMEOUT_MS, TimeUnit.MILLISECONDS);
  }

  private Contender rawSet(String library) {
    return new Contender(
        library + ", raw `SET NX PX` + EVALSHA",
        library,
        false,
        ends -> {
          Call raw = open(library, ends).connect();
          String release = text(raw.call("SCRIPT", "LOAD", RELEASE));
          Take take =
              () -> {
                raw.call("SET", KEY, TOKEN, "NX", "PX", "30000");
                return () -> raw.call("EVALSHA", release, "1", KEY, TOKEN);
              };
          return new Opened(waits -> take, null, null, null);
        });
  }

  private Contender rawLock(String library) {
    return new Contender(
        library + ", raw `LOCK.ACQUIRE` + `LOCK.RELEASE`",
        library,
        true,
        ends -> {
          Library opened = open(library, ends);
          AtomicInteger number = new AtomicInteger();
          return new Opened(
              waits -> {
                Call raw = opened.connect();
                String token = TOKEN + number.incrementAndGet();
                return () -> {
                  if (waits) {
                    raw.call("LOCK.ACQUIRE", KEY, token, "PX", "30000", "BLOCK", "60000");
                  } else {
                    raw.call("LOCK.ACQUIRE", KEY, token, "PX", "30000");
                  }
                  return () -> raw.call("LOCK.RELEASE", KEY, token);
                };
              },
              null,
              null,
              null);
        });
  }

  private Contender script(String library) {
    return new Contender(
        library + ", raw script: SET NX, INCR, DEL",
        library,
        true,
        ends -> {
          Call raw = open(library, ends).connect();
          String script = text(raw.call("SCRIPT", "LOAD", SCRIPT));
          return new Opened(
              null, null, () -> raw.call("EVALSHA", script, "2", KEY, "n", TOKEN), null);
        });
  }

  private Contender ours(String library) {
    return new Contender(
        "**redis-lock-client**, " + library,
        library,
        false,
        ends -> {
          Mutex mutex = open(library, ends).locks().mutex(KEY);
          return new Opened(
              waits -> () -> mutex.acquire()::release,
              null,
              () -> mutex.run("INCR", "n"),
              (entry, compute) ->
                  mutex.once(entry::get, hold -> compute.get(), Duration.ofMinutes(1)));
        });
  }

  private Contender redisson(String name, Function<RedissonClient, RLock> locking) {
    return new Contender(
        name,
        "Lettuce",
        false,
        ends -> {
          Config config = new Config();
          config.useSingleServer().setAddress("redis://127.0.0.1:" + server.port);
          RedissonClient redisson = Redisson.create(config);
          ends.push(redisson::shutdown);
          RLock lock = locking.apply(redisson);
          return new Opened(
              waits ->
                  () -> {
                    lock.lock();
                    return lock::unlock;
                  },
              () -> redisson.getAtomicLong("n").incrementAndGet(),
              null,
              (entry, compute) -> {
                if (entry.get() == null) {
                  lock.lock();
                  try {
                    if (entry.get() == null) {
                      compute.get();
                    }
                  } finally {
                    lock.unlock();
                  }
                }
                return entry.get();
              });
        });
  }

  private Contender shedLockOurs() {
    return new Contender(
        "ShedLock, **provider of redis-lock-client**, Lettuce",
        "Lettuce",
        false,
        ends -> {
          Library lettuce = open("Lettuce", ends);
          Call raw = lettuce.connect();
          return shedLock(
              new redislock.shedlock.RedisLockProvider(lettuce.locks(), "ours"),
              () -> raw.call("INCR", "n"));
        });
  }

  private Contender shedLock() {
    return new Contender(
        "ShedLock, its own RedisLockProvider, Lettuce",
        "Lettuce",
        false,
        ends -> {
          LettuceConnectionFactory factory =
              new LettuceConnectionFactory(
                  new RedisStandaloneConfiguration("127.0.0.1", server.port));
          factory.afterPropertiesSet();
          factory.start();
          ends.push(factory::destroy);
          return shedLock(
              new net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider(factory, "own"),
              () -> {
                try (var connection = factory.getConnection()) {
                  connection.stringCommands().incr("n".getBytes(StandardCharsets.UTF_8));
                }
              });
        });
  }

  private static Opened shedLock(LockProvider provider, Work increment) {
    return new Opened(
        waits ->
            () -> {
              SimpleLock lock =
                  provider
                      .lock(new LockConfiguration(Instant.now(), KEY, LEASE, Duration.ZERO))
                      .orElseThrow();
              return lock::unlock;
            },
        increment,
        null,
        null);
  }

  private Library open(String library, Deque<Work> ends) {
    return library.equals("Lettuce") ? lettuce(ends) : jedis(ends);
  }

  private Library lettuce(Deque<Work> ends) {
    var client = io.lettuce.core.RedisClient.create("redis://127.0.0.1:" + server.port);
    ends.push(client::shutdown);
    return new Library() {
      @Override
      public Call connect() {
        var commands = client.connect().sync();
        return (command, words) ->
            commands.dispatch(
                new Keyword(command),
                new Last(),
                new CommandArgs<>(StringCodec.UTF8).addValues(words));
      }

      @Override
      public RedisLocks locks() {
        return opened(RedisLocks.over(client), ends);
      }
    };
  }

  private Library jedis(Deque<Work> ends) {
    return new Library() {
      private redis.clients.jedis.RedisClient create() {
        var client = redis.clients.jedis.RedisClient.create("127.0.0.1", server.port);
        ends.push(client::close);
        return client;
      }

      @Override
      public Call connect() {
        var client = create();
        return (command, words) ->
            client.executeCommand(
                new CommandArguments(new Keyword(command)).addObjects((Object[]) words));
      }

      @Override
      public RedisLocks locks() {
        return opened(RedisLocks.over(create()), ends);
      }
    };
  }

  private static RedisLocks opened(RedisLocks locks, Deque<Work> ends) {
    ends.push(locks::close);
    return locks;
  }

  private static String text(Object reply) {
    return reply instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : "" + reply;
  }

  /** The reply, or the last element of an array. */
  private static final class Last extends CommandOutput<String, String, Object> {
    Last() {
      super(StringCodec.UTF8, null);
    }

    @Override
    public void set(ByteBuffer bytes) {
      output = bytes == null ? null : codec.decodeValue(bytes);
    }

    @Override
    public void set(long integer) {
      output = integer;
    }
  }

  /** The name of a command. */
  private record Keyword(String word) implements ProtocolKeyword, ProtocolCommand {
    @Override
    public byte[] getBytes() {
      return word.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public byte[] getRaw() {
      return getBytes();
    }

    @Override
    public String toString() {
      return word;
    }
  }
}
