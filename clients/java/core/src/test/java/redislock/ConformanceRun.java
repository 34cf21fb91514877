package redislock;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Future;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The case `run` of clients/conformance.md: lock, command and release in one packet. */
abstract class ConformanceRun extends Cases {
  private static final int LOCKS = 7;

  private Proxy proxy;
  private RedisLocks proxied;

  ConformanceRun(Driven driven) {
    super(driven);
  }

  static final class OverLettuceTest extends ConformanceRun {
    OverLettuceTest() {
      super(Driven.LETTUCE);
    }
  }

  static final class OverJedisTest extends ConformanceRun {
    OverJedisTest() {
      super(Driven.JEDIS);
    }
  }

  @BeforeEach
  void startProxy() {
    proxy = new Proxy(server.port);
    proxied = driven.locks(made, proxy.port);
  }

  @AfterEach
  void stopProxy() {
    proxy.close();
  }

  private static List<RedisLock<?>> oneOfEach(RedisLocks locks) {
    return List.of(
        locks.mutex("k"),
        locks.reentrant("r"),
        locks.readWrite("w").read(),
        locks.readWrite("w").write(),
        locks.semaphore("s", 3).permits(2),
        locks.all("a", "b"),
        locks.mutex("k").session());
  }

  /** Everything was released: only the counter exists. */
  private void untilFree() {
    Server.until(() -> server.ask("KEYS", "*").equals(List.of("n")));
  }

  @Test
  void aCommandInOnePacketWithItsLock() throws Exception {
    for (RedisLock<?> each : oneOfEach(proxied)) {
      long before =
          server.ask("GET", "n") == null ? 0 : Long.parseLong((String) server.ask("GET", "n"));
      proxy.packets().clear();
      assertEquals(before + 1, each.run("INCR", "n"));
      assertEquals(1, proxy.packets().size(), proxy.packets().toString());
      String packet = proxy.packets().get(0);
      for (String word : List.of(".ACQUIRE", "LOCK.EXEC", "INCR", ".RELEASE")) {
        assertTrue(packet.contains(word), packet);
      }
      assertEquals(each.settings.session, packet.contains("SESSION"), packet);
      // Over a shared connection it would delay others.
      assertEquals(driven == Driven.JEDIS || each.settings.session, packet.contains("BLOCK"));
      assertEquals(List.of("n"), server.ask("KEYS", "*"));
    }
    Mutex mutex = proxied.mutex("k");
    mutex.run("HSET", "h", "f", "1");
    assertEquals(List.of("f", "1"), mutex.run("HGETALL", "h"));
    assertArrayEquals(
        Words.bytes("1"),
        (byte[]) mutex.run(Duration.ZERO, Words.bytes("HGET"), Words.bytes("h"), Words.bytes("f")));
    assertNull(mutex.run("GET", "none"));
    // The command's own error, including its own WRONGTYPE.
    RuntimeException error = assertThrows(RuntimeException.class, () -> mutex.run("INCR", "h"));
    assertTrue(error.getMessage().startsWith("WRONGTYPE"), error.getMessage());
    assertFalse(error instanceof LockException);
    error = assertThrows(RuntimeException.class, () -> mutex.run("NOSUCH"));
    assertTrue(error.getMessage().contains("unknown command"), error.getMessage());
    assertFalse(error instanceof LockException);
    assertFalse(server.exists("k"));
  }

  @Test
  void itWaitsInTheQueueOrReportsNotGranted() throws Exception {
    for (Mutex mutex : List.of(proxied.mutex("k"), proxied.mutex("k").session())) {
      server.ask("DEL", "n");
      Hold hold = locks.mutex("k").acquire();
      for (Duration wait : List.of(Duration.ZERO, ms(300))) {
        NotAcquiredException error =
            assertThrows(
                NotAcquiredException.class, () -> mutex.tellHolder().run(wait, "INCR", "n"));
        assertEquals(Optional.of(hold.token()), error.holder());
      }
      server.untilWaiting("k", 0);
      Future<Object> running = beside(() -> mutex.run("INCR", "n"));
      server.untilWaiting("k", 1);
      assertNull(server.ask("GET", "n"));
      proxy.packets().clear();
      hold.release();
      assertEquals(1L, of(running));
      assertFalse(server.exists("k"));
      // The packet has arrived already; over a shared connection its rest follows the grant.
      boolean isRestSent = driven == Driven.LETTUCE && !mutex.settings.session;
      assertEquals(isRestSent ? 1 : 0, proxy.packets().size());
      if (isRestSent) {
        String rest = proxy.packets().get(0);
        assertTrue(rest.contains("LOCK.EXEC") && rest.contains("LOCK.RELEASE"), rest);
      }
    }
  }

  @Test
  void itReportsThatTheLockWasLost() throws Exception {
    for (List<String> losing : List.of(List.of("LOCK.BREAK", "k"), List.of("SET", "k", "else"))) {
      // The packet arrives in two parts, and the lock is lost between them.
      proxy.split("LOCK.EXEC");
      Future<Object> running = beside(() -> proxied.mutex("k").run("INCR", "n"));
      Server.until(() -> server.exists("k"));
      server.ask(losing.toArray());
      proxy.letGo();
      assertInstanceOf(LockLostException.class, failure(running));
      assertNull(server.ask("GET", "n"));
    }
  }

  @Test
  void noCommandIsSentTwice() throws Exception {
    long ran = 0;
    // Before any reply, inside that of the acquire, inside that of the command: ":1\r\n" is behind.
    for (int after : new int[] {0, 3, -6}) {
      for (int number = 0; number < LOCKS; number++) {
        // A fresh client, in which no withdrawal of the previous request is under way.
        RedisLocks fresh = driven.locks(made, proxy.port);
        RedisLock<?> lock = oneOfEach(fresh).get(number);
        // Connects first: only the request is timed.
        fresh.mutex("connects").acquire().release();
        proxy.cut("LOCK.EXEC", after);
        long ms =
            timed(
                () -> {
                  RuntimeException error =
                      assertThrows(RuntimeException.class, () -> lock.run("INCR", "n"));
                  assertFalse(error instanceof LockException, error.toString());
                });
        assertTrue(ms < 2000, ms + " ms");
        assertTrue(proxy.hasCut());
        assertEquals(++ran, Long.parseLong((String) server.ask("GET", "n")), lock + " at " + after);
        untilFree();
      }
    }
  }

  @Test
  void itReturnsItsReplyIfOnlyTheReleaseHasNone() throws Exception {
    for (int number = 0; number < LOCKS; number++) {
      RedisLock<?> lock = oneOfEach(driven.locks(made, proxy.port)).get(number);
      proxy.cut("LOCK.EXEC", -4);
      assertEquals(number + 1L, lock.run("INCR", "n"));
      assertTrue(proxy.hasCut());
      untilFree();
    }
  }

  @Test
  void aReleaseThatDoesNotArriveIsRepeated() throws Exception {
    proxy.split("LOCK.RELEASE");
    Future<Object> running =
        beside(() -> proxied.mutex("k").lease(Duration.ofMinutes(10)).run("INCR", "n"));
    Server.until(() -> server.ask("GET", "n") != null);
    assertTrue(server.exists("k"));
    // Until the reply has arrived.
    Thread.sleep(200);
    proxy.closeAll();
    assertEquals(1L, of(running));
    untilFree();
  }

  @Test
  void itWaitsInTheQueueDuringTheGrace() throws Exception {
    try (Server graceful = new Server("lock.grace 1500")) {
      Future<Object> running =
          beside(() -> driven.locks(made, graceful.port).mutex("k").run("INCR", "n"));
      graceful.untilWaiting("k", 1);
      assertEquals(1L, of(running));
      assertTrue(graceful.calls("lock.acquire") <= 3);
    }
  }

  @Test
  void aPacketThatArrivesInPartLeavesNothing() throws Exception {
    for (boolean isSession : new boolean[] {false, true}) {
      RedisLocks locks = driven.locks(made, proxy.port);
      Mutex mutex = locks.mutex("k").lease(Duration.ofMinutes(10));
      Mutex lock = isSession ? mutex.session() : mutex;
      proxy.split("LOCK.EXEC");
      Future<Object> running = beside(() -> lock.run("INCR", "n"));
      Server.until(() -> server.exists("k"));
      if (isSession) {
        // By its session alone.
        server.ask("ACL", "SETUSER", "default", "-lock.release");
      }
      try {
        proxy.closeAll();
        failure(running);
        Server.until(() -> !server.exists("k"));
      } finally {
        server.ask("ACL", "SETUSER", "default", "+lock.release");
      }
      assertNull(server.ask("GET", "n"));
    }
  }

  @Test
  void aSessionWhoseReleaseIsRefusedEnds() throws Exception {
    server.ask("ACL", "SETUSER", "default", "-lock.release");
    try {
      assertEquals(1L, locks.mutex("k").session().run("INCR", "n"));
      untilFree();
    } finally {
      server.ask("ACL", "SETUSER", "default", "+lock.release");
    }
  }

  @Test
  void aConnectionThatEndsWhileItWaits() throws Exception {
    Hold hold = locks.mutex("k").acquire();
    // The command is on its way: it may have run.
    Mutex sent = driven == Driven.JEDIS ? proxied.mutex("k") : proxied.mutex("k").session();
    Future<Object> running = beside(() -> sent.run("INCR", "n"));
    server.untilWaiting("k", 1);
    proxy.closeAll();
    assertFalse(failure(running) instanceof LockException);
    server.untilWaiting("k", 0);
    if (driven == Driven.LETTUCE) {
      // It was not sent yet.
      Future<Object> waiting = beside(() -> proxied.mutex("k").run("INCR", "n"));
      server.untilWaiting("k", 1);
      long asked = server.calls("lock.acquire");
      proxy.closeAll();
      Server.until(() -> server.calls("lock.acquire") > asked);
      hold.release();
      assertEquals(1L, of(waiting));
    }
  }

  @Test
  void anInterruptedRunLeavesNothing() throws Exception {
    Hold hold = locks.mutex("k").acquire();
    for (Mutex mutex : List.of(locks.mutex("k"), locks.mutex("k").session())) {
      Thread[] thread = new Thread[1];
      Future<Object> running =
          beside(
              () -> {
                thread[0] = Thread.currentThread();
                return mutex.run("INCR", "n");
              });
      server.untilWaiting("k", 1);
      thread[0].interrupt();
      assertInstanceOf(InterruptedException.class, failure(running));
      server.untilWaiting("k", 0);
    }
    hold.release();
    assertFalse(server.exists("k"));
    assertNull(server.ask("GET", "n"));
  }

  @Test
  void optionsThatDoNotApplyAreRefused() throws Exception {
    for (RedisLock<?> each :
        List.of(
            proxied.mutex("k").token("mine"),
            proxied.mutex("k").atLeast(ms(1000)),
            proxied.mutex("k").replicas(1, ms(100)),
            proxied.semaphore("k", 3).slots())) {
      assertThrows(IllegalArgumentException.class, () -> each.run("INCR", "n"));
    }
    assertThrows(IllegalArgumentException.class, () -> proxied.mutex("k").run(Duration.ZERO));
    // It would wait for its own hold.
    try (Hold read = proxied.readWrite("w").read().acquire()) {
      ReentrantMutex within = proxied.readWrite("w").write().within(read);
      assertThrows(IllegalArgumentException.class, () -> within.run("INCR", "n"));
    }
    assertNull(server.ask("GET", "n"));
    // Without a deadline a process that dies would leave it held indefinitely.
    assertTrue((Long) proxied.mutex("k").withoutLease().run("PTTL", "k") > 29_000);
  }

  @Test
  void nextToOldClients() throws Exception {
    // Connects first: the wait below is short.
    locks.mutex("connects").acquire().release();
    server.ask("SET", "k", "an old client's");
    Mutex mixed = locks.mutex("k").mixed(ms(20));
    assertThrows(NotAcquiredException.class, () -> mixed.run(ms(1000), "INCR", "n"));
    Future<Object> running = beside(() -> mixed.run("INCR", "n"));
    long asked = server.calls("lock.acquire");
    Server.until(() -> server.calls("lock.acquire") > asked + 2);
    assertFalse(running.isDone());
    server.ask("DEL", "k");
    assertEquals(1L, of(running));
    // Any other lock reports the type of the key.
    server.ask("SET", "k", "else");
    assertThrows(WrongTypeException.class, () -> locks.mutex("k").run("INCR", "n"));
  }

  @Test
  void itIsObserved() throws Exception {
    List<LockEvent> events = new CopyOnWriteArrayList<>();
    Mutex mutex = locks.observedBy(events::add).mutex("k");
    // A first connection that takes long counts as a wait.
    locks.mutex("k").run("INCR", "n");
    mutex.run("INCR", "n");
    assertEquals(
        List.of(LockEvent.Type.GRANTED, LockEvent.Type.RELEASED),
        events.stream().map(LockEvent::type).toList());
    assertTrue(events.get(0).fence() > 0 && events.get(0).fence() == events.get(1).fence());
    events.clear();
    Hold hold = locks.mutex("k").acquire();
    assertThrows(NotAcquiredException.class, () -> mutex.run(ms(1000), "INCR", "n"));
    assertEquals(
        List.of(LockEvent.Type.QUEUED, LockEvent.Type.NOT_GRANTED),
        events.stream().map(LockEvent::type).toList());
    hold.release();
  }

  @Test
  void whatIsRefusedAfterTheGrantIsRepeated() throws Exception {
    proxy.split("LOCK.EXEC");
    Future<Object> running = beside(() -> proxied.mutex("k").run("INCR", "n"));
    Server.until(() -> server.exists("k"));
    server.ask("CONFIG", "SET", "min-replicas-to-write", 1);
    try {
      proxy.letGo();
      Server.until(
          () -> {
            String errors = server.ask("INFO", "errorstats").toString();
            return errors.matches("(?s).*NOREPLICAS:count=([4-9]|\\d\\d).*");
          });
    } finally {
      server.ask("CONFIG", "SET", "min-replicas-to-write", 0);
    }
    // The command did not run: the packet was sent again.
    assertEquals(1L, of(running));
    untilFree();
    assertNotNull(server.ask("GET", "n"));
  }
}
