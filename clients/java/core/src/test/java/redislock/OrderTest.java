package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Requests of one owner that overlap, and replies that are late or lost. */
@Timeout(60)
final class OrderTest {
  private static final Duration LONG = Duration.ofMinutes(1);

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
    server.ask("FLUSHALL");
    server.ask("CONFIG", "RESETSTAT");
    made = new Driven.Made();
  }

  @AfterEach
  void end() throws Exception {
    made.close();
  }

  private static Duration ms(long ms) {
    return Duration.ofMillis(ms);
  }

  private static long leftMs(Hold hold) {
    return hold.remaining().orElseThrow().toMillis();
  }

  @ParameterizedTest
  @EnumSource
  void aRenewalThatOverlapsAnExtensionDoesNotShortenIt(Driven driven) throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      Hold hold = driven.locks(made, proxy.port).mutex("k").lease(ms(6000)).autoRenew().acquire();
      if (driven == Driven.LETTUCE) {
        // Both wait for one connection, which sends the latest request first.
        proxy.connectAfter(1000);
        server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
        Server.until(() -> leftMs(hold) < 3800);
      } else {
        proxy.split("LOCK.RENEW");
        Server.until(proxy::hasSplit);
      }
      hold.extend(LONG);
      proxy.letGo();
      Server.until(() -> server.calls("lock.renew") >= 2);
      Server.until(4, () -> server.number("PTTL", "k") > 30_000);
      Server.until(4, () -> leftMs(hold) > 30_000);
    }
  }

  /** The timer has taken the renewal from its list, and runs it while the release is sent. */
  @ParameterizedTest
  @EnumSource
  void aRenewalThatIsDueDoesNotFollowTheRelease(Driven driven) throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      ScheduledExecutorService timer = locks.mutex("k").context.driver().timer;
      Hold hold = locks.mutex("k").lease(ms(3000)).autoRenew().atLeast(LONG).acquire();
      long before = server.calls("lock.renew");
      CountDownLatch due = new CountDownLatch(1);
      CountDownLatch sent = new CountDownLatch(1);
      timer.execute(() -> awaits(due));
      Server.until(() -> leftMs(hold) < 1900);
      CountDownLatch isBehind = new CountDownLatch(1);
      timer.execute(
          () -> {
            isBehind.countDown();
            awaits(sent);
          });
      due.countDown();
      isBehind.await();
      proxy.hold("LOCK.RENEW");
      CompletableFuture<Void> released = hold.releaseAsync();
      Server.until(() -> server.number("PTTL", "k") > 30_000);
      sent.countDown();
      timer.submit(() -> {}).get();
      Thread.sleep(300);
      assertTrue(server.number("PTTL", "k") > 30_000);
      assertEquals(before + 1, server.calls("lock.renew"));
      proxy.hold(null);
      proxy.closeAll();
      released.get(20, TimeUnit.SECONDS);
    }
  }

  private static void awaits(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  @ParameterizedTest
  @EnumSource
  void theNextGrantOfAnOwnerOutlivesAnEarlierWithdrawal(Driven driven) throws Exception {
    for (boolean isQueued : new boolean[] {false, true}) {
      try (Proxy proxy = new Proxy(server.port)) {
        RedisLocks locks = driven.locks(made, proxy.port);
        for (RedisLock<?> lock :
            List.of(locks.mutex("k").token("t"), locks.reentrant("r").token("t"))) {
          String prefix = lock instanceof Mutex ? "LOCK." : "RLOCK.";
          long releases = proxy.count(prefix + "RELEASE");
          long acquires = proxy.count(prefix + "ACQUIRE");
          proxy.hold(prefix + "ACQUIRE");
          CompletableFuture<Hold> cancelled = lock.acquireAsync(LONG);
          Server.until(() -> proxy.count(prefix + "ACQUIRE") > acquires);
          proxy.hold(null);
          CompletableFuture<Hold> next = isQueued ? lock.acquireAsync(LONG) : null;
          cancelled.cancel(true);
          next = isQueued ? next : lock.acquireAsync(LONG);
          Hold hold = next.get(30, TimeUnit.SECONDS);
          Server.until(() -> proxy.count(prefix + "RELEASE") > releases);
          locks.mutex("other").isLocked();
          assertTrue(hold.isHeld(), lock + ", queued: " + isQueued);
          hold.release();
        }
      }
    }
  }

  @ParameterizedTest
  @EnumSource
  void theNextGrantOfAnOwnerOutlivesAnEarlierFailure(Driven driven) throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      ReentrantMutex lock = locks.reentrant("r").token("t");
      locks.mutex("k").acquire().release();
      proxy.silent(true);
      CompletableFuture<Hold> failed = lock.acquireAsync(ms(200));
      CompletableFuture<Hold> next = lock.acquireAsync(LONG);
      assertThrows(ExecutionException.class, () -> failed.get(30, TimeUnit.SECONDS));
      proxy.silent(false);
      Hold hold = next.get(30, TimeUnit.SECONDS);
      Server.until(() -> proxy.count("RLOCK.RELEASE") > 0);
      locks.mutex("k").isLocked();
      assertTrue(hold.isHeld());
      hold.release();
    }
  }

  /** A dependent of a future may be the next request of the same owner. */
  @ParameterizedTest
  @EnumSource
  void anOwnerAcquiresAgainInADependent(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    ReentrantMutex lock = locks.reentrant("r").token("t");
    CompletableFuture<Integer> nested =
        lock.acquireAsync(LONG)
            .thenApply(
                outer -> {
                  try (outer;
                      Hold inner = lock.within(outer).acquire(Duration.ofSeconds(10))) {
                    return inner.holds();
                  } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                  }
                });
    assertEquals(2, nested.get(20, TimeUnit.SECONDS));
    Server.until(() -> !server.exists("r"));
  }

  @ParameterizedTest
  @EnumSource
  void aNestedAcquireDoesNotShortenTheLease(Driven driven) throws Exception {
    ReentrantMutex lock = driven.locks(made, server.port).reentrant("r");
    Hold outer = lock.lease(LONG).acquire();
    Hold inner = lock.lease(ms(500)).within(outer).acquire();
    assertTrue(leftMs(outer) > 30_000 && server.number("PTTL", "r") > 30_000);
    inner.release();
    outer.release();
    Hold endless = lock.withoutLease().acquire();
    lock.within(endless).acquire();
    assertTrue(endless.remaining().isEmpty());
    assertEquals(-1, server.number("PTTL", "r"));
  }

  @ParameterizedTest
  @EnumSource
  void aLossOnASilentServerIsReportedAtTheDeadline(Driven driven) throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      Hold hold = driven.locks(made, proxy.port).mutex("k").lease(ms(6000)).autoRenew().acquire();
      CompletableFuture<?> lost = hold.lost().toCompletableFuture();
      proxy.silent(true);
      // It used to come two thirds of the lease later.
      lost.get(leftMs(hold) + 2000, TimeUnit.MILLISECONDS);
    }
  }

  /** An attempt lasts 5 s at most, and the first one begins after 5 s. */
  @ParameterizedTest
  @EnumSource
  void aConnectionThatGoesSilentIsReplacedBeforeTheDeadline(Driven driven) throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      Hold hold = driven.locks(made, proxy.port).mutex("k").lease(ms(15_000)).autoRenew().acquire();
      proxy.hold("LOCK.RENEW");
      Server.until(() -> proxy.count("LOCK.RENEW") == 1);
      proxy.hold(null);
      long deadline = System.nanoTime() + hold.remaining().orElseThrow().toNanos();
      Server.until(() -> leftMs(hold) > 12_000);
      assertTrue(System.nanoTime() < deadline, "it was renewed after its lease had expired");
      assertFalse(hold.isLost());
      hold.release();
    }
  }

  @ParameterizedTest
  @EnumSource
  void aHoldThatIsKnownToBeLostIsNotUsed(Driven driven) throws Exception {
    Hold hold = driven.locks(made, server.port).mutex("k").lease(ms(1000)).acquire();
    server.ask("PEXPIRE", "k", 60_000);
    Server.until(hold::isLost);
    assertThrows(LockLostException.class, hold::extend);
    assertThrows(LockLostException.class, () -> hold.exec("SET", "v", "lost"));
    assertFalse(server.exists("v"));
    assertEquals(0, server.calls("lock.renew"));
    assertTrue(hold.isLost());
  }

  @ParameterizedTest
  @EnumSource
  void aLossDuringAnExtensionIsReported(Driven driven) throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      Hold hold = driven.locks(made, proxy.port).mutex("k").lease(ms(1000)).acquire();
      proxy.split("LOCK.RENEW");
      CompletableFuture<Void> extended = CompletableFuture.runAsync(() -> hold.extend(LONG));
      Server.until(proxy::hasSplit);
      server.ask("PEXPIRE", "k", 60_000);
      Server.until(hold::isLost);
      proxy.letGo();
      assertThrows(Exception.class, () -> extended.get(20, TimeUnit.SECONDS));
      assertTrue(hold.isLost());
    }
  }

  @ParameterizedTest
  @EnumSource
  void anExtensionWhoseReplyIsLostMayHaveShortenedTheLease(Driven driven) throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      Hold hold = locks.mutex("k").lease(LONG).acquire();
      Hold renewed = locks.mutex("r").lease(LONG).autoRenew().acquire();
      for (Hold each : List.of(hold, renewed)) {
        proxy.cutEach("LOCK.RENEW");
        assertThrows(RuntimeException.class, () -> each.extend(ms(20_000)));
        proxy.cut(null, 0);
      }
      assertTrue(leftMs(hold) <= 20_000);
      Server.until(5, () -> leftMs(renewed) > 30_000 && server.number("PTTL", "r") > 30_000);
    }
  }

  @ParameterizedTest
  @EnumSource
  void aReleaseInTheBackgroundIsRetriedUntilTheActualLeaseHasExpired(Driven driven)
      throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    locks.mutex("k").lease(LONG).token("t").acquire();
    locks.mutex("endless").withoutLease().token("t").acquire();
    Hold hold = locks.mutex("k").lease(ms(300)).fromToken("t");
    Hold endless = locks.mutex("endless").lease(ms(300)).fromToken("t");
    server.ask("CONFIG", "SET", "min-replicas-to-write", 1);
    try {
      // Each waits for a second.
      hold.close();
      endless.close();
    } finally {
      server.ask("CONFIG", "SET", "min-replicas-to-write", 0);
    }
    Server.until(10, () -> !server.exists("k") && !server.exists("endless"));
  }

  @ParameterizedTest
  @EnumSource
  void aRefusedExtensionDoesNotPostponeTheRenewal(Driven driven) throws Exception {
    server.ask("CONFIG", "SET", "lock.max-lease", 30_000);
    try {
      Hold hold = driven.locks(made, server.port).mutex("k").lease(ms(3000)).autoRenew().acquire();
      for (int times = 0; times < 10; times++) {
        assertThrows(IllegalArgumentException.class, () -> hold.extend(LONG));
        Thread.sleep(400);
      }
      assertFalse(hold.isLost());
      hold.release();
    } finally {
      server.ask("CONFIG", "SET", "lock.max-lease", 31_536_000_000L);
    }
  }

  @ParameterizedTest
  @EnumSource
  void aHoldThatWasNotReturnedIsNotRenewed(Driven driven) throws Exception {
    RedisLocks locks = withUser(driven);
    locks.mutex("k").lease(LONG).token("t").acquire();
    server.ask("ACL", "SETUSER", "u", "-lock.renew");
    Mutex renewed = locks.mutex("k").lease(ms(600)).autoRenew();
    assertThrows(RuntimeException.class, () -> renewed.fromToken("t"));
    server.ask("ACL", "SETUSER", "u", "+lock.renew");
    Thread.sleep(500);
    assertEquals(0, server.calls("lock.renew"));
  }

  @ParameterizedTest
  @EnumSource
  void aHoldWhoseReleaseFailedReportsItsLoss(Driven driven) throws Exception {
    RedisLocks locks = withUser(driven);
    Hold hold = locks.mutex("k").lease(ms(1500)).acquire();
    CompletableFuture<?> lost = hold.lost().toCompletableFuture();
    ReentrantMutex lock = locks.reentrant("r").token("t").lease(ms(1500)).autoRenew();
    Hold outer = lock.acquire();
    server.ask("ACL", "SETUSER", "u", "-lock.release", "-rlock.release");
    assertThrows(RuntimeException.class, hold::release);
    assertThrows(RuntimeException.class, outer::release);
    // The same owner acquires again.
    Hold again = lock.acquire();
    assertEquals(2, again.holds());
    lost.get(10, TimeUnit.SECONDS);
    Server.until(() -> server.calls("rlock.renew") >= 2);
    assertFalse(again.isLost());
    server.ask("LOCK.BREAK", "r");
    again.lost().toCompletableFuture().get(10, TimeUnit.SECONDS);
  }

  private RedisLocks withUser(Driven driven) {
    server.ask("ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "&*", "+@all");
    Driven.Options options = new Driven.Options();
    options.user = "u";
    options.password = "p";
    return driven.locks(made, server.port, options);
  }
}
