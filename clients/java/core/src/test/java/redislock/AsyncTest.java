package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Futures and stages: dependent code may block and stops nothing else. */
@Timeout(60)
final class AsyncTest {
  private static final Duration LONG = Duration.ofSeconds(30);

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
    made = new Driven.Made();
  }

  @AfterEach
  void end() throws Exception {
    made.close();
  }

  @ParameterizedTest
  @EnumSource
  void dependentsOfAnAcquireMayBlock(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    CountDownLatch blocked = new CountDownLatch(1);
    // Granted immediately, granted after a wait, and not granted.
    Hold held = locks.mutex("held").acquire();
    CompletableFuture<Boolean> granted =
        dependent(() -> locks.mutex("free").acquireAsync(LONG).thenApply(hold -> goesOn(blocked)));
    CompletableFuture<Boolean> waiting =
        dependent(() -> locks.mutex("held").acquireAsync(LONG).thenApply(hold -> goesOn(blocked)));
    server.untilWaiting("held", 1);
    CompletableFuture<Boolean> refused =
        dependent(
            () ->
                locks
                    .mutex("held")
                    .acquireAsync(Duration.ZERO)
                    .handle((hold, error) -> error != null && goesOn(blocked)));
    held.release();
    server.untilWaiting("held", 0);
    for (int pair = 0; pair < 20; pair++) {
      assertFalse(granted.isDone() || waiting.isDone() || refused.isDone());
      locks.mutex("other").acquire(Duration.ofSeconds(5)).release();
    }
    blocked.countDown();
    assertTrue(granted.get(10, TimeUnit.SECONDS));
    assertTrue(waiting.get(10, TimeUnit.SECONDS));
    assertTrue(refused.get(10, TimeUnit.SECONDS));
  }

  /** In a separate thread, because code added to a completed future runs immediately. */
  private static CompletableFuture<Boolean> dependent(Supplier<CompletableFuture<Boolean>> asks) {
    CompletableFuture<Boolean> result = new CompletableFuture<>();
    Thread thread =
        new Thread(
            () ->
                asks.get()
                    .whenComplete(
                        (value, error) -> {
                          if (error == null) {
                            result.complete(value);
                          } else {
                            result.completeExceptionally(error);
                          }
                        }));
    thread.setDaemon(true);
    thread.start();
    return result;
  }

  private static boolean goesOn(CountDownLatch blocked) {
    try {
      return blocked.await(30, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      return false;
    }
  }

  @ParameterizedTest
  @EnumSource
  void dependentsOfAnAcquireMayUseLocks(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    CompletableFuture<Void> used =
        locks
            .mutex("k")
            .acquireAsync(LONG)
            .thenAccept(
                hold -> {
                  try (hold;
                      Hold inner = locks.mutex("inner").acquire(LONG)) {
                    hold.extend();
                    inner.exec("SET", "done", "yes");
                  } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                  }
                });
    used.get(10, TimeUnit.SECONDS);
    assertEquals("yes", server.ask("GET", "done"));
    assertFalse(server.exists("k") || server.exists("inner"));
  }

  @ParameterizedTest
  @EnumSource
  void dependentsOfALossMayBlock(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Hold lost = locks.mutex("k").session().lease(Duration.ofSeconds(2)).acquire();
    CountDownLatch blocked = new CountDownLatch(1);
    CompletableFuture<Boolean> reported =
        lost.lost().thenApply(loss -> goesOn(blocked)).toCompletableFuture();
    server.ask("LOCK.BREAK", "k");
    Server.until(lost::isLost);
    // Renewals continue, and other losses are reported.
    Hold renewed = locks.mutex("r").lease(Duration.ofSeconds(1)).autoRenew().acquire();
    Hold leased = locks.mutex("l").lease(Duration.ofSeconds(2)).acquire();
    leased.lost().toCompletableFuture().get(10, TimeUnit.SECONDS);
    assertFalse(reported.isDone());
    renewed.release();
    blocked.countDown();
    assertTrue(reported.get(10, TimeUnit.SECONDS));
  }

  @ParameterizedTest
  @EnumSource
  void aReleaseInTheBackground(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    locks.mutex("k").acquireAsync(LONG).thenCompose(Hold::releaseAsync).get(10, TimeUnit.SECONDS);
    assertFalse(server.exists("k"));
    // Of each lock type, with a session, and with an interval that has not ended.
    locks.semaphore("s", 2).permits(2).acquire().releaseAsync().get(10, TimeUnit.SECONDS);
    locks.reentrant("r").session().acquire().releaseAsync().get(10, TimeUnit.SECONDS);
    locks.mutex("i").autoRenew().atLeast(LONG).acquire().releaseAsync().get(10, TimeUnit.SECONDS);
    assertEquals(1, server.number("DBSIZE"));
    // A second release does nothing, and a loss is reported.
    Hold lost = locks.mutex("k").acquire();
    server.ask("LOCK.BREAK", "k");
    ExecutionException error =
        assertThrows(ExecutionException.class, () -> lost.releaseAsync().get(10, TimeUnit.SECONDS));
    assertInstanceOf(LockLostException.class, error.getCause());
    Hold twice = locks.mutex("k").acquire();
    twice.release();
    twice.releaseAsync().get(10, TimeUnit.SECONDS);
  }

  @ParameterizedTest
  @EnumSource
  void aReleaseInTheBackgroundDoesNotDelayItsCaller(Driven driven) throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      Hold plain = locks.mutex("k").acquire();
      Hold interval = locks.mutex("i").autoRenew().atLeast(LONG).acquire();
      proxy.silent(true);
      long began = System.nanoTime();
      CompletableFuture<Void> first = plain.releaseAsync();
      CompletableFuture<Void> second = interval.releaseAsync();
      assertTrue(System.nanoTime() - began < 500_000_000L, "its caller was kept");
      proxy.silent(false);
      first.get(20, TimeUnit.SECONDS);
      second.get(20, TimeUnit.SECONDS);
      assertFalse(server.exists("k"));
    }
  }
}
