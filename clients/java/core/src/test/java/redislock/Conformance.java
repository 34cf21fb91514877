package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** The cases of clients/conformance.md, by name, over one of the libraries. */
abstract class Conformance extends Cases {
  Conformance(Driven driven) {
    super(driven);
  }

  static final class OverLettuceTest extends Conformance {
    OverLettuceTest() {
      super(Driven.LETTUCE);
    }
  }

  static final class OverJedisTest extends Conformance {
    OverJedisTest() {
      super(Driven.JEDIS);
    }
  }

  @Test
  void acquire() throws Exception {
    for (boolean resp2 : new boolean[] {true, false}) {
      Driven.Options options = new Driven.Options();
      options.resp2 = resp2;
      RedisLocks locks = driven.locks(made, server.port, options);
      long before;
      try (Hold hold = locks.mutex("k").acquire()) {
        before = hold.fence();
        assertTrue(before > 0 && before < 1L << 53);
        assertTrue(hold.token().matches(".*:\\d+:[0-9a-f]{16}"), hold.token());
        assertTrue(hold.token().length() <= 38);
        assertEquals(hold.token(), info("k").holders().get(0).owner());
        Duration left = hold.remaining().orElseThrow();
        assertTrue(left.toMillis() > 0 && left.compareTo(ms(30_000)) <= 0);
        assertTrue(locks.mutex("k").tryAcquire().isEmpty());
        assertTrue(locks.mutex("k").isLocked());
        assertTrue(hold.isHeld());
      }
      assertFalse(server.exists("k"));
      try (Hold hold = locks.mutex("k").withoutLease().acquire()) {
        assertTrue(hold.fence() > before);
        assertTrue(hold.remaining().isEmpty());
        assertEquals(-1L, server.number("PTTL", "k"));
      }
      ReentrantMutex reentrant = locks.reentrant("r");
      try (Hold outer = reentrant.acquire();
          Hold inner = reentrant.within(outer).acquire()) {
        assertEquals(outer.fence(), inner.fence());
        assertEquals(2, inner.holds());
        assertTrue(reentrant.tryAcquire().isEmpty());
        inner.close();
        assertEquals(1, info("r").holders().get(0).holds());
      }
      ReadWriteLocks both = locks.readWrite("w");
      try (Hold reader = both.read().acquire();
          Hold other = both.read().acquire()) {
        assertTrue(both.write().tryAcquire().isEmpty());
        other.close();
        try (Hold writer = both.write().within(reader).acquire()) {
          assertTrue(writer.fence() > reader.fence());
        }
      }
      Semaphore semaphore = locks.semaphore("s", 3).permits(2);
      try (Hold two = semaphore.acquire()) {
        assertEquals(2, two.holds());
        assertTrue(semaphore.tryAcquire().isEmpty());
        assertTrue(locks.semaphore("s", 3).tryAcquire().isPresent());
      }
      try (Hold several = locks.all("m1", "m2").acquire()) {
        assertTrue(locks.mutex("m2").tryAcquire().isEmpty());
        assertEquals(several.fence(), info("m1").fence());
      }
      assertFalse(
          server.exists("m1") || server.exists("m2") || server.exists("r") || server.exists("w"));
      server.ask("FLUSHALL");
    }
  }

  @Test
  void acquireSendsTheBytesOfThePage() throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      locks.mutex("k").token("worker-1").acquire(Duration.ZERO).extend(ms(60_000));
      locks.mutex("k").fromToken("worker-1").release();
      locks.mutex("k").withoutLease().token("worker-3").tryAcquire().orElseThrow().release();
      ReentrantMutex reentrant = locks.reentrant("r").token("worker-1");
      Hold first = reentrant.acquire(Duration.ZERO);
      Hold second = reentrant.acquire(Duration.ZERO);
      second.release();
      first.release();
      Hold read = locks.readWrite("w").read().token("worker-1").acquire(Duration.ZERO);
      Hold write = locks.readWrite("w").write().within(read).acquire(Duration.ZERO);
      write.release();
      read.extend();
      read.release();
      locks.semaphore("s", 3).permits(2).token("worker-1").acquire(Duration.ZERO).release();
      locks.semaphore("s", 3).slots().token("worker-1").acquire(Duration.ZERO).release();
      Hold several = locks.all("m1", "m2").token("worker-1").acquire(Duration.ZERO);
      several.extend();
      several.exec("SET", "v", "held");
      several.release();
      List<String> sent =
          proxy.requests().stream().filter(each -> each.matches("(R|RW|M)?LOCK.*|SEM.*")).toList();
      assertEquals(
          List.of(
              "LOCK.ACQUIRE k worker-1 PX 30000",
              "LOCK.RENEW k worker-1 PX 60000",
              "LOCK.HELD k worker-1",
              "LOCK.RELEASE k worker-1",
              "LOCK.ACQUIRE k worker-3 PERSIST",
              "LOCK.RELEASE k worker-3",
              "RLOCK.ACQUIRE r worker-1 HOLDS 1 PX 30000",
              "RLOCK.ACQUIRE r worker-1 HOLDS 2 PX 30000",
              "RLOCK.RELEASE r worker-1 HOLDS 1",
              "RLOCK.RELEASE r worker-1 HOLDS 0",
              "RWLOCK.ACQUIRE w worker-1 READ HOLDS 1 PX 30000",
              "RWLOCK.ACQUIRE w worker-1 WRITE HOLDS 1 PX 30000",
              "LOCK.HELD w worker-1",
              "RWLOCK.RELEASE w worker-1 WRITE HOLDS 0",
              "RWLOCK.RENEW w worker-1 PX 30000",
              "RWLOCK.RELEASE w worker-1 READ HOLDS 0",
              "SEM.ACQUIRE s worker-1 LIMIT 3 HOLDS 2 PX 30000",
              "SEM.RELEASE s worker-1 HOLDS 0",
              "SEM.ACQUIRE s worker-1 LIMIT 3 SLOT PX 30000",
              "SEM.RELEASE s worker-1 HOLDS 0",
              "MLOCK.ACQUIRE 2 m1 m2 worker-1 PX 30000",
              "MLOCK.RENEW 2 m1 m2 worker-1 PX 30000",
              "LOCK.EXEC m1 worker-1 SET v held",
              "MLOCK.RELEASE 2 m1 m2 worker-1"),
          sent);
    }
  }

  @Test
  void acquireOverASlowConnectionIsNotLost() throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      proxy.connectAfter(1500);
      for (boolean waits : new boolean[] {false, true}) {
        Mutex mutex = driven.locks(made, proxy.port).mutex("k").lease(ms(1000)).autoRenew();
        try (Hold hold = waits ? mutex.acquire() : mutex.tryAcquire().orElseThrow()) {
          Thread.sleep(1500);
          assertFalse(hold.isLost());
          assertTrue(hold.isHeld());
        }
      }
    }
  }

  @Test
  void acquireWithoutWaitingEndsIfNothingAnswers() throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      locks.mutex("k").acquire().close();
      proxy.silent(true);
      long ms =
          timed(() -> assertThrows(RuntimeException.class, () -> locks.mutex("k").tryAcquire()));
      assertTrue(ms < 12_000, ms + " ms");
    }
  }

  @Test
  void waitIsGrantedByTheReleaseAndEndsInTime() throws Exception {
    Hold holder = locks.mutex("k").acquire();
    Future<Hold> waiting = beside(() -> locks.mutex("k").acquire(ms(10_000)));
    server.untilWaiting("k", 1);
    holder.release();
    try (Hold second = of(waiting)) {
      assertTrue(second.fence() > holder.fence());
      long ms = timed(() -> assertTrue(locks.mutex("k").tryAcquire(ms(300)).isEmpty()));
      assertTrue(ms >= 300 && ms < 2300, ms + " ms");
      ms =
          timed(
              () ->
                  assertThrows(
                      NotAcquiredException.class, () -> locks.mutex("k").acquire(ms(200))));
      assertTrue(ms >= 200 && ms < 2200, ms + " ms");
    }
    // The end of a lease grants the waiter too.
    locks.mutex("k").acquire();
    Future<Hold> last = beside(() -> locks.mutex("k").acquire());
    server.untilWaiting("k", 1);
    server.ask("PEXPIRE", "k", 50);
    of(last).release();
  }

  @Test
  void waitContinuesWithItsNextRequest() throws Exception {
    Hold holder = locks.mutex("k").acquire();
    Future<Hold> waiting = beside(() -> locks.mutex("k").acquire(ms(20_000)));
    Server.until(() -> server.calls("lock.acquire") >= (driven == Driven.LETTUCE ? 4 : 3));
    holder.release();
    of(waiting).release();
  }

  @Test
  void waitEndsInTimeOnASilentNetwork() throws Exception {
    try (Proxy proxy = new Proxy(server.port);
        Hold holder = locks.mutex("k").acquire()) {
      RedisLocks locks = driven.locks(made, proxy.port);
      Future<Long> waiting =
          beside(
              () ->
                  timed(
                      () ->
                          assertThrows(
                              RuntimeException.class, () -> locks.mutex("k").acquire(ms(1500)))));
      server.untilWaiting("k", 1);
      proxy.silent(true);
      long ms = of(waiting);
      assertTrue(ms >= 1500 && ms < 3700, ms + " ms");
      proxy.silent(false);
    }
  }

  @Test
  void waitEndsWithAnErrorOfItsOwn() throws Exception {
    Hold mine = locks.mutex("k").token("me").acquire();
    Future<Hold> cancelled = beside(() -> locks.mutex("k").token("you").acquire());
    server.untilWaiting("k", 1);
    assertEquals(1L, server.number("LOCK.CANCEL", "k", "you"));
    assertInstanceOf(WaitCancelledException.class, failure(cancelled));
    Hold yours = locks.mutex("j").token("you").acquire();
    Future<Hold> waiting = beside(() -> locks.mutex("k").token("you").acquire());
    server.untilWaiting("k", 1);
    DeadlockException deadlock =
        assertThrows(DeadlockException.class, () -> locks.mutex("j").token("me").acquire());
    assertTrue(deadlock.getMessage().contains("'me' waits for 'you'"), deadlock.getMessage());
    server.ask("CONFIG", "SET", "lock.max-waiters", 1);
    try {
      assertThrows(MaxWaitersException.class, () -> locks.mutex("k").acquire());
    } finally {
      server.ask("CONFIG", "SET", "lock.max-waiters", 10_000);
    }
    server.ask("SET", "k", "else");
    assertInstanceOf(WrongTypeException.class, failure(waiting));
    yours.release();
    assertThrows(LockLostException.class, mine::release);
  }

  @Test
  void waitOutlastsAGraceAndServersThatRefuseWrites() throws Exception {
    try (Server graceful = new Server("lock.grace 600000")) {
      RedisLocks locks = driven.locks(made, graceful.port);
      assertTrue(locks.mutex("k").tryAcquire().isEmpty());
      Future<Hold> waiting = beside(() -> locks.mutex("k").acquire());
      graceful.untilWaiting("k", 1);
      graceful.ask("CONFIG", "SET", "lock.grace", 0);
      Hold hold = of(waiting);
      graceful.ask("CONFIG", "SET", "min-replicas-to-write", 1);
      Future<Object> releasing =
          beside(
              () -> {
                hold.release();
                return null;
              });
      Server.until(() -> graceful.calls("lock.release") + rejected(graceful, "lock.release") > 1);
      graceful.ask("CONFIG", "SET", "min-replicas-to-write", 0);
      of(releasing);
      assertFalse(graceful.exists("k"));
    }
  }

  static long rejected(Server server, String command) {
    for (String line : server.ask("INFO", "commandstats").toString().split("\r\n")) {
      if (line.startsWith("cmdstat_" + command + ":")) {
        return Long.parseLong(line.replaceAll(".*rejected_calls=(\\d+).*", "$1"));
      }
    }
    return 0;
  }

  @Test
  void order() throws Exception {
    Hold holder = locks.mutex("k").acquire();
    List<Integer> granted = new CopyOnWriteArrayList<>();
    List<Future<Object>> all = new ArrayList<>();
    for (int each = 0; each < 5; each++) {
      int number = each;
      all.add(
          beside(
              () -> {
                try (Hold hold = locks.mutex("k").acquire()) {
                  granted.add(number);
                }
                return null;
              }));
      server.untilWaiting("k", number + 1);
    }
    assertTrue(locks.mutex("k").tryAcquire().isEmpty());
    holder.release();
    for (Future<Object> each : all) {
      of(each);
    }
    assertEquals(List.of(0, 1, 2, 3, 4), granted);
  }

  @Test
  void positionKeptOverShortSockets() throws Exception {
    Driven.Options options = new Driven.Options();
    options.timeout = ms(600);
    RedisLocks hasty = driven.locks(made, server.port, options);
    locks.mutex("k").token("holder").acquire();
    Future<Hold> early = beside(() -> hasty.mutex("k").token("early").acquire());
    server.untilWaiting("k", 1);
    Future<Hold> late = beside(() -> locks.mutex("k").token("late").acquire());
    server.untilWaiting("k", 2);
    long asked = server.calls("lock.acquire");
    Thread.sleep(1500);
    Server.until(() -> server.waiters("k") == 2);
    assertEquals(
        "early",
        ((List<?>) server.list("LOCK.WAITERS", "k").get(0)).get(1),
        "after " + asked + " requests");
    Server.until(() -> server.releaseBeforeTwo("k", "holder"));
    of(early).release();
    of(late).release();
  }

  @Test
  void lostReplyOfAcquire() throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      for (int bytes : new int[] {0, 3}) {
        proxy.cut("LOCK.ACQUIRE", bytes);
        try (Hold hold = locks.mutex("k").acquire()) {
          assertTrue(proxy.hasCut());
          assertEquals(1, info("k").holding());
        }
        ReentrantMutex reentrant = locks.reentrant("r");
        proxy.cut("RLOCK.ACQUIRE", bytes);
        Hold outer = reentrant.tryAcquire().orElseThrow();
        assertTrue(proxy.hasCut());
        proxy.cut("RLOCK.ACQUIRE", bytes);
        Hold inner = reentrant.within(outer).acquire();
        assertEquals(2, info("r").holders().get(0).holds());
        proxy.cut("SEM.ACQUIRE", bytes);
        Hold permits = locks.semaphore("s", 5).permits(2).acquire();
        assertEquals(2, info("s").holders().get(0).holds());
        permits.release();
        inner.release();
        outer.release();
        assertEquals(0L, server.number("DBSIZE"));
      }
      // A grant after a wait.
      Hold holder = this.locks.mutex("k").acquire();
      Future<Hold> waiting = beside(() -> locks.mutex("k").acquire());
      server.untilWaiting("k", 1);
      proxy.cut("LOCK.ACQUIRE", 0);
      proxy.closeAll();
      Server.until(() -> proxy.hasCut() && server.waiters("k") == 1);
      holder.release();
      of(waiting).release();
      assertFalse(server.exists("k"));
    }
  }

  @Test
  void lostReplyOfRelease() throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      Hold hold = locks.mutex("k").acquire();
      proxy.cut("LOCK.RELEASE", 0);
      hold.release();
      assertTrue(proxy.hasCut());
      assertEquals(2, proxy.count("LOCK.RELEASE"));
      Hold outer = locks.reentrant("r").acquire();
      Hold inner = locks.reentrant("r").within(outer).acquire();
      proxy.cut("RLOCK.RELEASE", 0);
      inner.release();
      assertEquals(1, info("r").holders().get(0).holds());
      proxy.cut("RLOCK.RELEASE", 0);
      outer.release();
      proxy.cut("MLOCK.RELEASE", 0);
      locks.all("a", "b").acquire().close();
      assertEquals(0L, server.number("DBSIZE"));
      Hold broken = locks.mutex("k").acquire();
      assertEquals(1L, server.number("LOCK.BREAK", "k"));
      assertThrows(LockLostException.class, broken::release);
    }
  }

  @Test
  void cancellationLeavesNothing() throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      Hold holder = this.locks.mutex("k").acquire();
      AtomicReference<Throwable> ended = new AtomicReference<>();
      Thread queued = waiter(locks, ended);
      server.untilWaiting("k", 1);
      long ms =
          timed(
              () -> {
                queued.interrupt();
                queued.join();
              });
      assertInstanceOf(InterruptedException.class, ended.get());
      assertTrue(ms < 2000, ms + " ms");
      server.untilWaiting("k", 0);
      assertEquals(1, proxy.count("LOCK.CANCEL"));
      // Its grant is on the way.
      Thread granted = waiter(locks, ended);
      server.untilWaiting("k", 1);
      proxy.silent(true);
      String token = (String) ((List<?>) server.list("LOCK.WAITERS", "k").get(0)).get(1);
      holder.release();
      Server.until(() -> server.ask("LOCK.HELD", "k", token) != null);
      ms =
          timed(
              () -> {
                granted.interrupt();
                granted.join();
              });
      assertTrue(ms < 2000, ms + " ms");
      proxy.silent(false);
      Server.until(() -> !server.exists("k"));
      // An earlier hold is kept.
      Hold outer = locks.reentrant("r").acquire();
      proxy.hold("RLOCK.ACQUIRE");
      CompletableFuture<Hold> inner = locks.reentrant("r").within(outer).acquireAsync(LONG);
      Server.until(() -> holds("r") == 2);
      inner.cancel(true);
      proxy.hold(null);
      if (driven == Driven.LETTUCE) {
        proxy.closeAll(); // The proxy holds back the shared connection indefinitely.
      }
      Server.until(() -> holds("r") == 1);
      outer.release();
    }
  }

  int holds(String name) {
    try {
      return info(name).holders().get(0).holds();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  static Thread waiter(RedisLocks locks, AtomicReference<Throwable> ended) {
    ended.set(null);
    Thread thread =
        new Thread(
            () -> {
              try {
                locks.mutex("k").lease(Duration.ofMinutes(10)).acquire();
              } catch (InterruptedException | RuntimeException e) {
                ended.set(e);
              }
            });
    thread.start();
    return thread;
  }

  @Test
  void renewalStopsWithTheLock() throws Exception {
    Hold hold = locks.mutex("k").lease(ms(900)).autoRenew().acquire();
    Server.until(() -> server.calls("lock.renew") >= 4);
    assertFalse(hold.isLost());
    Duration left = hold.remaining().orElseThrow();
    assertTrue(left.toMillis() > 0 && left.toMillis() <= 900);
    hold.release();
    long renewals = server.calls("lock.renew");
    Thread.sleep(700);
    assertEquals(renewals, server.calls("lock.renew"));
    forget();
    Server.until(
        () -> {
          System.gc();
          return !server.exists("k");
        });
  }

  private void forget() throws InterruptedException {
    locks.mutex("k").lease(ms(300)).autoRenew().acquire();
  }

  @Test
  void lossIsReported() throws Exception {
    AtomicInteger reported = new AtomicInteger();
    Hold renewed = locks.mutex("k").lease(ms(900)).autoRenew().acquire();
    renewed.lost().thenRun(reported::incrementAndGet);
    server.ask("LOCK.BREAK", "k");
    Server.until(() -> reported.get() == 1);
    assertTrue(renewed.isLost());
    assertThrows(LockLostException.class, renewed::release);
    Hold over = locks.mutex("k").lease(ms(200)).acquire();
    over.lost().thenRun(reported::incrementAndGet);
    Server.until(() -> reported.get() == 2);
    assertTrue(over.isLost());
    assertThrows(LockLostException.class, over::close);
    try (Proxy proxy = new Proxy(server.port)) {
      Hold gone = driven.locks(made, proxy.port).mutex("k").lease(ms(900)).autoRenew().acquire();
      gone.lost().thenRun(reported::incrementAndGet);
      proxy.silent(true);
      long ms = timed(() -> Server.until(() -> reported.get() == 3));
      assertTrue(ms < 2500, ms + " ms");
      proxy.silent(false);
    }
    Thread.sleep(100);
    assertEquals(3, reported.get());
  }

  @Test
  void aKnownLossIsReportedWhateverTheServerStillHolds() throws Exception {
    for (Mutex each : List.of(locks.mutex("k"), locks.mutex("k").atLeast(ms(500)))) {
      Hold hold = each.lease(ms(400)).acquire();
      server.ask("PEXPIRE", "k", 60_000);
      Server.until(hold::isLost);
      assertThrows(LockLostException.class, hold::release);
      Server.until(() -> !server.exists("k"));
    }
  }

  @Test
  void readThatIsLostWhileWriteWaitsIsReportedAtTheGrant() throws Exception {
    ReadWriteLocks both = locks.readWrite("w");
    Hold reader = both.read().acquire();
    Hold other = both.read().acquire();
    Future<Hold> upgrade = beside(() -> both.write().within(reader).acquire());
    server.untilWaiting("w", 1);
    assertEquals(1L, server.number("LOCK.BREAK", "w", "OWNER", reader.token()));
    other.release();
    assertInstanceOf(LockLostException.class, failure(upgrade));
    Server.until(() -> !server.exists("w"));
  }

  @Test
  void session() throws Exception {
    Hold hold = locks.mutex("k").lease(ms(1200)).session().acquire();
    Thread.sleep(3000);
    assertEquals(0, server.calls("lock.renew"));
    assertFalse(hold.isLost());
    long client = info("k").holders().get(0).session().orElseThrow();
    hold.release();
    Server.until(() -> !server.ask("CLIENT", "LIST").toString().contains("id=" + client + " "));
    Hold killed = locks.mutex("k").lease(Duration.ofSeconds(600)).session().acquire();
    AtomicInteger reported = new AtomicInteger();
    killed.lost().thenRun(reported::incrementAndGet);
    long id = info("k").holders().get(0).session().orElseThrow();
    long ms =
        timed(
            () -> {
              server.ask("CLIENT", "KILL", "ID", id);
              Server.until(() -> reported.get() == 1);
            });
    assertTrue(ms < 1000, ms + " ms");
    assertThrows(LockLostException.class, killed::release);
    assertFalse(server.exists("k"));
    // It waits like any other.
    Hold holder = locks.mutex("k").acquire();
    Future<Hold> waiting = beside(() -> locks.mutex("k").session().acquire());
    server.untilWaiting("k", 1);
    holder.release();
    of(waiting).release();
  }

  @Test
  void replicas() throws Exception {
    try (Server replica = new Server("replicaof 127.0.0.1 " + server.port)) {
      Server.until(() -> server.ask("INFO", "replication").toString().contains("state=online"));
      try (Hold hold = locks.mutex("k").replicas(1, Duration.ofSeconds(10)).acquire()) {
        assertEquals(hold.fence(), ((List<?>) replica.ask("LOCK.HELD", "k", hold.token())).get(0));
        assertEquals(1, server.calls("wait"));
      }
      assertThrows(
          NotReplicatedException.class, () -> locks.mutex("k").replicas(2, ms(50)).acquire());
      Server.until(() -> !server.exists("k"));
    }
  }

  @Test
  void exec() throws Exception {
    Hold hold = locks.mutex("k").acquire();
    assertEquals("OK", hold.exec("SET", "v", "held"));
    assertEquals("held", hold.exec("GET", "v"));
    assertNull(hold.exec("GET", "nothing"));
    RuntimeException wrong = assertThrows(RuntimeException.class, () -> hold.exec("INCR", "v"));
    assertTrue(wrong.getMessage().contains("not an integer"), wrong.getMessage());
    hold.exec("HSET", "h", "f", "1");
    assertEquals(List.of("f", "1"), hold.exec("HGETALL", "h"));
    assertThrows(RuntimeException.class, () -> hold.exec("INCR", "h"));
    assertFalse(hold.isLost());
    server.ask("LOCK.BREAK", "k");
    assertThrows(LockLostException.class, () -> hold.exec("SET", "v", "lost"));
    assertTrue(hold.isLost());
    assertEquals("held", server.ask("GET", "v"));
  }

  @Test
  void execWhoseReplyIsLostRunsOnce() throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      Hold hold = driven.locks(made, proxy.port).mutex("k").acquire();
      proxy.cut("LOCK.EXEC", 0);
      assertThrows(RuntimeException.class, () -> hold.exec("INCR", "n"));
      assertTrue(proxy.hasCut());
      hold.release();
      assertEquals("1", server.ask("GET", "n"));
    }
  }

  @Test
  void serverWithoutTheModule() throws Exception {
    try (Server bare = new Server(Server.ANY_PORT, false)) {
      RedisLocks locks = driven.locks(made, bare.port);
      List<RedisLock<?>> all =
          List.of(
              locks.mutex("k"),
              locks.reentrant("r"),
              locks.readWrite("w").read(),
              locks.semaphore("s", 5),
              locks.all("a", "b"));
      for (RedisLock<?> each : all) {
        ModuleNotLoadedException error =
            assertThrows(ModuleNotLoadedException.class, () -> each.acquire(ms(500)));
        assertTrue(
            error.getMessage().contains("loadmodule /path/to/libredis_lock.so"),
            error.getMessage());
        assertThrows(ModuleNotLoadedException.class, each::tryAcquire);
      }
    }
  }

  @Test
  void keyBecameSomethingElse() throws Exception {
    Hold hold = locks.mutex("k").acquire();
    Hold several = locks.all("a", "b").acquire();
    server.ask("SET", "k", "else");
    server.ask("SET", "a", "else");
    assertThrows(LockLostException.class, hold::extend);
    assertThrows(LockLostException.class, hold::release);
    assertThrows(LockLostException.class, several::release);
    Server.until(() -> !server.exists("b"));
    for (Duration wait : new Duration[] {Duration.ZERO, ms(2000)}) {
      WrongTypeException error =
          assertThrows(WrongTypeException.class, () -> locks.mutex("k").acquire(wait));
      assertTrue(
          error.getMessage().contains("is a string") && error.getMessage().contains("mixed"),
          error.getMessage());
    }
    assertEquals("else", server.ask("GET", "k"));
    // An old client and a new one exclude each other.
    Mutex mixed = locks.mutex("k").mixed(ms(20));
    assertTrue(mixed.tryAcquire(ms(100)).isEmpty());
    Future<Hold> waiting = beside(() -> mixed.acquire());
    server.ask("DEL", "k");
    try (Hold mine = of(waiting)) {
      assertNull(server.ask("SET", "k", "old", "NX", "PX", 30_000));
    }
    Hold reentrant = locks.reentrant("r").acquire();
    assertThrows(WrongKindException.class, () -> locks.mutex("r").tryAcquire());
    reentrant.release();
  }

  @Test
  void noPolling() throws Exception {
    Hold holder = locks.mutex("k").acquire();
    AtomicInteger held = new AtomicInteger();
    List<Future<Object>> all = new ArrayList<>();
    for (int each = 0; each < 100; each++) {
      all.add(
          beside(
              () -> {
                try (Hold hold = locks.mutex("k").acquire()) {
                  held.incrementAndGet();
                }
                return null;
              }));
    }
    server.untilWaiting("k", 100);
    server.ask("CONFIG", "RESETSTAT");
    Thread.sleep(1000);
    assertTrue(server.calls("lock.acquire") <= 100, server.calls("lock.acquire") + " requests");
    assertEquals(
        0, server.calls("lock.renew") + server.calls("exists") + server.calls("lock.held"));
    server.ask("LOCK.BREAK", "k");
    for (Future<Object> each : all) {
      of(each);
    }
    assertEquals(100, held.get());
    assertThrows(LockLostException.class, holder::release);
  }

  @Test
  void atLeast() throws Exception {
    Mutex brief = locks.mutex("k").atLeast(ms(2000));
    Hold hold = brief.acquire();
    hold.release();
    long left = server.number("PTTL", "k");
    assertTrue(left > 0 && left <= 2000, left + " ms");
    assertEquals(0, server.calls("lock.release"));
    assertThrows(LockException.class, hold::extend);
    server.ask("LOCK.BREAK", "k");
    locks.mutex("k").lease(ms(2000)).atLeast(ms(30_000)).acquire().close();
    assertTrue(server.number("PTTL", "k") > 20_000);
    server.ask("LOCK.BREAK", "k");
    Hold failed = brief.acquire();
    failed.releaseFailed();
    assertFalse(server.exists("k"));
    Hold late = locks.mutex("k").atLeast(ms(50)).acquire();
    Thread.sleep(60);
    late.release();
    assertFalse(server.exists("k"));
    Hold broken = brief.acquire();
    server.ask("LOCK.BREAK", "k");
    assertThrows(LockLostException.class, broken::release);
    ReentrantMutex reentrant = locks.reentrant("r").atLeast(ms(2000));
    Hold outer = reentrant.acquire();
    reentrant.within(outer).acquire().release();
    assertEquals(1, holds("r"));
    outer.release();
    assertTrue(server.number("PTTL", "r") <= 2000);
    assertThrows(IllegalArgumentException.class, () -> brief.acquireOrDone(LONG));
  }

  @Test
  void fromToken() throws Exception {
    Hold taken = locks.mutex("k").token("worker-1").acquire();
    Hold there = driven.locks(made, server.port).mutex("k").fromToken("worker-1");
    assertEquals(taken.fence(), there.fence());
    assertFalse(there.isLost());
    there.extend(Duration.ofMinutes(1));
    assertTrue(there.remaining().orElseThrow().toMillis() > 50_000);
    assertEquals("OK", there.exec("SET", "v", "used"));
    there.release();
    assertThrows(LockLostException.class, taken::release);
    assertThrows(LockLostException.class, () -> locks.mutex("k").fromToken("worker-1"));
    byte[] odd = {(byte) 0xff, 0, 'x'};
    locks.mutex("k").token(odd).acquire();
    locks.mutex("k").fromToken(odd).release();
    assertFalse(server.exists("k"));
  }

  @Test
  void slot() throws Exception {
    try (Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      Semaphore slots = locks.semaphore("s", 3).slots();
      List<Hold> all = new ArrayList<>();
      for (int each = 0; each < 3; each++) {
        Hold hold = slots.acquire();
        assertEquals(each, hold.slot().orElseThrow());
        all.add(hold);
      }
      Future<Hold> next = beside(() -> slots.acquire());
      server.untilWaiting("s", 1);
      all.get(1).release();
      Hold second = of(next);
      assertEquals(1, second.slot().orElseThrow());
      second.release();
      proxy.cut("SEM.ACQUIRE", 0);
      Hold retried = slots.acquire();
      assertEquals(1, retried.slot().orElseThrow());
      assertTrue(
          info("s").holders().stream()
              .anyMatch(
                  each -> each.owner().equals(retried.token()) && each.slot().orElseThrow() == 1));
    }
  }

  @Test
  void coalesce() throws Exception {
    Mutex mutex = locks.mutex("k");
    Hold holder = mutex.acquire();
    List<Future<Mutex.Outcome>> waiting = new ArrayList<>();
    for (int each = 0; each < 2; each++) {
      waiting.add(beside(() -> mutex.acquireOrDone(LONG)));
    }
    server.untilWaiting("k", 2);
    holder.release();
    for (Future<Mutex.Outcome> each : waiting) {
      assertEquals(holder.fence(), of(each).doneBy());
    }
    Mutex.Outcome free = mutex.acquireOrDone(LONG);
    Future<Mutex.Outcome> first = beside(() -> mutex.acquireOrDone(LONG));
    server.untilWaiting("k", 1);
    Future<Mutex.Outcome> second = beside(() -> mutex.acquireOrDone(LONG));
    server.untilWaiting("k", 2);
    free.granted().orElseThrow().releaseFailed();
    Hold next = of(first).granted().orElseThrow();
    server.untilWaiting("k", 1);
    next.release();
    assertTrue(of(second).isDone());
    try (Hold held = mutex.acquire()) {
      Mutex.Outcome late = mutex.acquireOrDone(ms(50));
      assertFalse(late.isDone() || late.granted().isPresent());
    }
  }

  /** A value in Redis that callers share. */
  private final class Shared {
    final AtomicInteger made = new AtomicInteger();

    String read() {
      return (String) server.ask("GET", "v");
    }

    String make(Hold hold) {
      made.incrementAndGet();
      String value = "made " + hold.fence();
      server.ask("SET", "v", value);
      return value;
    }
  }

  @Test
  void once() throws Exception {
    Shared shared = new Shared();
    List<Future<String>> all = new ArrayList<>();
    for (int each = 0; each < 1000; each++) {
      all.add(beside(() -> locks.mutex("fill").once(shared::read, shared::make, LONG)));
    }
    for (Future<String> each : all) {
      String value = of(each);
      assertEquals(shared.read(), value);
    }
    assertEquals(1, shared.made.get());
    assertFalse(server.exists("fill"));
    assertEquals(0, server.waiters("fill"));
  }

  @Test
  void onceInTime() throws Exception {
    Shared shared = new Shared();
    Hold holder = locks.mutex("fill").acquire();
    long ms =
        timed(
            () ->
                assertThrows(
                    NotMadeException.class,
                    () -> locks.mutex("fill").once(shared::read, shared::make, ms(300))));
    assertTrue(ms >= 300 && ms < 2300, ms + " ms");
    Future<String> waiting =
        beside(() -> locks.mutex("fill").once(shared::read, shared::make, LONG));
    server.untilWaiting("fill", 1);
    holder.release();
    String value = of(waiting);
    assertEquals(shared.read(), value);
    assertEquals(1, shared.made.get());
  }

  @Test
  void onceMakerIsSlow() throws Exception {
    Shared shared = new Shared();
    Mutex fill = locks.mutex("fill").lease(ms(600));
    Future<String> slow =
        beside(
            () ->
                fill.once(
                    shared::read,
                    hold -> {
                      Server.until(() -> server.calls("lock.renew") >= 4);
                      return shared.make(hold);
                    },
                    LONG));
    Server.until(() -> server.exists("fill"));
    assertEquals(fill.once(shared::read, shared::make, LONG), of(slow));
    assertEquals(1, shared.made.get());
  }

  @Test
  void onceMakerFails() throws Exception {
    Shared shared = new Shared();
    IllegalStateException mine = new IllegalStateException("mine");
    Future<String> failing =
        beside(
            () ->
                locks
                    .mutex("fill")
                    .once(
                        shared::read,
                        hold -> {
                          server.untilWaiting("fill", 2);
                          throw mine;
                        },
                        LONG));
    Server.until(() -> server.exists("fill"));
    Future<String> second =
        beside(() -> locks.mutex("fill").once(shared::read, shared::make, LONG));
    Future<String> third = beside(() -> locks.mutex("fill").once(shared::read, shared::make, LONG));
    assertSame(mine, failure(failing));
    assertEquals(of(second), of(third));
    assertEquals(1, shared.made.get());
  }

  @Test
  void onceMakerIsCancelled() throws Exception {
    Shared shared = new Shared();
    Mutex fill = locks.mutex("fill").lease(Duration.ofMinutes(1));
    AtomicReference<Throwable> ended = new AtomicReference<>();
    Thread making =
        new Thread(
            () -> {
              try {
                fill.once(
                    shared::read,
                    hold -> {
                      Thread.sleep(60_000);
                      return "never";
                    },
                    LONG);
              } catch (Exception e) {
                ended.set(e);
              }
            });
    making.start();
    Server.until(() -> server.exists("fill"));
    Future<String> second = beside(() -> fill.once(shared::read, shared::make, LONG));
    server.untilWaiting("fill", 1);
    making.interrupt();
    making.join(1500);
    assertInstanceOf(InterruptedException.class, ended.get());
    String value = of(second);
    assertEquals(shared.read(), value);
  }

  @Test
  void onceMakerDies() throws Exception {
    Shared shared = new Shared();
    // What a killed process leaves behind.
    server.ask("LOCK.ACQUIRE", "fill", "dead", "PX", 500);
    assertEquals(locks.mutex("fill").once(shared::read, shared::make, LONG), shared.read());
    assertEquals(1, shared.made.get());
  }

  @Test
  void onceMakerLosesItsLock() throws Exception {
    Shared shared = new Shared();
    AtomicInteger reported = new AtomicInteger();
    Future<String> first =
        beside(
            () ->
                locks
                    .mutex("fill")
                    .once(
                        shared::read,
                        hold -> {
                          hold.lost().thenRun(reported::incrementAndGet);
                          server.untilWaiting("fill", 1);
                          server.ask("LOCK.BREAK", "fill");
                          Server.until(() -> shared.read() != null);
                          return "first";
                        },
                        LONG));
    Server.until(() -> server.exists("fill"));
    String second = locks.mutex("fill").once(shared::read, shared::make, LONG);
    assertEquals(second, of(first));
    Server.until(() -> reported.get() == 1);
  }

  @Test
  void errorOfTheWork() throws Exception {
    IllegalStateException mine = new IllegalStateException("mine");
    try (Proxy proxy = new Proxy(server.port)) {
      RedisLocks locks = driven.locks(made, proxy.port);
      AtomicLong thrownAt = new AtomicLong();
      for (Mutex mutex : List.of(locks.mutex("k"), locks.mutex("k").session())) {
        for (boolean silent : new boolean[] {false, true}) {
          IllegalStateException thrown =
              assertThrows(
                  IllegalStateException.class,
                  () -> {
                    try (Hold hold = mutex.acquire()) {
                      proxy.silent(silent);
                      thrownAt.set(System.nanoTime());
                      throw mine;
                    }
                  });
          assertKeptBriefly(thrownAt);
          assertSame(mine, thrown);
          proxy.silent(false);
          Server.until(() -> !server.exists("k"));
        }
      }
      IllegalStateException thrown =
          assertThrows(
              IllegalStateException.class,
              () ->
                  locks
                      .mutex("k")
                      .once(
                          () -> null,
                          hold -> {
                            proxy.silent(true);
                            thrownAt.set(System.nanoTime());
                            throw mine;
                          },
                          LONG));
      assertKeptBriefly(thrownAt);
      assertSame(mine, thrown);
      proxy.silent(false);
      Server.until(() -> !server.exists("k"));
    }
  }

  /** Delayed by a second, and not by the lease of 30 s. A busy machine adds some time. */
  private static void assertKeptBriefly(AtomicLong thrownAt) {
    long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - thrownAt.get());
    assertTrue(ms < 5000, ms + " ms");
  }

  @Test
  void connectionState() throws Exception {
    server.ask("ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all");
    Driven.Options options = new Driven.Options();
    options.user = "worker";
    options.password = "secret";
    options.database = 5;
    RedisLocks theirs = driven.locks(made, server.port, options);
    try (Hold session = theirs.mutex("a").session().acquire();
        Hold plain = theirs.mutex("b").acquire()) {
      Future<Hold> waiting = beside(() -> theirs.mutex("b").acquire());
      server.ask("SELECT", 5);
      server.untilWaiting("b", 1);
      server.ask("SELECT", 0);
      List<String> clients = new ArrayList<>();
      for (String each : server.ask("CLIENT", "LIST").toString().split("\n")) {
        if (each.contains("user=worker")) {
          clients.add(each);
        }
      }
      assertTrue(clients.size() >= 2, clients.toString());
      for (String each : clients) {
        // A subscription is not bound to a database.
        assertTrue(each.contains(" db=5 "), each);
      }
      plain.release();
      of(waiting).release();
    } finally {
      server.ask("SELECT", 0);
      server.ask("ACL", "DELUSER", "worker");
    }
  }

  @Test
  void info() throws Exception {
    assertEquals(Optional.empty(), locks.mutex("k").info());
    byte[] odd = {(byte) 0xff, 'x', '\\'};
    for (boolean resp2 : new boolean[] {true, false}) {
      Driven.Options options = new Driven.Options();
      options.resp2 = resp2;
      RedisLocks locks = driven.locks(made, server.port, options);
      try (Hold hold = locks.mutex("k").token(odd).withoutLease().acquire()) {
        Future<Hold> waiting = beside(() -> locks.mutex("k").acquire());
        server.untilWaiting("k", 1);
        LockInfo info = locks.mutex("k").info().orElseThrow();
        assertEquals("mutex", info.kind());
        assertEquals(1, info.limit());
        assertEquals(hold.fence(), info.fence());
        assertEquals(1, info.waiters());
        assertEquals(1, info.holding());
        assertEquals(Optional.empty(), info.timeToLive());
        LockInfo.Holder holder = info.holders().get(0);
        assertEquals("\\xffx\\x5c", holder.owner());
        assertEquals(hold.token(), holder.owner());
        assertEquals(LockInfo.Mode.EXCLUSIVE, holder.mode());
        assertEquals(Optional.empty(), holder.lease());
        hold.release();
        of(waiting).release();
      }
      try (Hold slot = locks.semaphore("s", 4).slots().session().acquire()) {
        LockInfo info = locks.semaphore("s", 4).info().orElseThrow();
        assertEquals("semaphore", info.kind());
        assertEquals(4, info.limit());
        LockInfo.Holder holder = info.holders().get(0);
        assertEquals(0, holder.slot().orElseThrow());
        assertTrue(holder.session().isPresent());
        assertEquals(Optional.of(ms(30_000)), holder.lease());
        assertEquals(LockInfo.Mode.PERMITS, holder.mode());
      }
      try (Hold read = locks.readWrite("w").read().acquire();
          Hold outer = locks.reentrant("r").acquire()) {
        assertEquals(
            LockInfo.Mode.READ,
            locks.readWrite("w").read().info().orElseThrow().holders().get(0).mode());
        assertEquals("rw", info("w").kind());
        assertEquals("reentrant", info("r").kind());
      }
    }
  }

  @Test
  void holderOfNotGranted() throws Exception {
    try (Hold hold = locks.mutex("k").token("worker-1").acquire()) {
      Mutex asking = locks.mutex("k").token("worker-2");
      NotAcquiredException error =
          assertThrows(
              NotAcquiredException.class, () -> asking.tellHolder().acquire(Duration.ZERO));
      assertEquals(Optional.of("worker-1"), error.holder());
      assertTrue(error.getMessage().contains("worker-1 holds it"));
      assertEquals(1, server.calls("lock.info"));
      error = assertThrows(NotAcquiredException.class, () -> asking.acquire(Duration.ZERO));
      assertEquals(Optional.empty(), error.holder());
      hold.release();
      asking.tellHolder().acquire(Duration.ZERO).release();
      assertEquals(1, server.calls("lock.info"));
    }
  }

  @Test
  void observer() throws Exception {
    List<LockEvent> events = new CopyOnWriteArrayList<>();
    RedisLocks observed =
        locks.observedBy(
            event -> {
              events.add(event);
              throw new IllegalStateException("an observer that fails");
            });
    List<RedisLock<?>> all =
        List.of(
            observed.mutex("k"),
            observed.reentrant("r"),
            observed.readWrite("w").read(),
            observed.readWrite("x").write(),
            observed.semaphore("s", 1),
            observed.all("a", "b"));
    for (RedisLock<?> each : all) {
      events.clear();
      Hold hold = each.acquire();
      hold.extend();
      hold.release();
      // On a busy machine a reply may take so long that the request counts as waiting.
      events.removeIf(event -> event.type() == LockEvent.Type.QUEUED);
      assertEquals(
          List.of(LockEvent.Type.GRANTED, LockEvent.Type.RENEWED, LockEvent.Type.RELEASED),
          events.stream().map(LockEvent::type).toList());
      for (LockEvent event : events) {
        assertEquals(hold.fence(), event.fence());
        assertEquals(hold.token(), event.owner());
        assertEquals(each.lockType.kind(), event.kind());
        assertEquals(String.join(" ", event.keys()), each.name());
      }
    }
    events.clear();
    Hold holder = observed.mutex("k").acquire();
    assertTrue(observed.mutex("k").tryAcquire().isEmpty());
    Future<Hold> waiting = beside(() -> observed.mutex("k").token("waits").acquire());
    Server.until(() -> events.stream().anyMatch(each -> each.type() == LockEvent.Type.QUEUED));
    holder.release();
    Hold second = of(waiting);
    server.ask("LOCK.BREAK", "k");
    assertThrows(LockLostException.class, second::extend);
    assertThrows(LockLostException.class, second::release);
    assertEquals(
        List.of(
            LockEvent.Type.GRANTED,
            LockEvent.Type.NOT_GRANTED,
            LockEvent.Type.QUEUED,
            LockEvent.Type.RELEASED,
            LockEvent.Type.GRANTED,
            LockEvent.Type.LOST),
        sorted(events));
    assertNotEquals(Duration.ZERO, events.get(4).duration());
  }

  /** A release that the server refuses: the caller may repeat it, so no event is reported. */
  @Test
  void anUnconfirmedReleaseIsNotReported() throws Exception {
    server.ask("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all");
    Driven.Options options = new Driven.Options();
    options.user = "u";
    options.password = "p";
    List<LockEvent.Type> events = new CopyOnWriteArrayList<>();
    RedisLocks observed =
        driven
            .locks(made, server.port, options)
            .observedBy(
                event -> {
                  // On a busy machine Jedis's first connection takes as long as a wait.
                  if (event.type() != LockEvent.Type.QUEUED) {
                    events.add(event.type());
                  }
                });
    Hold hold = observed.mutex("k").acquire();
    server.ask("ACL", "SETUSER", "u", "-lock.release");
    assertThrows(RuntimeException.class, hold::release);
    assertThrows(RuntimeException.class, hold::release);
    assertEquals(List.of(LockEvent.Type.GRANTED), events);
    assertThrows(RuntimeException.class, hold::close);
    assertEquals(List.of(LockEvent.Type.GRANTED, LockEvent.Type.LOST), events);
    assertTrue(hold.isLost());
    events.clear();
    assertEquals("OK", observed.mutex("l").lease(ms(500)).run("SET", "n", "1"));
    assertEquals(List.of(LockEvent.Type.GRANTED), events);
    server.ask("ACL", "DELUSER", "u");
  }

  /** Granted and released are reported by two threads. */
  private static List<LockEvent.Type> sorted(List<LockEvent> events) {
    List<LockEvent.Type> types = new ArrayList<>(events.stream().map(LockEvent::type).toList());
    if (types.get(3) == LockEvent.Type.GRANTED) {
      java.util.Collections.swap(types, 3, 4);
    }
    return types;
  }
}
