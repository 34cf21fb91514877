package redislock.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import redislock.LockEvent;
import redislock.RedisLocks;
import redislock.TestServer;

final class RedisLockProviderTest {
  private static final String KEY = "job-lock:default:report";

  private TestServer server;
  private io.lettuce.core.RedisClient client;
  private RedisLocks locks;
  private RedisLockProvider provider;

  @BeforeEach
  void begin() {
    server = new TestServer();
    client = io.lettuce.core.RedisClient.create("redis://127.0.0.1:" + server.port());
    locks = RedisLocks.over(client);
    provider = new RedisLockProvider(locks);
  }

  @AfterEach
  void end() {
    locks.close();
    client.shutdown();
    server.close();
  }

  private static LockConfiguration report(Duration atMost, Duration atLeast) {
    return new LockConfiguration(ClockProvider.now(), "report", atMost, atLeast);
  }

  @Test
  void oneInstanceHoldsTheLockUntilItUnlocks() {
    SimpleLock lock = provider.lock(report(Duration.ofMinutes(5), Duration.ZERO)).orElseThrow();
    assertTrue(server.exists(KEY));
    assertTrue(provider.lock(report(Duration.ofMinutes(5), Duration.ZERO)).isEmpty());
    lock.unlock();
    assertFalse(server.exists(KEY));
    assertThrows(IllegalStateException.class, lock::unlock);
    SimpleLock brief = provider.lock(report(Duration.ofMillis(50), Duration.ZERO)).orElseThrow();
    server.until(() -> !server.exists(KEY));
    // It took longer than lockAtMostFor: logged, not an error.
    brief.unlock();
  }

  @Test
  void lockAtLeastForIsKept() {
    provider.lock(report(Duration.ofMinutes(5), Duration.ofSeconds(2))).orElseThrow().unlock();
    long left = (Long) server.ask("PTTL", KEY);
    assertTrue(left > 1000 && left <= 2000, left + " ms");
  }

  /** A job is usually shorter than lockAtLeastFor: metrics must not count a loss. */
  @Test
  void aLockThatIsKeptIsReleasedAndNotLost() {
    List<LockEvent.Type> reported = new CopyOnWriteArrayList<>();
    provider = new RedisLockProvider(locks.observedBy(event -> reported.add(event.type())));
    LockConfiguration brief = report(Duration.ofSeconds(5), Duration.ofMillis(300));
    provider.lock(brief).orElseThrow().unlock();
    assertTrue(server.exists(KEY));
    server.until(() -> !server.exists(KEY));
    SimpleLock lock = provider.lock(report(Duration.ofSeconds(5), Duration.ZERO)).orElseThrow();
    lock.extend(Duration.ofSeconds(5), Duration.ofMillis(300)).orElseThrow().unlock();
    server.until(() -> !server.exists(KEY));
    // The holder of a later lock has seen the end of the earlier ones, so everything is reported by
    // then.
    provider.lock(report(Duration.ofSeconds(5), Duration.ZERO)).orElseThrow().unlock();
    assertEquals(
        List.of(
            LockEvent.Type.GRANTED,
            LockEvent.Type.RELEASED,
            LockEvent.Type.GRANTED,
            LockEvent.Type.RENEWED,
            LockEvent.Type.RELEASED,
            LockEvent.Type.GRANTED,
            LockEvent.Type.RELEASED),
        reported);
  }

  @Test
  void anExtendedLockRestartsLockAtLeastFor() {
    LockConfiguration kept = report(Duration.ofMinutes(5), Duration.ofMinutes(4));
    provider
        .lock(kept)
        .orElseThrow()
        .extend(Duration.ofMinutes(5), Duration.ZERO)
        .orElseThrow()
        .unlock();
    assertFalse(server.exists(KEY));
  }

  @Test
  void aLockIsExtended() {
    SimpleLock lock = provider.lock(report(Duration.ofSeconds(5), Duration.ZERO)).orElseThrow();
    SimpleLock extended = lock.extend(Duration.ofMinutes(1), Duration.ofSeconds(30)).orElseThrow();
    assertTrue((Long) server.ask("PTTL", KEY) > 50_000);
    assertThrows(IllegalStateException.class, lock::unlock);
    extended.unlock();
    long left = (Long) server.ask("PTTL", KEY);
    assertTrue(left > 20_000 && left <= 30_000, left + " ms");
    server.ask("LOCK.BREAK", KEY);
    SimpleLock lost = provider.lock(report(Duration.ofSeconds(5), Duration.ZERO)).orElseThrow();
    server.ask("LOCK.BREAK", KEY);
    assertTrue(lost.extend(Duration.ofMinutes(1), Duration.ZERO).isEmpty());
  }

  /** ShedLock's own Redis providers: SET key value NX PX, and DEL. */
  @Test
  void oldAndNewInstancesExcludeEachOther() {
    assertEquals("OK", server.ask("SET", KEY, "old", "NX", "PX", 60_000));
    assertTrue(provider.lock(report(Duration.ofMinutes(5), Duration.ZERO)).isEmpty());
    server.ask("DEL", KEY);
    SimpleLock lock = provider.lock(report(Duration.ofMinutes(5), Duration.ZERO)).orElseThrow();
    assertEquals(null, server.ask("SET", KEY, "old", "NX", "PX", 60_000));
    lock.unlock();
    assertEquals("OK", server.ask("SET", KEY, "old", "NX", "PX", 60_000));
  }

  @Test
  void oneOfManyThreadsRunsTheTask() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(8);
    AtomicInteger inside = new AtomicInteger();
    AtomicInteger ran = new AtomicInteger();
    DefaultLockingTaskExecutor executor = new DefaultLockingTaskExecutor(provider);
    List<Future<?>> all = new ArrayList<>();
    for (int each = 0; each < 8; each++) {
      all.add(
          threads.submit(
              () -> {
                for (int round = 0; round < 50; round++) {
                  executor.executeWithLock(
                      (Runnable)
                          () -> {
                            assertEquals(1, inside.incrementAndGet());
                            ran.incrementAndGet();
                            inside.decrementAndGet();
                          },
                      new LockConfiguration(
                          Instant.now(), "report", Duration.ofMinutes(1), Duration.ZERO));
                }
              }));
    }
    for (Future<?> each : all) {
      each.get();
    }
    threads.shutdown();
    assertTrue(ran.get() >= 8, ran + " runs");
  }
}
