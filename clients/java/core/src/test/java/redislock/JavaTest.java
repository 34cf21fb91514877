package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import java.util.function.Function;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.regex.Pattern;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordedFrame;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What is specific to Java: threads, futures, pools, class paths. */
@Timeout(60)
final class JavaTest {
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
    server.ask("CONFIG", "RESETSTAT");
    made = new Driven.Made();
    threads = Executors.newCachedThreadPool();
  }

  @AfterEach
  void end() throws Exception {
    threads.shutdownNow();
    assertTrue(threads.awaitTermination(10, TimeUnit.SECONDS));
    made.close();
  }

  @ParameterizedTest
  @EnumSource
  void aFutureIsGrantedAndCancelled(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Hold holder = locks.mutex("k").acquireAsync(Duration.ZERO).get(10, TimeUnit.SECONDS);
    CompletableFuture<Hold> late = locks.mutex("k").acquireAsync(Duration.ofMillis(50));
    assertInstanceOf(
        NotAcquiredException.class,
        assertThrows(ExecutionException.class, () -> late.get(10, TimeUnit.SECONDS)).getCause());
    CompletableFuture<Hold> cancelled = locks.mutex("k").acquireAsync(Duration.ofMinutes(1));
    server.untilWaiting("k", 1);
    cancelled.cancel(true);
    server.untilWaiting("k", 0);
    assertThrows(CancellationException.class, cancelled::join);
    // Completed in another way counts as cancelled.
    CompletableFuture<Hold> timed = locks.mutex("k").acquireAsync(Duration.ofMinutes(1));
    server.untilWaiting("k", 1);
    timed.orTimeout(1, TimeUnit.MILLISECONDS);
    server.untilWaiting("k", 0);
    assertInstanceOf(
        TimeoutException.class, assertThrows(ExecutionException.class, timed::get).getCause());
    CompletableFuture<Hold> next = locks.mutex("k").acquireAsync(Duration.ofMinutes(1));
    server.untilWaiting("k", 1);
    holder.release();
    next.get(10, TimeUnit.SECONDS).release();
    assertFalse(server.exists("k"));
  }

  @Test
  void aRequestThatIsCancelledBeforeItsConnectionIsMadeIsNotSent() throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      Hold holder = Driven.LETTUCE.locks(made, server.port).mutex("k").acquire();
      RedisLocks locks = Driven.LETTUCE.locks(made, proxy.port);
      // It waits by message from now on, and so does its next request, immediately.
      assertTrue(locks.mutex("k").tryAcquire(Duration.ofMillis(50)).isEmpty());
      int accepted = proxy.accepted();
      proxy.connectAfter(500);
      server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
      CompletableFuture<Hold> asked = locks.mutex("k").acquireAsync(Duration.ofMinutes(1));
      Server.until(() -> proxy.accepted() > accepted);
      long acquires = proxy.count("LOCK.ACQUIRE k ");
      assertTrue(acquires > 0, proxy.requests()::toString);
      asked.cancel(true);
      // The connection that is made carries later requests, but not the cancelled one.
      locks.mutex("l").acquire().release();
      holder.release();
      Server.until(() -> !server.exists("k"));
      assertEquals(0, server.waiters("k"));
      assertEquals(acquires, proxy.count("LOCK.ACQUIRE k "), proxy.requests()::toString);
    }
  }

  @ParameterizedTest
  @EnumSource
  void futuresThatAreCancelledAtAnyMomentLeaveNothing(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    locks.mutex("k").acquire().release();
    for (int each = 0; each < 200; each++) {
      CompletableFuture<Hold> asked = locks.mutex("k").acquireAsync(Duration.ofSeconds(10));
      long ends = System.nanoTime() + each * 5_000L;
      while (System.nanoTime() < ends) {
        Thread.onSpinWait();
      }
      if (!asked.cancel(true)) {
        asked.get().release();
      }
    }
    Server.until(() -> !server.exists("k") && server.waiters("k") == 0);
  }

  @ParameterizedTest
  @EnumSource
  void anInterruptBeforeAndWhileWaiting(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Hold holder = locks.mutex("k").acquire();
    Thread.currentThread().interrupt();
    assertThrows(InterruptedException.class, () -> locks.mutex("k").acquire());
    assertFalse(Thread.currentThread().isInterrupted());
    server.untilWaiting("k", 0);
    // A release runs to its end and keeps the interrupt for later.
    Thread.currentThread().interrupt();
    holder.close();
    assertTrue(Thread.interrupted());
    assertFalse(server.exists("k"));
  }

  @ParameterizedTest
  @EnumSource
  void aPoolOfOneConnection(Driven driven) throws Exception {
    Driven.Options options = new Driven.Options();
    options.poolSize = 1;
    RedisLocks locks = driven.locks(made, server.port, options);
    Hold holder = locks.mutex("k").acquire();
    List<Future<Long>> all = new ArrayList<>();
    for (int each = 0; each < 10; each++) {
      all.add(
          threads.submit(
              () -> {
                try (Hold hold = locks.mutex("k").acquire()) {
                  hold.extend();
                  return hold.fence();
                }
              }));
    }
    server.untilWaiting("k", 10);
    assertTrue(holder.isHeld());
    holder.release();
    for (Future<Long> each : all) {
      assertTrue(each.get(10, TimeUnit.SECONDS) > holder.fence());
    }
  }

  @ParameterizedTest
  @EnumSource
  void waitersOutliveTheirConnections(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Hold holder = locks.mutex("k").acquire();
    List<Future<Long>> all = new ArrayList<>();
    for (int each = 0; each < 20; each++) {
      all.add(
          threads.submit(
              () -> {
                try (Hold hold = locks.mutex("k").acquire()) {
                  return hold.fence();
                }
              }));
    }
    server.untilWaiting("k", 20);
    for (String type : List.of("normal", "pubsub", "normal")) {
      server.ask("CLIENT", "KILL", "TYPE", type, "SKIPME", "yes");
      server.untilWaiting("k", 20);
    }
    // This one repeats no request: the messages arrive.
    holder.release();
    for (Future<Long> each : all) {
      each.get(10, TimeUnit.SECONDS);
    }
    assertFalse(server.exists("k"));
  }

  @Test
  void lettuceTimeoutsDoNotEndAWaitingSession() throws Exception {
    Driven.Options options = new Driven.Options();
    options.timeout = Duration.ofMillis(600);
    RedisLocks locks = Driven.LETTUCE.locks(made, server.port, options);
    Hold holder = locks.mutex("k").acquire();
    Future<Hold> waiting = threads.submit(() -> locks.mutex("k").session().acquire());
    server.untilWaiting("k", 1);
    Server.until(() -> server.calls("lock.acquire") > 5);
    holder.release();
    waiting.get(10, TimeUnit.SECONDS).release();
  }

  @ParameterizedTest
  @EnumSource
  void aServerThatComesBack(Driven driven) throws Exception {
    int port = Server.freePort();
    try (Server first = new Server(port, true)) {
      RedisLocks locks = driven.locks(made, port);
      locks.mutex("k").acquire().release();
      Hold holder = locks.mutex("k").lease(Duration.ofMinutes(1)).acquire();
      Future<Hold> waiting = threads.submit(() -> locks.mutex("k").acquire());
      first.untilWaiting("k", 1);
      first.kill();
      first.start();
      waiting.get(20, TimeUnit.SECONDS).release();
      assertThrows(LockLostException.class, holder::release);
    }
  }

  @ParameterizedTest
  @EnumSource
  void virtualThreadsWaitAndPinNothing(Driven driven) throws Exception {
    Executor virtual = virtual();
    assumeTrue(virtual != null, "Java 21 and later");
    RedisLocks locks = driven.locks(made, server.port);
    Hold holder = locks.mutex("k").acquire();
    int count = driven == Driven.LETTUCE ? 1000 : 100;
    AtomicInteger done = new AtomicInteger();
    Path file = Files.createTempFile("pinned", ".jfr");
    // Loading a class pins the thread that needs it first, so a wait that times out and one that is
    // granted come first.
    Hold granted = locks.mutex("l").acquire();
    CompletableFuture<Boolean> first = new CompletableFuture<>();
    virtual.execute(
        () -> {
          try (Hold hold = locks.mutex("l").acquire()) {
            first.complete(locks.mutex("k").tryAcquire(Duration.ofMillis(50)).isPresent());
          } catch (InterruptedException e) {
            first.completeExceptionally(e);
          }
        });
    server.untilWaiting("l", 1);
    granted.release();
    assertFalse(first.get(60, TimeUnit.SECONDS));
    try (Recording recording = new Recording()) {
      recording.enable("jdk.VirtualThreadPinned").withThreshold(Duration.ofMillis(1));
      recording.start();
      for (int each = 0; each < count; each++) {
        virtual.execute(
            () -> {
              try (Hold hold = locks.mutex("k").acquire()) {
                done.incrementAndGet();
              } catch (InterruptedException e) {
                throw new IllegalStateException(e);
              }
            });
      }
      server.untilWaiting("k", count);
      if (driven == Driven.LETTUCE) {
        long connections =
            Arrays.stream(server.ask("CLIENT", "LIST").toString().split("\n")).count();
        assertTrue(connections <= 3, connections + " connections");
      }
      holder.release();
      Server.until(() -> done.get() == count);
      recording.stop();
      recording.dump(file);
      if (driven == Driven.LETTUCE) {
        List<RecordedEvent> pinned = new ArrayList<>(RecordingFile.readAllEvents(file));
        pinned.removeIf(JavaTest::loadsAClass);
        assertEquals(List.of(), pinned);
      }
    } finally {
      Files.delete(file);
    }
  }

  private static boolean loadsAClass(RecordedEvent event) {
    return event.getStackTrace() != null
        && event.getStackTrace().getFrames().stream()
            .map(RecordedFrame::getMethod)
            .anyMatch(
                method ->
                    method.getName().equals("<clinit>")
                        || method.getType().getName().endsWith("ClassLoader"));
  }

  private static Executor virtual() {
    try {
      return (Executor) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    } catch (ReflectiveOperationException e) {
      return null;
    }
  }

  @ParameterizedTest
  @EnumSource
  void aLockOfJavaIsOwnedByItsThread(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Lock lock = locks.mutex("k").lease(Duration.ofSeconds(10)).autoRenew().asLock();
    lock.lock();
    assertTrue(lock.tryLock());
    assertEquals(1, server.calls("lock.acquire"));
    assertFalse(threads.submit(() -> lock.tryLock()).get());
    assertInstanceOf(
        IllegalMonitorStateException.class,
        assertThrows(ExecutionException.class, () -> threads.submit(lock::unlock).get())
            .getCause());
    Future<Boolean> waiting =
        threads.submit(
            () -> {
              boolean locked = lock.tryLock(10, TimeUnit.SECONDS);
              lock.unlock();
              return locked;
            });
    server.untilWaiting("k", 1);
    lock.unlock();
    assertTrue(server.exists("k"));
    lock.unlock();
    assertTrue(waiting.get());
    assertThrows(UnsupportedOperationException.class, lock::newCondition);
    lock.lockInterruptibly();
    server.ask("LOCK.BREAK", "k");
    assertThrows(LockLostException.class, lock::unlock);
    assertThrows(IllegalMonitorStateException.class, lock::unlock);
    // An interrupt does not end lock(), and is kept.
    Lock fresh = locks.mutex("k").asLock();
    try (Hold other = locks.mutex("k").acquire()) {
      Thread[] locking = new Thread[1];
      Future<Boolean> kept =
          threads.submit(
              () -> {
                locking[0] = Thread.currentThread();
                fresh.lock();
                fresh.unlock();
                return Thread.interrupted();
              });
      server.untilWaiting("k", 1);
      locking[0].interrupt();
      Server.until(() -> server.calls("lock.cancel") == 1);
      server.untilWaiting("k", 1);
      other.release();
      assertTrue(kept.get(10, TimeUnit.SECONDS));
    }
    // It is not forgotten either if lock() fails.
    server.ask("SET", "k", "text");
    Future<Boolean> refused =
        threads.submit(
            () -> {
              Thread.currentThread().interrupt();
              assertThrows(WrongTypeException.class, fresh::lock);
              return Thread.interrupted();
            });
    assertTrue(refused.get(10, TimeUnit.SECONDS));
  }

  /**
   * With Lettuce a message from the server names the key in JSON; a lost message would cost 4 s.
   */
  @ParameterizedTest
  @EnumSource
  void aGrantIsReportedWhateverCharactersTheKeyHas(Driven driven) throws Exception {
    String name = "\"quoted\\\" \n\u0001 \u00e9 $1";
    RedisLocks locks = driven.locks(made, server.port);
    Hold holder = locks.mutex(name).acquire();
    Future<Hold> waiting = threads.submit(() -> locks.mutex(name).acquire());
    server.untilWaiting(name, 1);
    holder.release();
    waiting.get(3, TimeUnit.SECONDS).release();
  }

  /** The server stands still when the wait ends, so the message that it ended is late. */
  @ParameterizedTest
  @EnumSource
  void aWaitWhoseEndIsReportedLateNamesTheHolder(Driven driven) throws Exception {
    try (Server still = new Server()) {
      RedisLocks locks = driven.locks(made, still.port);
      Hold hold = locks.mutex("k").acquire();
      long ends = System.nanoTime() + Duration.ofSeconds(2).toNanos();
      Future<NotAcquiredException> refused =
          threads.submit(
              () ->
                  assertThrows(
                      NotAcquiredException.class,
                      () -> locks.mutex("k").tellHolder().acquire(Duration.ofSeconds(2))));
      still.untilWaiting("k", 1);
      still.signal("STOP");
      // The client waits for 250 ms longer, and then for a second for the name of the holder.
      Thread.sleep(Math.max(0, (ends - System.nanoTime()) / 1_000_000) + 500);
      still.signal("CONT");
      assertEquals(Optional.of(hold.token()), refused.get(10, TimeUnit.SECONDS).holder());
      hold.release();
    }
  }

  @ParameterizedTest
  @EnumSource
  void aThreadThatEndsWithoutAnUnlockForgetsItsLock(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Thread thread =
        new Thread(() -> locks.mutex("k").lease(Duration.ofSeconds(3)).autoRenew().asLock().lock());
    thread.start();
    thread.join();
    assertTrue(server.exists("k"));
    // Within a third of the lease and a lease; no garbage collection is needed.
    Server.until(() -> !server.exists("k"));
    Thread session =
        new Thread(() -> locks.mutex("s").lease(Duration.ofSeconds(3)).session().asLock().lock());
    session.start();
    session.join();
    Thread token =
        new Thread(() -> locks.reentrant("t").token("shared").autoRenew().asLock().lock());
    token.start();
    token.join();
    // The token is the owner, and any of its threads may hold it.
    Hold kept = locks.reentrant("t").fromToken("shared");
    Server.until(() -> !server.exists("s"));
    assertTrue(kept.isHeld());
    kept.release();
  }

  /** A pool keeps its threads: their locks are renewed as long as they live. */
  @ParameterizedTest
  @EnumSource
  void aLockOfAThreadThatLivesIsRenewed(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Lock lock = locks.mutex("k").lease(Duration.ofMillis(600)).autoRenew().asLock();
    threads.submit(lock::lock).get();
    Server.until(() -> server.calls("lock.renew") > 4);
    assertTrue(server.exists("k"));
  }

  @ParameterizedTest
  @EnumSource
  void theEndOfTheLocksReleasesWhatTheyRenew(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Duration hour = Duration.ofHours(1);
    Hold renewed = locks.mutex("m").lease(hour).autoRenew().acquire();
    locks.all("a", "b").lease(hour).autoRenew().acquire();
    locks.semaphore("s", 3).permits(2).lease(hour).autoRenew().acquire();
    ReentrantMutex reentrant = locks.reentrant("r").lease(hour).autoRenew();
    reentrant.within(reentrant.acquire()).acquire();
    Hold write = locks.readWrite("w").write().lease(hour).autoRenew().acquire();
    Hold read = locks.readWrite("w").read().lease(hour).autoRenew().within(write).acquire();
    Hold interval = locks.mutex("i").autoRenew().atLeast(hour).acquire();
    Hold leased = locks.mutex("leased").lease(hour).acquire();
    locks.close();
    // A hold that is not renewed may have been transferred to another process.
    assertEquals(Set.of("i", "leased"), Set.copyOf(server.list("KEYS", "*")));
    assertTrue(server.number("PTTL", "i") > 3_000_000);
    assertTrue(renewed.isLost() && read.isLost() && interval.isLost());
    assertFalse(leased.isLost());
    // A job that ends later finds the loss.
    assertThrows(LockLostException.class, renewed::close);
    assertThrows(LockLostException.class, write::release);
    assertThrows(IllegalStateException.class, leased::release);
  }

  @ParameterizedTest
  @EnumSource
  void theEndOfTheLocksEndsTheirWaits(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Hold holder = locks.mutex("k").acquire();
    RedisLocks closed = driven.locks(made, server.port);
    List<Future<Hold>> waiting = new ArrayList<>();
    for (Mutex each : List.of(closed.mutex("k"), closed.mutex("k").session())) {
      waiting.add(threads.submit(() -> each.acquire()));
      server.untilWaiting("k", waiting.size());
    }
    CompletableFuture<Hold> later = closed.mutex("k").acquireAsync(Duration.ofMinutes(1));
    server.untilWaiting("k", 3);
    closed.close();
    for (Future<Hold> each : waiting) {
      Throwable error =
          assertThrows(ExecutionException.class, () -> each.get(5, TimeUnit.SECONDS)).getCause();
      assertInstanceOf(IllegalStateException.class, error);
    }
    assertThrows(ExecutionException.class, () -> later.get(5, TimeUnit.SECONDS));
    String before = connectionsReceived();
    assertThrows(IllegalStateException.class, () -> closed.mutex("l").tryAcquire());
    assertThrows(IllegalStateException.class, () -> closed.mutex("l").session().tryAcquire());
    if (driven == Driven.LETTUCE) {
      // Jedis's pool replaces those that were closed.
      assertEquals(before, connectionsReceived());
    }
    server.untilWaiting("k", 0);
    holder.release();
  }

  private static String connectionsReceived() {
    String stats = server.ask("INFO", "stats").toString();
    return stats.lines().filter(each -> each.contains("connections_received")).findAny().get();
  }

  /** Waits over separate connections, after others of their owner, and in pauses. */
  @ParameterizedTest
  @EnumSource
  void theEndOfTheLocksEndsEachWait(Driven driven) throws Exception {
    RedisLocks there = driven.locks(made, server.port);
    there.mutex("k").acquire();
    there.reentrant("r").acquire();
    server.ask("SET", "old", "an old client's");
    Duration minute = Duration.ofMinutes(1);
    Duration hour = Duration.ofHours(1);
    Map<String, Function<RedisLocks, RedisLock<?>>> waits =
        Map.of(
            "plain", locks -> locks.mutex("k"),
            "session", locks -> locks.mutex("k").session(),
            "replicas", locks -> locks.mutex("k").replicas(1, minute),
            "token", locks -> locks.mutex("k").token("me"),
            "owner", locks -> locks.reentrant("r").token("me"),
            "pause", locks -> locks.mutex("old").mixed(minute),
            "count", locks -> locks.mutex("n").replicas(1, minute));
    for (String name : waits.keySet()) {
      RedisLocks locks = driven.locks(made, server.port);
      RedisLock<?> lock = waits.get(name).apply(locks);
      List<String> known = connections(List.of(), "");
      long before = server.calls("lock.acquire");
      List<CompletableFuture<Hold>> waiting = new ArrayList<>();
      waiting.add(lock.acquireAsync(hour));
      if (name.equals("owner")) {
        // It waits for the owner's first one.
        waiting.add(lock.acquireAsync(hour));
      }
      Server.until(
          () ->
              switch (name) {
                case "count" -> server.ask("CLIENT", "LIST").toString().contains("cmd=wait ");
                case "pause" -> server.calls("lock.acquire") > before;
                case "owner" -> server.waiters("r") == 1;
                default -> server.waiters("k") == 1;
              });
      locks.close();
      for (CompletableFuture<Hold> each : waiting) {
        Throwable error =
            assertThrows(ExecutionException.class, () -> each.get(1, TimeUnit.SECONDS), name)
                .getCause();
        assertInstanceOf(IllegalStateException.class, error, name);
      }
      server.untilWaiting("k", 0);
      server.untilWaiting("r", 0);
      Server.until(() -> connections(known, "cmd=subscribe").isEmpty());
    }
  }

  @ParameterizedTest
  @EnumSource
  void closingTheLocksDuringAReplyClosesThem(Driven driven) throws Exception {
    server.ask("SET", "old", "an old client's");
    for (int round = 0; round < 30; round++) {
      RedisLocks locks = driven.locks(made, server.port);
      List<CompletableFuture<Hold>> polling = new ArrayList<>();
      for (int i = 0; i < 4; i++) {
        Mutex mixed = locks.mutex("old").mixed(Duration.ofMillis(1));
        polling.add(mixed.acquireAsync(Duration.ofHours(1)));
      }
      long before = server.calls("lock.acquire");
      Server.until(() -> server.calls("lock.acquire") > before + 20);
      locks.close();
      for (CompletableFuture<Hold> each : polling) {
        Throwable error =
            assertThrows(ExecutionException.class, () -> each.get(5, TimeUnit.SECONDS)).getCause();
        assertInstanceOf(IllegalStateException.class, error);
      }
    }
  }

  @ParameterizedTest
  @EnumSource
  void aConnectionThatOpensAfterTheEndIsClosed(Driven driven) throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      proxy.connectAfter(500);
      List<String> known = connections(List.of(), "");
      RedisLocks locks = driven.locks(made, proxy.port);
      CompletableFuture<Hold> asked = locks.mutex("k").session().acquireAsync(Duration.ZERO);
      // On a busy machine there may be a second attempt.
      Server.until(() -> proxy.accepted() >= 1);
      locks.close();
      assertThrows(ExecutionException.class, () -> asked.get(1, TimeUnit.SECONDS));
      Server.until(() -> proxy.connected() == proxy.accepted());
      Server.until(() -> connections(known, "").isEmpty());
      assertFalse(server.exists("k"));
    }
  }

  @ParameterizedTest
  @EnumSource
  void aConnectionThatComesTooLateEndsNoSession(Driven driven) throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      proxy.connectAfter(7000);
      List<String> known = connections(List.of(), "");
      RedisLocks locks = driven.locks(made, proxy.port);
      CompletableFuture<Hold> asked =
          locks.mutex("k").session().acquireAsync(Duration.ofMinutes(1));
      Server.until(() -> proxy.accepted() == 1);
      proxy.connectAfter(0);
      Hold session = asked.get(20, TimeUnit.SECONDS);
      Server.until(() -> proxy.connected() == proxy.accepted());
      Server.until(() -> connections(known, "").size() == 1);
      assertFalse(session.isLost());
      assertTrue(session.isHeld());
      session.release();
    }
  }

  @ParameterizedTest
  @EnumSource
  void lossesAreReportedAfterTheEndOfTheLocks(Driven driven) throws Exception {
    RedisLocks locks = driven.locks(made, server.port);
    Hold session = locks.mutex("s").session().acquire();
    Hold leased = locks.mutex("k").lease(Duration.ofMillis(2500)).acquire();
    Hold renewed = locks.mutex("r").lease(Duration.ofMillis(2500)).autoRenew().acquire();
    CompletableFuture<?> ofTheLease = leased.lost().toCompletableFuture();
    locks.close();
    session.lost().toCompletableFuture().get(1, TimeUnit.SECONDS);
    assertTrue(session.isLost());
    ofTheLease.get(5, TimeUnit.SECONDS);
    renewed.lost().toCompletableFuture().get(5, TimeUnit.SECONDS);
    Server.until(() -> !server.exists("s") && !server.exists("r"));
  }

  /** The command's reply does not arrive; the caller is interrupted meanwhile. */
  @ParameterizedTest
  @EnumSource
  void anInterruptSendsNoCommandTwice(Driven driven) throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      Hold hold = driven.locks(made, proxy.port).mutex("k").acquire();
      proxy.hold("LOCK.EXEC");
      Thread[] executing = new Thread[1];
      Future<Boolean> executed =
          threads.submit(
              () -> {
                executing[0] = Thread.currentThread();
                assertThrows(RuntimeException.class, () -> hold.exec("INCR", "n"));
                return Thread.interrupted();
              });
      Server.until(() -> "1".equals(server.ask("GET", "n")));
      executing[0].interrupt();
      assertTrue(executed.get(10, TimeUnit.SECONDS));
      assertEquals("1", server.ask("GET", "n"));
      hold.release();
    }
  }

  /** The addresses of new connections with these words in their line of CLIENT LIST. */
  private static List<String> connections(List<String> known, String with) {
    return server
        .ask("CLIENT", "LIST")
        .toString()
        .lines()
        .filter(each -> each.contains(with))
        .map(each -> each.split(" ")[1])
        .filter(each -> !known.contains(each))
        .toList();
  }

  /** A program without one of the two libraries, and without the annotations. */
  @ParameterizedTest
  @EnumSource
  void theOtherLibraryIsNotNeeded(Driven driven) throws Exception {
    String missing = driven == Driven.LETTUCE ? "jedis" : "lettuce";
    String path =
        Arrays.stream(System.getProperty("java.class.path").split(java.io.File.pathSeparator))
            .filter(each -> !each.contains(missing) && !each.contains("jspecify"))
            .collect(java.util.stream.Collectors.joining(java.io.File.pathSeparator));
    String program = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    Process process =
        new ProcessBuilder(program, "-cp", path, OneLibrary.class.getName(), "" + server.port)
            .redirectErrorStream(true)
            .start();
    String printed =
        new String(
            process.getInputStream().readAllBytes(), java.nio.charset.StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), printed);
    assertTrue(printed.contains("held by " + driven), printed);
    assertFalse(server.exists("k"));
  }

  /** The program. */
  static final class OneLibrary {
    public static void main(String[] arguments) throws Exception {
      for (Class<?> each : List.of(RedisLocks.class, RedisLock.class, Mutex.class, Hold.class)) {
        // As frameworks inspect beans.
        each.getDeclaredMethods();
      }
      String driven = isThere("redis.clients.jedis.UnifiedJedis") ? "JEDIS" : "LETTUCE";
      if (isThere("io.lettuce.core.RedisClient") && driven.equals("JEDIS")) {
        throw new IllegalStateException("both are there");
      }
      Class<?> type =
          Class.forName(
              driven.equals("JEDIS")
                  ? "redis.clients.jedis.RedisClient"
                  : "io.lettuce.core.RedisClient");
      try (AutoCloseable client =
              (AutoCloseable)
                  type.getMethod("create", String.class)
                      .invoke(null, "redis://127.0.0.1:" + arguments[0]);
          RedisLocks locks = RedisLocks.over(client);
          Hold hold = locks.mutex("k").acquire()) {
        System.out.println("held by " + driven + ", fence " + hold.fence());
      }
    }

    private static boolean isThere(String name) {
      try {
        Class.forName(name, false, OneLibrary.class.getClassLoader());
        return true;
      } catch (ClassNotFoundException e) {
        return false;
      }
    }
  }

  @Test
  void theFirstExampleOfTheReadme(@TempDir Path folder) throws Exception {
    Readme.compile("First", folder, server.port);
    Process process = Readme.start(folder, "First");
    String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), printed);
    assertTrue(Pattern.compile("held, fence \\d+").matcher(printed).find(), printed);
    assertFalse(server.exists("report"));
  }

  @Test
  void theProgramOfThePageThatBegins(@TempDir Path folder) throws Exception {
    Path page = Path.of("..", "..", "..", "docs", "start.md");
    Readme.compile(page, "Report", folder, server.port);
    Process process = Readme.start(folder, "Report");
    String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), printed);
    assertTrue(Pattern.compile("under fence \\d+").matcher(printed).find(), printed);
  }

  @Test
  void theLeaderOfTheRecipesQueuesAgainAfterARefusal(@TempDir Path folder) throws Exception {
    Path page = Path.of("..", "..", "..", "docs", "recipes.md");
    Readme.compile(page, "Scheduler", folder, server.port);
    Path tick = folder.resolve("tick");
    Files.writeString(tick, "#!/bin/sh\necho tick >>ticks\n");
    assertTrue(tick.toFile().setExecutable(true));
    Hold old = Driven.JEDIS.locks(made, server.port).mutex("scheduler").autoRenew().acquire();
    Process process = Readme.start(folder, "Scheduler", "web-2");
    try {
      server.untilWaiting("scheduler", 1);
      server.ask("CONFIG", "SET", "lock.max-waiters", 0);
      server.ask("LOCK.CANCEL", "scheduler", "web-2");
      var printed = process.inputReader();
      assertTrue(printed.readLine().contains("asking again in 5 s"));
      // Also by a full queue.
      assertTrue(printed.readLine().contains("MaxWaitersException"));
      server.ask("CONFIG", "SET", "lock.max-waiters", 1000);
      server.untilWaiting("scheduler", 1);
      assertFalse(Files.exists(folder.resolve("ticks")));
      old.release();
      Server.until(() -> Files.exists(folder.resolve("ticks")));
      server.ask("LOCK.BREAK", "scheduler");
      assertTrue(process.waitFor(20, TimeUnit.SECONDS));
      assertEquals(1, process.exitValue());
    } finally {
      process.destroyForcibly();
      server.ask("CONFIG", "SET", "lock.max-waiters", 1_000_000);
    }
  }

  @Test
  void textsForLogsAndMessages() throws Exception {
    RedisLocks locks = Driven.LETTUCE.locks(made, server.port);
    Mutex mutex = locks.mutex("m").autoRenew().atLeast(Duration.ofMinutes(1));
    assertEquals("mutex \"m\" (lease PT30S, autoRenew, atLeast PT1M)", mutex.toString());
    assertEquals("asLock of " + mutex, mutex.asLock().toString());
    Semaphore semaphore = locks.semaphore("s", 3).permits(2).withoutLease();
    assertEquals("semaphore \"s\" (withoutLease, permits 2)", semaphore.toString());
    Hold hold = locks.readWrite("w").read().token("me").acquire();
    String text = "hold of \"w\", fence " + hold.fence() + ", me, ";
    assertEquals(text + "held", hold.toString());
    hold.release();
    assertEquals(text + "released", hold.toString());
    Hold lost = locks.mutex("k").token("me").acquire();
    server.ask("LOCK.BREAK", "k");
    assertThrows(LockLostException.class, lost::extend);
    assertEquals("hold of \"k\", fence " + lost.fence() + ", me, lost", lost.toString());
    Map<String, RedisLock<?>> kinds =
        Map.of(
            "the key is a mutex: use locks.mutex", locks.mutex("1"),
            "the key is a reentrant mutex: use locks.reentrant", locks.reentrant("2"),
            "the key is a read/write lock: use locks.readWrite", locks.readWrite("3").read(),
            "the key is a semaphore: use locks.semaphore", locks.semaphore("4", 2));
    for (Map.Entry<String, RedisLock<?>> each : kinds.entrySet()) {
      String name = each.getValue().name();
      each.getValue().acquire();
      RedisLock<?> other = name.equals("1") ? locks.semaphore(name, 2) : locks.mutex(name);
      String message = assertThrows(WrongKindException.class, () -> other.acquire()).getMessage();
      assertEquals(each.getKey(), message);
    }
  }

  @Test
  void anotherKindOfClientIsRefused() {
    assertThrows(IllegalArgumentException.class, () -> RedisLocks.over(() -> {}));
  }

  @ParameterizedTest
  @EnumSource
  void theLocksThatAreClosedLeaveTheClientOpen(Driven driven) throws Exception {
    try (AutoCloseable client = driven.client(server.port, new Driven.Options())) {
      try (RedisLocks locks = RedisLocks.over(client)) {
        locks.mutex("k").acquire().release();
      }
      try (RedisLocks locks = RedisLocks.over(client)) {
        locks.mutex("k").acquire().release();
      }
    }
  }

  /** Like in a context whose Redis client is closed before its locks. */
  @Test
  void aClientThatIsClosedFirstIsNotClosedTwice() throws Exception {
    List<String> warnings = new CopyOnWriteArrayList<>();
    Logger logger = Logger.getLogger("io.lettuce.core.RedisChannelHandler");
    Handler handler =
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
    AutoCloseable client = Driven.LETTUCE.client(server.port, new Driven.Options());
    try (RedisLocks locks = RedisLocks.over(client)) {
      locks.mutex("k").acquire();
      assertTrue(locks.mutex("k").tryAcquire(Duration.ofMillis(50)).isEmpty());
      Hold session = locks.mutex("s").session().acquire();
      logger.addHandler(handler);
      client.close();
      session.lost().toCompletableFuture().get(10, TimeUnit.SECONDS);
    } finally {
      logger.removeHandler(handler);
    }
    assertEquals(List.of(), warnings);
  }
}
