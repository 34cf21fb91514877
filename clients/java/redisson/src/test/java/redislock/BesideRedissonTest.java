package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson and this client share one lock, by {@code lock.adopt hash:orders:*}. */
@Timeout(60)
final class BesideRedissonTest {
  private static final String NAME = "orders:7";

  private TestServer server;
  private RedissonClient redisson;
  private redis.clients.jedis.RedisClient client;
  private RedisLocks locks;
  private ExecutorService threads;

  @BeforeEach
  void begin() {
    server = new TestServer();
    server.ask("CONFIG", "SET", "lock.adopt", "hash:orders:*");
    Config config = new Config();
    config.setLockWatchdogTimeout(900);
    config
        .useSingleServer()
        .setAddress("redis://127.0.0.1:" + server.port())
        .setConnectionMinimumIdleSize(1)
        .setConnectionPoolSize(8);
    redisson = Redisson.create(config);
    client = redis.clients.jedis.RedisClient.create("127.0.0.1", server.port());
    locks = RedisLocks.over(client);
    threads = Executors.newCachedThreadPool();
  }

  @AfterEach
  void end() throws Exception {
    threads.shutdownNow();
    assertTrue(threads.awaitTermination(10, TimeUnit.SECONDS));
    locks.close();
    client.close();
    redisson.shutdown();
    server.close();
  }

  private static <T> T of(Future<T> future) throws Exception {
    return future.get(20, TimeUnit.SECONDS);
  }

  /** The one holder, as the server knows it. */
  private LockInfo.Holder holder() throws InterruptedException {
    List<LockInfo.Holder> holders = locks.reentrant(NAME).info().orElseThrow().holders();
    assertEquals(1, holders.size());
    return holders.get(0);
  }

  private void untilWaiting() {
    server.until(() -> !((List<?>) server.ask("LOCK.WAITERS", NAME)).isEmpty());
  }

  @Test
  void redissonHoldsAndThisClientWaits() throws Exception {
    RLock old = redisson.getLock(NAME);
    old.lock();
    old.lock();
    assertEquals(2, holder().holds());
    assertTrue(holder().owner().endsWith(":" + Thread.currentThread().getId()));
    assertTrue(locks.reentrant(NAME).tryAcquire().isEmpty());
    // Its lock is reentrant.
    assertThrows(WrongKindException.class, () -> locks.mutex(NAME).tryAcquire());
    long fence = holder().fence();
    Future<Hold> waiting = threads.submit(() -> locks.reentrant(NAME).acquire());
    untilWaiting();
    // Longer than its lease: Redisson's watchdog renews it.
    long began = System.nanoTime();
    server.until(() -> System.nanoTime() - began > 1_500_000_000L);
    assertTrue(old.isHeldByCurrentThread());
    assertFalse(waiting.isDone());
    old.unlock();
    assertEquals(1, holder().holds());
    old.unlock();
    try (Hold hold = of(waiting)) {
      assertTrue(hold.fence() > fence);
      assertEquals(hold.token(), holder().owner());
      assertTrue(old.isLocked());
      assertFalse(old.isHeldByCurrentThread());
    }
    assertFalse(old.isLocked());
  }

  @Test
  void thisClientHoldsAndRedissonWaits() throws Exception {
    RLock old = redisson.getLock(NAME);
    Hold hold = locks.reentrant(NAME).lease(Duration.ofMinutes(1)).acquire();
    assertTrue(old.isLocked());
    assertFalse(old.tryLock());
    assertTrue(old.remainTimeToLive() > 50_000);
    Future<Boolean> waiting =
        threads.submit(
            () -> {
              boolean locked = old.tryLock(20, TimeUnit.SECONDS);
              if (locked) {
                old.unlock();
              }
              return locked;
            });
    // It waits for the unlock message and sends no further request.
    server.until(
        () -> !((List<?>) server.ask("PUBSUB", "CHANNELS", "redisson_lock__channel*")).isEmpty());
    assertFalse(waiting.isDone());
    hold.release();
    assertTrue(of(waiting));
    assertFalse(old.isLocked());
  }

  /** Its spin lock polls, and its fenced lock has its own counter. */
  @Test
  void itsSpinLockAndItsFencedLock() throws Exception {
    for (RLock old : List.of(redisson.getSpinLock(NAME), redisson.getFencedLock(NAME))) {
      assertTrue(old.tryLock());
      assertTrue(locks.reentrant(NAME).tryAcquire().isEmpty());
      Future<Hold> waiting = threads.submit(() -> locks.reentrant(NAME).acquire());
      untilWaiting();
      old.unlock();
      try (Hold hold = of(waiting)) {
        assertFalse(old.tryLock());
        assertEquals(hold.token(), holder().owner());
      }
      assertTrue(old.tryLock());
      old.unlock();
    }
  }

  /** Each of several Redisson locks is adopted separately. */
  @Test
  void itsMultiLock() throws Exception {
    RLock both = redisson.getMultiLock(redisson.getLock("orders:1"), redisson.getLock("orders:2"));
    assertTrue(both.tryLock());
    assertTrue(locks.reentrant("orders:2").tryAcquire().isEmpty());
    both.unlock();
    try (Hold hold = locks.reentrant("orders:2").acquire()) {
      assertFalse(both.tryLock());
    }
    assertTrue(both.tryLock());
    both.unlock();
  }

  @Test
  void aLockThatIsBrokenIsLostToRedisson() throws Exception {
    RLock old = redisson.getLock(NAME);
    old.lock(1, TimeUnit.MINUTES);
    server.ask("LOCK.BREAK", NAME);
    assertThrows(IllegalMonitorStateException.class, old::unlock);
    Hold hold = locks.reentrant(NAME).acquire();
    assertTrue(old.forceUnlock());
    assertThrows(LockLostException.class, hold::release);
  }

  @Test
  void bothCountTogether() throws Exception {
    int rounds = 50;
    List<Future<?>> all = new ArrayList<>();
    int[] inside = new int[1];
    int[] done = new int[1];
    for (int each = 0; each < 4; each++) {
      boolean isOld = each % 2 == 0;
      all.add(
          threads.submit(
              () -> {
                for (int round = 0; round < rounds; round++) {
                  if (isOld) {
                    RLock lock = redisson.getLock(NAME);
                    lock.lock();
                    work(inside, done);
                    lock.unlock();
                  } else {
                    try (Hold hold = locks.reentrant(NAME).acquire()) {
                      work(inside, done);
                    }
                  }
                }
                return null;
              }));
    }
    for (Future<?> each : all) {
      each.get(50, TimeUnit.SECONDS);
    }
    assertEquals(4 * rounds, done[0]);
    assertEquals(0L, server.ask("EXISTS", NAME));
  }

  /** Not atomic: only the lock makes it correct. */
  private static void work(int[] inside, int[] done) {
    assertEquals(1, ++inside[0]);
    int before = done[0];
    Thread.yield();
    done[0] = before + 1;
    inside[0]--;
  }
}
