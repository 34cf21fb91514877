package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import java.util.function.Function;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Every duration at the limits of its range: refused with a reason, or exactly as long as given.
 */
@Timeout(60)
final class DurationTest {
  private static final List<Duration> NONE =
      List.of(Duration.ZERO, Duration.ofNanos(-1), Duration.ofSeconds(Long.MIN_VALUE));

  /** Some of them are a number of milliseconds, some of nanoseconds, and some neither. */
  private static final List<Duration> GREATEST =
      List.of(
          Duration.ofSeconds(Long.MAX_VALUE, 999_999_999),
          Duration.ofMillis(Long.MAX_VALUE),
          Duration.ofNanos(Long.MAX_VALUE),
          Duration.ofMillis(Clock.NEVER),
          Duration.ofDays(36_501));

  private static Server server;
  private Driven.Made made;
  private ExecutorService threads;

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
    server.ask("FLUSHALL");
    made = new Driven.Made();
    threads = Executors.newCachedThreadPool();
  }

  @AfterEach
  void end() throws Exception {
    threads.shutdownNow();
    assertTrue(threads.awaitTermination(10, TimeUnit.SECONDS));
    made.close();
  }

  @Test
  void optionsOfZeroOrLessAreRefused() throws Exception {
    Mutex lock = Driven.LETTUCE.locks(made, server.port).mutex("k");
    Map<String, Function<Duration, ?>> options =
        Map.of(
            "a lease", lock::lease,
            "atLeast", lock::atLeast,
            "an interval", lock::mixed,
            "a timeout", each -> lock.replicas(1, each));
    for (Duration none : NONE) {
      options.forEach(
          (name, option) -> {
            String message =
                assertThrows(IllegalArgumentException.class, () -> option.apply(none)).getMessage();
            assertEquals(name + " must be greater than zero, not " + none, message);
          });
      try (Hold hold = lock.acquire()) {
        assertThrows(IllegalArgumentException.class, () -> hold.extend(none));
        assertThrows(IllegalArgumentException.class, () -> hold.extend(none, Duration.ZERO));
        if (none.isNegative()) {
          assertThrows(
              IllegalArgumentException.class, () -> hold.extend(Duration.ofSeconds(9), none));
        }
        assertTrue(server.number("PTTL", "k") > 9000);
      }
    }
  }

  @ParameterizedTest
  @EnumSource
  void theLongestLeaseIsRefusedByTheServer(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    for (Duration greatest : GREATEST) {
      for (RedisLock<?> lock :
          List.of(
              locks.mutex("k").lease(greatest),
              locks.mutex("k").lease(greatest).autoRenew(),
              locks.reentrant("r").lease(greatest),
              locks.semaphore("s", 2).lease(greatest),
              locks.readWrite("w").read().lease(greatest),
              locks.all("a", "b").lease(greatest))) {
        IllegalArgumentException error =
            assertThrows(IllegalArgumentException.class, () -> lock.acquire());
        assertTrue(error.getMessage().contains("more than lock.max-lease"), error.getMessage());
      }
      try (Hold hold = locks.mutex("k").acquire()) {
        assertThrows(IllegalArgumentException.class, () -> hold.extend(greatest));
        assertTrue(hold.remaining().orElseThrow().toSeconds() <= 30);
      }
    }
    assertEquals(0, server.number("DBSIZE"));
  }

  @ParameterizedTest
  @EnumSource
  void fractionsRoundUp(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Duration lease = Duration.ofSeconds(100).plusNanos(1);
    try (Hold hold = locks.mutex("k").lease(lease).acquire()) {
      LockInfo.Holder holder = locks.mutex("k").info().orElseThrow().holders().get(0);
      assertEquals(Duration.ofMillis(100_001), holder.lease().orElseThrow());
      hold.extend(Duration.ofSeconds(200).plusNanos(999_999));
      holder = locks.mutex("k").info().orElseThrow().holders().get(0);
      assertEquals(Duration.ofMillis(200_001), holder.lease().orElseThrow());
    }
    // The shortest: 1 ms, not zero.
    locks.mutex("k").lease(Duration.ofNanos(1)).acquire();
    Server.until(() -> !server.exists("k"));
  }

  @ParameterizedTest
  @EnumSource
  void aWaitOfZeroOrLessDoesNotWait(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Hold hold = locks.mutex("k").acquire();
    for (Duration none : NONE) {
      for (Mutex lock : List.of(locks.mutex("k"), locks.mutex("k").session())) {
        assertEquals(Optional.empty(), lock.tryAcquire(none));
        assertThrows(NotAcquiredException.class, () -> lock.acquire(none));
        assertThrows(NotAcquiredException.class, () -> lock.run(none, "PING"));
        assertEquals(Optional.empty(), lock.acquireOrDone(none).granted());
        assertThrows(NotMadeException.class, () -> lock.once(() -> null, granted -> "made", none));
      }
    }
    assertFalse(locks.mutex("k").asLock().tryLock(Long.MIN_VALUE, TimeUnit.DAYS));
    hold.release();
    assertTrue(locks.mutex("k").asLock().tryLock(-1, TimeUnit.NANOSECONDS));
  }

  @ParameterizedTest
  @EnumSource
  void theLongestWaitLasts(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    for (Duration greatest : GREATEST) {
      Hold held = locks.mutex("k").acquire();
      List<Future<?>> waiting =
          List.of(
              threads.submit(released(() -> locks.mutex("k").acquire(greatest))),
              threads.submit(released(() -> locks.mutex("k").session().acquire(greatest))),
              threads.submit(() -> locks.mutex("k").run(greatest, "PING")),
              locks
                  .mutex("k")
                  .acquireAsync(greatest)
                  .thenCompose(hold -> CompletableFuture.runAsync(hold::release, threads)));
      server.untilWaiting("k", waiting.size());
      held.release();
      for (Future<?> each : waiting) {
        each.get(10, TimeUnit.SECONDS);
      }
    }
    for (TimeUnit unit : TimeUnit.values()) {
      Lock lock = locks.mutex("k").asLock();
      assertTrue(lock.tryLock(Long.MAX_VALUE, unit));
      lock.unlock();
    }
    // The longest interval of a poll, and the longest time for the replicas.
    Duration greatest = GREATEST.get(0);
    locks.mutex("k").mixed(greatest).acquire().release();
    try (Server replica = new Server("replicaof 127.0.0.1 " + server.port)) {
      Server.until(() -> replica.ask("ROLE").toString().contains("connected"));
      locks.mutex("k").replicas(1, greatest).acquire().release();
    }
  }

  /**
   * Otherwise only the release would send it: the work would have run, and would run again
   * elsewhere.
   */
  @ParameterizedTest
  @EnumSource
  void atLeastAboveTheLongestLeaseIsRefusedBeforeTheWork(Driven driven) throws Exception {
    try (Server brief = new Server("lock.max-lease 60000");
        Proxy proxy = new Proxy(brief.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      // The lock is held: it is refused immediately, not after a wait.
      Hold held = driven.locks(made, brief.port).mutex("k").acquire();
      for (Duration tooLong : List.of(Duration.ofMillis(60_001), GREATEST.get(0))) {
        for (RedisLock<?> lock :
            List.of(
                locks.mutex("k").atLeast(tooLong),
                locks.mutex("k").atLeast(tooLong).mixed(Duration.ofSeconds(1)),
                locks.mutex("m").atLeast(tooLong).autoRenew(),
                locks.mutex("m").atLeast(tooLong).replicas(1, Duration.ofSeconds(1)),
                locks.reentrant("r").atLeast(tooLong),
                locks.readWrite("w").read().atLeast(tooLong),
                locks.readWrite("w").write().atLeast(tooLong),
                locks.semaphore("s", 2).atLeast(tooLong),
                locks.all("a", "b").atLeast(tooLong))) {
          for (Callable<?> asking : List.<Callable<?>>of(lock::acquire, lock::tryAcquire)) {
            IllegalArgumentException error =
                assertThrows(IllegalArgumentException.class, asking::call);
            assertTrue(error.getMessage().contains("lock.max-lease"), error::getMessage);
          }
        }
        Hold hold = locks.mutex("m").acquire();
        Duration lease = Duration.ofSeconds(9);
        assertThrows(IllegalArgumentException.class, () -> hold.extend(lease, tooLong));
        hold.release();
        assertFalse(brief.exists("m"));
      }
      assertEquals(1, brief.number("DBSIZE"));
      assertEquals(0, brief.calls("lock.cancel"));
      held.release();
      // The longest allowed time is accepted, and a request with a lost reply is repeated.
      proxy.cut("LOCK.RENEW", 0);
      Hold longest = locks.mutex("k").atLeast(Duration.ofMinutes(1)).acquire();
      assertTrue(proxy.hasCut());
      longest.release();
      assertTrue(brief.number("PTTL", "k") > 50_000);
      // The acquire reports a key of another type.
      brief.ask("SET", "string", "of another client");
      Mutex string = locks.mutex("string").atLeast(Duration.ofMinutes(1));
      assertThrows(WrongTypeException.class, () -> string.acquire());
    }
  }

  private static Callable<Void> released(Callable<Hold> acquire) {
    return () -> {
      acquire.call().release();
      return null;
    };
  }
}
