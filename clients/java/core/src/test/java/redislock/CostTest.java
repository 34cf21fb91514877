package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What keeps a lock cheap, as far as it can be counted: tasks of the timer, and connections. */
@Timeout(60)
final class CostTest {
  private static Server server;
  private Driven.Made made;

  @BeforeAll
  static void startServer() {
    server = new Server();
  }

  @AfterAll
  static void stopServer() {
    server.close();
  }

  @BeforeEach
  void begin() {
    made = new Driven.Made();
  }

  @AfterEach
  void end() throws Exception {
    made.close();
  }

  @Test
  void timeoutsShareOneTaskUntilTheFirstExpires() throws Exception {
    ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1);
    try {
      Timeouts timeouts = new Timeouts(timer);
      for (int each = 0; each < 1000; each++) {
        timeouts.add(60_000, () -> {}).cancel();
      }
      Timeouts.Timeout cancelled = timeouts.add(60_000, () -> {});
      assertEquals(1, timer.getQueue().size());
      CountDownLatch expired = new CountDownLatch(3);
      // Earlier than the check that is scheduled, then two within one check, and never again.
      for (int ms : new int[] {200, 300, 301}) {
        timeouts.add(ms, expired::countDown);
      }
      timeouts.add(100, expired::countDown).cancel();
      assertTrue(timer.getQueue().size() <= 3);
      assertTrue(expired.await(30, TimeUnit.SECONDS));
      cancelled.cancel();
    } finally {
      timer.shutdownNow();
    }
  }

  /** Waking the timer's thread takes more CPU time than the command. */
  @ParameterizedTest
  @EnumSource
  void aFreeLockDoesNotWakeTheTimer(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    ScheduledThreadPoolExecutor timer = locks.mutex("k").context.driver().timer;
    locks.mutex("k").acquire().release();
    long thread = timer.submit(() -> Thread.currentThread().getId()).get();
    long before = waits(thread);
    long began = System.nanoTime();
    for (int pair = 0; pair < 100; pair++) {
      locks.mutex("k").acquire().release();
      locks.mutex("k").autoRenew().acquire().release();
      locks.mutex("k").run("PING");
    }
    long ms = (System.nanoTime() - began) / 1_000_000;
    long woken = waits(thread) - before;
    // Over Jedis it looks for interrupts each 20 ms, and for requests that are queued.
    assertTrue(woken < 10 + ms / 5, woken + " times in " + ms + " ms");
  }

  private static long waits(long thread) {
    return ManagementFactory.getThreadMXBean().getThreadInfo(thread).getWaitedCount();
  }

  /** More threads wait than the pool has connections. */
  @Test
  void waitsOverJedisReuseTheirConnections() throws Exception {
    RedisLocks locks = Driven.JEDIS.locks(made, server.port);
    int threads = 16;
    long before = connections();
    ExecutorService all = Executors.newFixedThreadPool(threads);
    try {
      List<Future<?>> running = new ArrayList<>();
      for (int thread = 0; thread < threads; thread++) {
        running.add(
            all.submit(
                () -> {
                  for (int each = 0; each < 50; each++) {
                    locks.mutex("contended").acquire().release();
                  }
                  return null;
                }));
      }
      for (Future<?> each : running) {
        each.get();
      }
    } finally {
      all.shutdownNow();
    }
    long made = connections() - before;
    assertTrue(made <= threads + 8, made + " connections");
    // Those beyond the pool are closed once no wait needs them.
    Server.until(() -> field("clients", "connected_clients") <= 8 + 2);
  }

  private static long connections() {
    return field("stats", "total_connections_received");
  }

  private static long field(String section, String name) {
    String info = server.ask("INFO", section).toString();
    return Long.parseLong(info.replaceAll("(?s).*" + name + ":(\\d+).*", "$1"));
  }
}
