package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * What prevents a client from acquiring: a permanent cause ends an acquire, and the others are
 * named.
 */
@Timeout(120)
final class CauseTest {
  private static final Duration BRIEF = Duration.ofMillis(1500);
  // java.util.logging: an unreferenced logger loses its handlers.
  private static final Logger LOGGER = Logger.getLogger("redislock");

  private final List<String> warnings = new CopyOnWriteArrayList<>();
  private final Handler handler =
      new Handler() {
        @Override
        public void publish(LogRecord line) {
          warnings.add(line.getMessage());
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
      };
  private Driven.Made made;
  private ExecutorService threads;

  @BeforeEach
  void begin() {
    made = new Driven.Made();
    threads = Executors.newCachedThreadPool();
    LOGGER.addHandler(handler);
  }

  @AfterEach
  void end() throws Exception {
    LOGGER.removeHandler(handler);
    threads.shutdownNow();
    assertTrue(threads.awaitTermination(30, TimeUnit.SECONDS));
    made.close();
  }

  private interface Ask {
    Object ask(Mutex lock) throws Exception;
  }

  /** All ways to acquire a lock, without a time limit. */
  private static final Map<String, Ask> ASKS =
      Map.of(
          "acquire", Mutex::acquire,
          "acquireAsync", lock -> joined(lock.acquireAsync(RedisLock.FOREVER)),
          "session", lock -> lock.session().acquire(),
          "replicas", lock -> lock.replicas(1, Duration.ofSeconds(1)).acquire(),
          "token", lock -> lock.token("me").acquire(),
          "run", lock -> lock.run("PING"),
          "once", lock -> lock.once(() -> null, hold -> "made", RedisLock.FOREVER),
          "asLock", CauseTest::locked);

  private static Object joined(Future<Hold> asked) throws Exception {
    try {
      return asked.get();
    } catch (ExecutionException e) {
      throw (Exception) e.getCause();
    }
  }

  private static Object locked(Mutex lock) {
    lock.asLock().lock();
    return lock;
  }

  /** Each of them fails immediately. */
  private void refuses(RedisLocks locks, String key, String words) throws Exception {
    for (Map.Entry<String, Ask> each : ASKS.entrySet()) {
      Future<?> asking = threads.submit(() -> each.getValue().ask(locks.mutex(key)));
      Throwable error =
          assertThrows(
                  ExecutionException.class, () -> asking.get(30, TimeUnit.SECONDS), each.getKey())
              .getCause();
      assertTrue(error.getMessage().contains(words), each.getKey() + ": " + error);
    }
  }

  private static Driven.Options user(String name, String password) {
    Driven.Options options = new Driven.Options();
    options.user = name;
    options.password = password;
    return options;
  }

  @ParameterizedTest
  @EnumSource
  void aWrongPasswordEndsAnAcquireImmediately(Driven driven) throws Exception {
    try (Server server = new Server()) {
      server.ask("CONFIG", "SET", "requirepass", "right");
      refuses(driven.locks(made, server.port, user("default", "wrong")), "k", "WRONGPASS");
      refuses(driven.locks(made, server.port), "k", "NOAUTH");
    }
  }

  @ParameterizedTest
  @EnumSource
  void aMissingPermissionEndsAnAcquireImmediately(Driven driven) throws Exception {
    try (Server server = new Server()) {
      server.ask("ACL", "SETUSER", "reader", "on", ">word", "~*", "&*", "+@all", "-lock.acquire");
      refuses(driven.locks(made, server.port, user("reader", "word")), "k", "NOPERM");
      server.ask("ACL", "SETUSER", "other", "on", ">word", "~app:*", "&*", "+@all");
      refuses(driven.locks(made, server.port, user("other", "word")), "k", "NOPERM");
    }
  }

  /** With Lettuce a wait needs the permission to subscribe. */
  @Test
  void aWaitWithoutThePermissionToSubscribeEndsImmediately() throws Exception {
    try (Server server = new Server()) {
      Driven.LETTUCE.locks(made, server.port).mutex("k").acquire();
      for (String[] rights :
          new String[][] {{"&*", "+@all", "-subscribe"}, {"resetchannels", "+@all"}}) {
        server.ask("ACL", "SETUSER", "deaf", "reset", "on", ">word", "~*");
        for (String right : rights) {
          server.ask("ACL", "SETUSER", "deaf", right);
        }
        RedisLocks locks = Driven.LETTUCE.locks(made, server.port, user("deaf", "word"));
        Future<?> asking = threads.submit(() -> locks.mutex("k").acquire());
        Throwable error =
            assertThrows(ExecutionException.class, () -> asking.get(30, TimeUnit.SECONDS))
                .getCause();
        assertTrue(error.getMessage().contains("NOPERM"), error::toString);
      }
    }
  }

  @Test
  void aClusterThatRefusesToListItsNodesEndsAnAcquireImmediately() throws Exception {
    try (Server node = new Server("cluster-enabled yes")) {
      node.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383);
      Server.until(() -> node.ask("CLUSTER", "INFO").toString().contains("cluster_state:ok"));
      node.ask("ACL", "SETUSER", "worker", "on", ">word", "~*", "&*", "+@all", "-cluster|nodes");
      for (String password : List.of("word", "wrong")) {
        RedisURI uri =
            RedisURI.builder()
                .withHost("127.0.0.1")
                .withPort(node.port)
                .withAuthentication("worker", password.toCharArray())
                .build();
        RedisClusterClient client =
            made.add(RedisClusterClient.create(Driven.Resources.SHARED, uri));
        RedisLocks locks = made.add(RedisLocks.over(client));
        refuses(locks, "k", password.equals("word") ? "NOPERM" : "WRONGPASS");
      }
    }
  }

  @ParameterizedTest
  @EnumSource
  void aSingleServerClientOnANodeOfAClusterIsRefusedImmediately(Driven driven) throws Exception {
    try (Server node = new Server("cluster-enabled yes");
        Server other = new Server("cluster-enabled yes")) {
      node.ask("CLUSTER", "MEET", "127.0.0.1", other.port);
      other.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383);
      Server.until(() -> node.ask("CLUSTER", "INFO").toString().contains("cluster_state:ok"));
      refuses(driven.locks(made, node.port), "k", "RedisClusterClient");
    }
  }

  /** Jedis queries the Sentinels when its client is created, which then fails. */
  @Test
  void aSentinelThatRefusesThePasswordEndsAnAcquireImmediately() throws Exception {
    try (Server primary = new Server();
        Topology.Sentinel sentinel = new Topology.Sentinel(primary.port, "requirepass right")) {
      Server.until(
          () -> {
            try (Server.Plain plain = new Server.Plain(sentinel.port)) {
              return "OK".equals(plain.ask("AUTH", "right"));
            } catch (RuntimeException e) {
              return false;
            }
          });
      refuses(Driven.LETTUCE.sentinel(made, sentinel.port, "main"), "k", "NOAUTH");
    }
  }

  /** All causes of an error, and their suppressed exceptions. */
  private static String chain(Throwable error) {
    StringBuilder chain = new StringBuilder();
    for (Throwable each = error; each != null; each = each.getCause()) {
      chain.append(each).append('\n');
      for (Throwable suppressed : each.getSuppressed()) {
        chain.append(chain(suppressed));
      }
    }
    return chain.toString();
  }

  @ParameterizedTest
  @EnumSource
  void theEndOfAWaitNamesItsCause(Driven driven, @TempDir Path folder) throws Exception {
    Path key = folder.resolve("key.pem");
    Path certificate = folder.resolve("certificate.pem");
    List<String> words = new ArrayList<>(List.of("openssl req -x509 -newkey ec".split(" ")));
    words.addAll(List.of("-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"));
    words.addAll(List.of("-days", "2", "-subj", "/CN=localhost"));
    words.addAll(List.of("-keyout", key.toString(), "-out", certificate.toString()));
    Process made = new ProcessBuilder(words).redirectErrorStream(true).start();
    made.getInputStream().readAllBytes();
    assertEquals(0, made.waitFor());
    assertTrue(Files.exists(key));
    int securePort = Server.freePort();
    try (Server primary =
            new Server(
                "tls-port " + securePort,
                "tls-cert-file " + certificate,
                "tls-key-file " + key,
                "tls-ca-cert-file " + certificate,
                "tls-auth-clients no");
        Server replica = new Server("replicaof 127.0.0.1 " + primary.port)) {
      Server.until(() -> replica.ask("ROLE").toString().contains("connected"));
      Map<String, Integer> ports = new LinkedHashMap<>();
      ports.put("closed", Server.freePort());
      ports.put("secure", securePort);
      ports.put("replica", replica.port);
      ports.put("unknown", primary.port);
      Map<String, String> causes =
          Map.of(
              "closed", "Connection refused",
              "secure", "reset|closed|prematurely|Unknown reply",
              "replica", "READONLY",
              "unknown", "no\\.\\.such\\.host");
      for (String where : ports.keySet()) {
        Driven.Options options = new Driven.Options();
        // A name with an empty label is refused without asking a name server, which might not
        // answer.
        options.host = where.equals("unknown") ? "no..such.host" : options.host;
        RedisLocks locks = driven.locks(this.made, ports.get(where), options);
        Map<String, Ask> asks =
            Map.of(
                "plain", lock -> lock.acquire(BRIEF),
                "session", lock -> lock.session().acquire(BRIEF),
                "async", lock -> joined(lock.acquireAsync(BRIEF)),
                "run", lock -> lock.run(BRIEF, "PING"));
        Map<String, Future<?>> asking = new LinkedHashMap<>();
        asks.forEach(
            (kind, ask) -> {
              String name = where + "-" + kind + "-" + driven;
              asking.put(name, threads.submit(() -> ask.ask(locks.mutex(name))));
            });
        Pattern cause = Pattern.compile(causes.get(where));
        for (String name : asking.keySet()) {
          Throwable error =
              assertThrows(
                      ExecutionException.class,
                      () -> asking.get(name).get(30, TimeUnit.SECONDS),
                      name)
                  .getCause();
          assertTrue(cause.matcher(chain(error)).find(), () -> name + ": " + chain(error));
          List<String> mine = warnings.stream().filter(each -> each.contains(name)).toList();
          assertEquals(1, mine.size(), mine::toString);
          assertTrue(mine.stream().allMatch(each -> cause.matcher(each).find()), mine::toString);
        }
      }
    }
  }

  /** The first refusal closes the connection that the other requests were sent over too. */
  @ParameterizedTest
  @EnumSource
  void everyRequestToAReplicaNamesTheRefusal(Driven driven) throws Exception {
    try (Server primary = new Server();
        Server replica = new Server("replicaof 127.0.0.1 " + primary.port)) {
      Server.until(() -> replica.ask("ROLE").toString().contains("connected"));
      RedisLocks locks = driven.locks(made, replica.port);
      List<CompletableFuture<?>> asking =
          IntStream.range(0, 300)
              .<CompletableFuture<?>>mapToObj(
                  i -> locks.mutex("refused " + i).acquireAsync(BRIEF).toCompletableFuture())
              .toList();
      for (CompletableFuture<?> each : asking) {
        assertThrows(ExecutionException.class, () -> each.get(30, TimeUnit.SECONDS));
      }
      // Other classes log at the same time.
      List<String> mine = warnings.stream().filter(each -> each.contains("\"refused ")).toList();
      assertTrue(mine.stream().allMatch(each -> each.contains("READONLY")), mine::toString);
    }
  }

  @ParameterizedTest
  @EnumSource
  void theCauseIsKeptWhileNoReplyComes(Driven driven) throws Exception {
    try (Server server = new Server();
        Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      server.ask("CONFIG", "SET", "min-replicas-to-write", 1);
      Future<Hold> asking = threads.submit(() -> locks.mutex("k").acquire(Duration.ofSeconds(7)));
      Server.until(() -> proxy.count("LOCK.ACQUIRE") >= 2);
      // One attempt takes 5 s, and one is cut short.
      proxy.silent(true);
      Throwable error =
          assertThrows(ExecutionException.class, () -> asking.get(30, TimeUnit.SECONDS)).getCause();
      assertTrue(chain(error).contains("NOREPLICAS"), () -> chain(error));
    }
  }

  /** The lock is held, and its messages cannot be received. */
  @Test
  void aWaitThatCannotSubscribeNamesItsCause() throws Exception {
    try (Server server = new Server();
        Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = Driven.LETTUCE.locks(made, proxy.port);
      locks.mutex("k").acquire();
      proxy.cut("SUBSCRIBE", 0);
      Thread cutting =
          new Thread(
              () -> {
                while (!Thread.currentThread().isInterrupted()) {
                  if (proxy.hasCut()) {
                    proxy.cut("SUBSCRIBE", 0);
                  }
                  Thread.onSpinWait();
                }
              });
      cutting.start();
      NotAcquiredException error =
          assertThrows(NotAcquiredException.class, () -> locks.mutex("k").acquire(BRIEF));
      cutting.interrupt();
      cutting.join();
      assertInstanceOf(RuntimeException.class, error.getCause());
      assertTrue(warnings.stream().anyMatch(each -> each.contains("\"k\"")), warnings::toString);
    }
  }
}
