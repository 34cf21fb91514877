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

  /** A sentinel, whose configuration it rewrites itself. */
  private static final class Sentinel implements AutoCloseable {
    final int port = Server.freePort();
    private final Path folder;
    private final Process process;

    Sentinel(int primary) throws IOException {
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
              + "sentinel failover-timeout main 5000\n");
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
    final Server one = new Server("cluster-enabled yes", "cluster-node-timeout 5000");
    final Server two = new Server("cluster-enabled yes", "cluster-node-timeout 5000");

    Cluster() {
      one.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383);
      one.ask("CLUSTER", "MEET", "127.0.0.1", two.port);
      Server.until(
          () ->
              one.ask("CLUSTER", "INFO").toString().contains("cluster_state:ok")
                  && two.ask("CLUSTER", "INFO").toString().contains("cluster_state:ok")
                  && two.ask("CLUSTER", "INFO").toString().contains("cluster_known_nodes:2"));
    }

    void begin(int slot) {
      mark(slot);
      for (Object key : one.list("CLUSTER", "GETKEYSINSLOT", slot, 100)) {
        one.ask("MIGRATE", "127.0.0.1", two.port, key, 0, 5000);
      }
    }

    /** The slot is on its way; its keys are still where they were. */
    void mark(int slot) {
      two.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", one.ask("CLUSTER", "MYID"));
      one.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", two.ask("CLUSTER", "MYID"));
    }

    /** So many wait at the new node, while the slot is on its way. */
    void untilImported(String key, int waiters) {
      Server.until(
          () -> {
            two.ask("ASKING");
            return two.waiters(key) == waiters;
          });
    }

    void finish(int slot) {
      Object id = two.ask("CLUSTER", "MYID");
      two.ask("CLUSTER", "SETSLOT", slot, "NODE", id);
      one.ask("CLUSTER", "SETSLOT", slot, "NODE", id);
    }

    @Override
    public void close() {
      one.close();
      two.close();
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
      // A session asks at the new node, too.
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
  void keyThatHasMovedSaysNothingOfAnotherOfItsSlot() throws Exception {
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
}
