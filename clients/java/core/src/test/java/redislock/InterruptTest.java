package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redis.clients.jedis.ConnectionFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisSocketFactory;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.providers.PooledConnectionProvider;

/**
 * Interrupts and cancellations at any moment of an acquire, in particular at the same time as its
 * grant.
 */
@Isolated("it keeps the processors busy, and others measure times")
@Timeout(300)
final class InterruptTest {
  private static final int ROUNDS = 1000;

  /** Bytes, more than Jedis' buffer and than a handshake. */
  private static final int LONG_WRITE = 50_000;

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

  /** An acquire and the release of its grant. */
  private interface Pair {
    void run() throws InterruptedException;
  }

  /**
   * Interrupts a pair in each round, 0 to 1.5 ms after it has started.
   *
   * @return the number of interrupted pairs
   */
  private static int storm(Pair pair) throws Exception {
    AtomicInteger ended = new AtomicInteger();
    AtomicReference<Throwable> failed = new AtomicReference<>();
    for (int round = 0; round < ROUNDS && failed.get() == null; round++) {
      CompletableFuture<Void> begun = new CompletableFuture<>();
      Thread thread =
          new Thread(
              () -> {
                begun.complete(null);
                try {
                  pair.run();
                } catch (InterruptedException e) {
                  ended.incrementAndGet();
                } catch (RuntimeException | Error e) {
                  failed.set(e);
                }
              });
      thread.start();
      begun.join();
      spin(round * 1500L);
      thread.interrupt();
      thread.join();
    }
    if (failed.get() != null) {
      throw new AssertionError(failed.get());
    }
    Server.until(() -> server.number("DBSIZE") == 0);
    return ended.get();
  }

  private static void spin(long nanos) {
    long ends = System.nanoTime() + nanos;
    while (System.nanoTime() < ends) {
      Thread.onSpinWait();
    }
  }

  @ParameterizedTest
  @EnumSource
  void anAcquireThatIsInterruptedLeavesNothing(Driven driven) throws Exception {
    Mutex lock = driven.locks(made, server.port).mutex("k").withoutLease();
    assertTrue(storm(() -> lock.acquire(LONG).release()) > 0);
  }

  @ParameterizedTest
  @EnumSource
  void anInterruptedAcquireOfAnyLockTypeLeavesNothing(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Semaphore semaphore = locks.semaphore("s", 2).withoutLease();
    List<Pair> pairs =
        List.of(
            () -> locks.reentrant("r").withoutLease().acquire(LONG).release(),
            () -> locks.readWrite("w").read().withoutLease().acquire(LONG).release(),
            () -> locks.readWrite("w").write().withoutLease().acquire(LONG).release(),
            () -> semaphore.permits(2).acquire(LONG).release(),
            () -> semaphore.slots().acquire(LONG).release(),
            () -> locks.all("a", "b").withoutLease().acquire(LONG).release(),
            () -> locks.mutex("t").withoutLease().token("me").acquire(LONG).release(),
            () -> locks.mutex("i").lease(LONG).mixed(Duration.ofMillis(5)).acquire(LONG).release(),
            () -> locks.mutex("x").run(LONG, "PING"),
            () -> locks.mutex("o").once(() -> null, hold -> "made", LONG));
    AtomicInteger round = new AtomicInteger();
    assertTrue(storm(() -> pairs.get(round.getAndIncrement() % pairs.size()).run()) > 0);
  }

  /** A socket whose writer is interrupted by the first long write, which is lost. */
  private static final class InterruptingSocket extends Socket {
    private final boolean interrupts;

    InterruptingSocket(int port, boolean interrupts) throws IOException {
      super("127.0.0.1", port);
      this.interrupts = interrupts;
    }

    @Override
    public OutputStream getOutputStream() throws IOException {
      return new FilterOutputStream(super.getOutputStream()) {
        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
          if (!interrupts || length < LONG_WRITE) {
            out.write(bytes, offset, length);
            return;
          }
          Thread.currentThread().interrupt();
          long ends = System.nanoTime() + Duration.ofSeconds(30).toNanos();
          while (!isClosed() && System.nanoTime() < ends) {
            Thread.onSpinWait();
          }
        }
      };
    }
  }

  /** Jedis connects again when the next command of the packet is written. */
  @Test
  void aPacketThatIsCutWhileItIsWrittenIsNotSentInPart() throws Exception {
    AtomicInteger sockets = new AtomicInteger();
    JedisSocketFactory factory =
        () -> {
          try {
            return new InterruptingSocket(server.port, sockets.getAndIncrement() == 0);
          } catch (IOException e) {
            throw new UncheckedIOException(e);
          }
        };
    JedisClientConfig config = DefaultJedisClientConfig.builder().build();
    RedisClient client =
        made.add(
            RedisClient.builder()
                .connectionProvider(
                    new PooledConnectionProvider(new ConnectionFactory(factory, config)))
                .build());
    // The name does not fit into Jedis' buffer, so each command is written by itself.
    Mutex lock = made.add(RedisLocks.over(client)).mutex("x".repeat(2 * LONG_WRITE));
    assertThrows(InterruptedException.class, () -> lock.run(LONG, "PING"));
    Server.until(() -> server.number("DBSIZE") == 0);
  }

  @ParameterizedTest
  @EnumSource
  void aSessionThatIsInterruptedLeavesNothing(Driven driven) throws Exception {
    Mutex lock = driven.locks(made, server.port).mutex("k").session();
    assertTrue(storm(() -> lock.acquire(LONG).release()) > 0);
  }

  @ParameterizedTest
  @EnumSource
  void lockInterruptiblyLeavesNothing(Driven driven) throws Exception {
    Lock lock = driven.locks(made, server.port).mutex("k").withoutLease().asLock();
    int ended =
        storm(
            () -> {
              lock.lockInterruptibly();
              lock.unlock();
            });
    assertTrue(ended > 0);
  }

  @ParameterizedTest
  @EnumSource
  void lockAndTryLockAreNotEndedByAnInterrupt(Driven driven) throws Exception {
    Lock lock = driven.locks(made, server.port).mutex("k").withoutLease().asLock();
    Pair locked =
        () -> {
          lock.lock();
          lock.unlock();
        };
    Pair tried =
        () -> {
          assertTrue(lock.tryLock(), "the lock is free");
          lock.unlock();
        };
    assertEquals(0, storm(locked));
    assertEquals(0, storm(tried));
  }

  @ParameterizedTest
  @EnumSource
  void aFutureThatIsCancelledLeavesNothing(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    for (Mutex lock : new Mutex[] {locks.mutex("k").withoutLease(), locks.mutex("k").session()}) {
      for (int round = 0; round < ROUNDS; round++) {
        CompletableFuture<Hold> asked = lock.acquireAsync(LONG);
        spin(round * 1500L);
        if (!asked.cancel(true)) {
          asked.join().release();
        }
      }
      Server.until(() -> server.number("DBSIZE") == 0);
    }
  }

  @ParameterizedTest
  @EnumSource
  void aPoolThatIsShutDownLeavesNothing(Driven driven) throws Exception {
    Mutex lock = driven.locks(made, server.port).mutex("k").withoutLease();
    for (int round = 0; round < 100; round++) {
      ExecutorService pool = Executors.newFixedThreadPool(8);
      for (int each = 0; each < 8; each++) {
        pool.submit(
            () -> {
              for (; ; ) {
                lock.acquire(LONG).release();
              }
            });
      }
      spin(round * 40_000L);
      pool.shutdownNow();
      assertTrue(pool.awaitTermination(30, TimeUnit.SECONDS));
      Server.until(() -> server.number("DBSIZE") == 0);
    }
  }

  @ParameterizedTest
  @EnumSource
  void tryLockTakesAFreeLockInAThreadThatIsInterrupted(Driven driven) throws Exception {
    Lock lock = driven.locks(made, server.port).mutex("k").asLock();
    Thread.currentThread().interrupt();
    boolean isLocked = lock.tryLock();
    assertTrue(Thread.interrupted(), "the interrupt was forgotten");
    assertTrue(isLocked);
    lock.unlock();
    try (Hold other = driven.locks(made, server.port).mutex("k").acquire()) {
      Thread.currentThread().interrupt();
      assertFalse(lock.tryLock());
      assertTrue(Thread.interrupted());
    }
  }
}
