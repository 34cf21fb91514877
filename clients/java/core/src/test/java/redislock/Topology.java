package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The cases of clients/conformance.md that need several servers: Sentinel, and a cluster. */
@Timeout(120)
abstract class Topology {
  final Driven driven;
  Driven.Made made;
  ExecutorService threads;

  Topology(Driven driven) {
    this.driven = driven;
  }

  static final class OverLettuceTest extends Topology {
    OverLettuceTest() {
      super(Driven.LETTUCE);
    }
  }

  static final class OverJedisTest extends Topology {
    OverJedisTest() {
      super(Driven.JEDIS);
    }
  }

  @BeforeEach
  void begin() {
    made = new Driven.Made();
    threads = Executors.newCachedThreadPool();
  }

  @AfterEach
  void end() throws Exception {
    threads.shutdownNow();
    assertTrue(threads.awaitTermination(10, TimeUnit.SECONDS));
    made.close();
  }

  /** A Sentinel, which rewrites its configuration file itself. */
  static final class Sentinel implements AutoCloseable {
    final int port = Server.freePort();
    private final Path folder;
    private final Process process;

    Sentinel(int primary, String... settings) throws IOException {
      folder = Files.createTempDirectory("redis-lock-sentinel");
      Path file = folder.resolve("sentinel.conf");
      Files.writeString(
          file,
          "port "
              + port
              + "\nbind 127.0.0.1\ndir "
              + folder
              + "\nsentinel monitor main 127.0.0.1 "
              + primary
              + " 1\n"
              + "sentinel down-after-milliseconds main 1000\n"
              + "sentinel failover-timeout main 5000\n"
              + String.join("\n", settings)
              + "\n");
      process =
          new ProcessBuilder(Server.PROGRAM, file.toString(), "--sentinel")
              .redirectErrorStream(true)
              .redirectOutput(folder.resolve("log").toFile())
              .start();
    }

    @Override
    public void close() throws IOException {
      process.destroyForcibly();
      process.onExit().join();
      try (var files = Files.walk(folder)) {
        files.sorted(java.util.Comparator.reverseOrder()).forEach(each -> each.toFile().delete());
      }
    }
  }

  @Test
  void failoverWhileWaiting() throws Exception {
    try (Server primary = new Server();
        Server replica = new Server("replicaof 127.0.0.1 " + primary.port);
        Sentinel sentinel = new Sentinel(primary.port)) {
      Server.until(
          () -> {
            try (Server.Plain plain = new Server.Plain(sentinel.port)) {
              return ((List<?>) plain.ask("SENTINEL", "REPLICAS", "main")).size() == 1
                  && plain
                      .ask("SENTINEL", "REPLICAS", "main")
                      .toString()
                      .contains("master-link-status, ok");
            } catch (RuntimeException e) {
              return false;
            }
          });
      RedisLocks locks = driven.sentinel(made, sentinel.port, "main");
      Hold holder = locks.mutex("k").lease(Duration.ofMinutes(2)).acquire();
      Future<Hold> waiting =
          threads.submit(
              () -> locks.mutex("k").lease(Duration.ofMinutes(2)).acquire(Duration.ofSeconds(60)));
      primary.untilWaiting("k", 1);
      Server.until(() -> replica.exists("k"));
      try (Server.Plain plain = new Server.Plain(sentinel.port)) {
        plain.ask("SENTINEL", "FAILOVER", "main");
      }
      Server.until(() -> replica.ask("ROLE").toString().contains("master"));
      replica.untilWaiting("k", 1);
      holder.release();
      Hold second = waiting.get(30, TimeUnit.SECONDS);
      assertTrue(second.fence() > holder.fence());
      second.release();
      assertFalse(replica.exists("k"));
    }
  }

  /** Two nodes; the first has all slots. */
  private final class Cluster implements AutoCloseable {
    private final Driven.Made servers = new Driven.Made();
    final Server one;
    final Server two;

    Cluster() throws Exception {
      try {
        one = servers.add(node());
        two = servers.add(node());
        one.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383);
        one.ask("CLUSTER", "MEET", "127.0.0.1", two.port);
        Server.until(
            () ->
                one.ask("CLUSTER", "INFO").toString().contains("cluster_state:ok")
                    && two.ask("CLUSTER", "INFO").toString().contains("cluster_state:ok")
                    && two.ask("CLUSTER", "INFO").toString().contains("cluster_known_nodes:2"));
      } catch (Throwable e) {
        servers.close();
        throw e;
      }
    }

    private static Server node() {
      return new Server("cluster-enabled yes", "cluster-node-timeout 5000");
    }

    void begin(int slot) {
      mark(slot);
      for (Object key : one.list("CLUSTER", "GETKEYSINSLOT", slot, 100)) {
        one.ask("MIGRATE", "127.0.0.1", two.port, key, 0, 5000);
      }
    }

    /** Starts to move the slot; its keys stay where they were. */
    void mark(int slot) {
      mark(one, two, slot);
    }

    static void mark(Server from, Server to, int slot) {
      Server.until(() -> to.ask("CLUSTER", "NODES").toString().contains(id(from)));
      to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", id(from));
      from.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", id(to));
    }

    private static String id(Server node) {
      return node.ask("CLUSTER", "MYID").toString();
    }

    /** Waits until this many requests wait at the new node, while the slot moves. */
    void untilImported(String key, int waiters) {
      untilImported(two, key, waiters);
    }

    static void untilImported(Server node, String key, int waiters) {
      Server.until(
          () -> {
            node.ask("ASKING");
            return node.waiters(key) == waiters;
          });
    }

    void finish(int slot) {
      Object id = two.ask("CLUSTER", "MYID");
      two.ask("CLUSTER", "SETSLOT", slot, "NODE", id);
      one.ask("CLUSTER", "SETSLOT", slot, "NODE", id);
    }

    @Override
    public void close() throws Exception {
      servers.close();
    }
  }

  @Test
  void clusterRedirectWhileWaiting() throws Exception {
    try (Cluster cluster = new Cluster()) {
      RedisLocks locks = driven.cluster(made, cluster.one.port);
      int slot = io.lettuce.core.cluster.SlotHash.getSlot("k");
      assertEquals(7629, slot);
      Mutex mutex = locks.mutex("k").lease(Duration.ofMinutes(2));
      Hold holder = mutex.acquire();
      Future<Hold> waiting = threads.submit(() -> mutex.acquire(Duration.ofSeconds(60)));
      cluster.one.untilWaiting("k", 1);
      cluster.begin(slot);
      cluster.untilImported("k", 1);
      // A session is checked at the new node too.
      Future<Hold> session = threads.submit(() -> mutex.session().acquire(Duration.ofSeconds(60)));
      cluster.untilImported("k", 2);
      cluster.finish(slot);
      holder.release();
      Hold second = waiting.get(30, TimeUnit.SECONDS);
      assertTrue(second.fence() > holder.fence());
      second.release();
      session.get(30, TimeUnit.SECONDS).release();
      Hold several = locks.all("{k}1", "{k}2").acquire();
      assertEquals("OK", several.exec("SET", "{k}3", "v"));
      several.release();
      RuntimeException error =
          assertThrows(RuntimeException.class, () -> locks.all("k", "x").acquire());
      assertTrue(error.getMessage().startsWith("CROSSSLOT"), error.getMessage());
    }
  }

  @Test
  void runFollowsASlotThatMoves() throws Exception {
    try (Cluster cluster = new Cluster()) {
      RedisLocks locks = driven.cluster(made, cluster.one.port);
      Mutex mutex = locks.mutex("k").lease(Duration.ofMinutes(2));
      assertEquals(1L, mutex.run("INCR", "{k}n"));
      Hold holder = mutex.acquire();
      Future<Object> waiting = threads.submit(() -> mutex.run("INCR", "{k}n"));
      cluster.one.untilWaiting("k", 1);
      int slot = io.lettuce.core.cluster.SlotHash.getSlot("k");
      cluster.begin(slot);
      // ASKING before each command of the packet.
      assertEquals(2L, locks.mutex("{k}other").run("INCR", "{k}n"));
      cluster.untilImported("k", 1);
      cluster.finish(slot);
      holder.release();
      assertEquals(3L, waiting.get(30, TimeUnit.SECONDS));
      assertEquals(4L, mutex.run("INCR", "{k}n"));
      assertEquals(1, cluster.one.calls("incr"));
      assertEquals(3, cluster.two.calls("incr"));
    }
  }

  @Test
  void runThatHasWaitedExecutesWhereItWasGranted() throws Exception {
    try (Cluster cluster = new Cluster()) {
      RedisLocks locks = driven.cluster(made, cluster.one.port);
      cluster.one.ask("SET", "{k}n", 0);
      cluster.begin(io.lettuce.core.cluster.SlotHash.getSlot("k"));
      Hold holder = locks.mutex("k").lease(Duration.ofMinutes(2)).acquire();
      Future<Object> waiting = threads.submit(() -> locks.mutex("k").run("INCR", "{k}n"));
      cluster.untilImported("k", 1);
      holder.release();
      assertEquals(1L, waiting.get(30, TimeUnit.SECONDS));
      assertEquals(0, cluster.one.calls("incr"));
    }
  }

  @Test
  void aMovedKeySaysNothingAboutAnotherKeyOfItsSlot() throws Exception {
    try (Cluster cluster = new Cluster()) {
      RedisLocks locks = driven.cluster(made, cluster.one.port);
      Hold held = locks.mutex("k").lease(Duration.ofMinutes(2)).acquire();
      cluster.mark(io.lettuce.core.cluster.SlotHash.getSlot("k"));
      AtomicBoolean over = new AtomicBoolean();
      Future<Integer> moved =
          threads.submit(
              () -> {
                int count = 0;
                for (; !over.get(); count++) {
                  locks.mutex("{k}moved").acquire().release();
                }
                return count;
              });
      for (int count = 0; count < 300; count++) {
        assertEquals(Optional.empty(), locks.mutex("k").tryAcquire());
      }
      over.set(true);
      assertTrue(moved.get(30, TimeUnit.SECONDS) > 0);
      cluster.two.ask("ASKING");
      assertEquals(0L, cluster.two.ask("EXISTS", "k"));
      held.release();
    }
  }

  @Test
  void clusterSlotThatMovesWhileNothingIsHeardOfIt() throws Exception {
    try (Cluster cluster = new Cluster()) {
      RedisLocks locks = driven.cluster(made, cluster.one.port);
      Hold other = locks.mutex("{x}").acquire();
      Hold holder = locks.mutex("k").acquire();
      Future<Hold> waiting = threads.submit(() -> locks.mutex("k").acquire(Duration.ofSeconds(60)));
      cluster.one.untilWaiting("k", 1);
      int slot = io.lettuce.core.cluster.SlotHash.getSlot("k");
      cluster.begin(slot);
      cluster.finish(slot);
      cluster.two.untilWaiting("k", 1);
      holder.release();
      waiting.get(30, TimeUnit.SECONDS).release();
      other.release();
      assertFalse(cluster.two.exists("k"));
      try (Hold session = locks.mutex("k").session().acquire()) {
        assertTrue(cluster.two.exists("k"));
        assertFalse(session.isLost());
      }
    }
  }

  private interface Asking {
    Object ask() throws Exception;
  }

  /** How often the nodes have redirected a request. */
  private static long redirections(Cluster cluster) {
    long count = 0;
    for (Server node : List.of(cluster.one, cluster.two)) {
      for (String line : node.ask("INFO", "errorstats").toString().split("\r\n")) {
        if (line.startsWith("errorstat_ASK:") || line.startsWith("errorstat_TRYAGAIN:")) {
          count += Long.parseLong(line.substring(line.indexOf('=') + 1));
        }
      }
    }
    return count;
  }

  /** While a slot moves, neither node runs a command on two keys if one of them is missing. */
  @Test
  void aCommandOnASlotThatMovesHasNotRun() throws Exception {
    try (Cluster cluster = new Cluster()) {
      RedisLocks locks = driven.cluster(made, cluster.one.port);
      Duration brief = Duration.ofMillis(1500);
      // One lock is held at the node that loses the slot, and one is free.
      Hold held = locks.mutex("{k}held").lease(Duration.ofMinutes(2)).acquire();
      int slot = io.lettuce.core.cluster.SlotHash.getSlot("k");
      cluster.mark(slot);
      Map<String, Asking> all =
          Map.of(
              "run", () -> locks.mutex("k").run(brief, "INCR", "{k}n"),
              "run, session", () -> locks.mutex("k").session().run(brief, "INCR", "{k}n"),
              "run, not waiting", () -> locks.mutex("k").run(Duration.ZERO, "INCR", "{k}n"),
              "exec", () -> held.exec("INCR", "{k}n"));
      for (Map.Entry<String, Asking> each : all.entrySet()) {
        long before = redirections(cluster);
        LockException error =
            assertThrows(LockException.class, () -> each.getValue().ask(), each.getKey());
        assertTrue(error.getMessage().contains("slot"), each.getKey() + ": " + error);
        // After pauses that grow to 250 ms, including the cleanup.
        long asked = redirections(cluster) - before;
        assertTrue(asked > 1 && asked < 150, each.getKey() + ": " + asked + " redirections");
      }
      // It runs when the slot has arrived.
      long before = redirections(cluster);
      List<Future<Object>> running =
          List.of(
              threads.submit(() -> locks.mutex("k").run("INCR", "{k}n")),
              threads.submit(() -> held.exec("INCR", "{k}n")));
      Server.until(() -> redirections(cluster) > before + 10);
      for (Object key : cluster.one.list("CLUSTER", "GETKEYSINSLOT", slot, 100)) {
        cluster.one.ask("MIGRATE", "127.0.0.1", cluster.two.port, key, 0, 5000);
      }
      cluster.finish(slot);
      for (Future<Object> each : running) {
        each.get(30, TimeUnit.SECONDS);
      }
      assertEquals("2", cluster.two.ask("GET", "{k}n"));
      held.release();
      Server.until(() -> !cluster.two.exists("k") && !cluster.two.exists("{k}held"));
    }
  }

  /** The other key is redirected, and the lock is where it was. */
  @Test
  void aCommandWhoseKeyHasMovedBeforeTheLockDoesNotLoseIt() throws Exception {
    try (Cluster cluster = new Cluster()) {
      RedisLocks locks = driven.cluster(made, cluster.one.port);
      Hold held = locks.mutex("k").lease(Duration.ofMinutes(2)).acquire();
      cluster.one.ask("SET", "{k}n", 5);
      int slot = io.lettuce.core.cluster.SlotHash.getSlot("k");
      cluster.mark(slot);
      cluster.one.ask("MIGRATE", "127.0.0.1", cluster.two.port, "{k}n", 0, 5000);
      Future<Object> running = threads.submit(() -> held.exec("INCR", "{k}n"));
      long before = redirections(cluster);
      Server.until(() -> running.isDone() || redirections(cluster) > before + 5);
      cluster.one.ask("MIGRATE", "127.0.0.1", cluster.two.port, "k", 0, 5000);
      cluster.finish(slot);
      assertEquals(6L, running.get(30, TimeUnit.SECONDS));
      assertFalse(held.isLost());
      held.release();
    }
  }

  /** A node that joined after the client's last query of the cluster and has no slot yet. */
  @Test
  void aNodeThatTheClientDoesNotKnowGetsRequests() throws Exception {
    try (Cluster cluster = new Cluster();
        Server added = Cluster.node()) {
      RedisLocks locks = driven.cluster(made, cluster.one.port);
      locks.mutex("k").acquire().release();
      added.ask("CLUSTER", "MEET", "127.0.0.1", cluster.one.port);
      Server.until(
          () ->
              cluster.one.ask("CLUSTER", "INFO").toString().contains("cluster_known_nodes:3")
                  && added.ask("CLUSTER", "INFO").toString().contains("cluster_state:ok"));
      Cluster.mark(cluster.one, added, io.lettuce.core.cluster.SlotHash.getSlot("k"));
      // First by a request that does not wait, then by one that waits, and by a session.
      Hold hold = locks.mutex("k").tryAcquire().orElseThrow();
      Future<Hold> waiting = threads.submit(() -> locks.mutex("k").acquire(Duration.ofMinutes(1)));
      Cluster.untilImported(added, "k", 1);
      hold.release();
      waiting.get(10, TimeUnit.SECONDS).release();
      locks.mutex("k").session().tryAcquire().orElseThrow().release();
      assertEquals("PONG", locks.mutex("k").run(Duration.ZERO, "PING"));
    }
  }
}
