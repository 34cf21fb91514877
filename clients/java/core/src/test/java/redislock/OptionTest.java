package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Optional;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** A later option replaces an earlier one that it excludes: a lock overrides its defaults. */
@Timeout(60)
final class OptionTest {
  private static final Duration INTERVAL = Duration.ofSeconds(20);

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

  /** What the server returns about a hold, and whether its release frees the lock. */
  private record Seen(boolean isSession, boolean isLeased, String owner, boolean isFreed) {}

  private static Seen seen(Mutex lock) throws Exception {
    Hold hold = lock.acquire();
    LockInfo.Holder holder = lock.info().orElseThrow().holders().get(0);
    boolean isSession = holder.session().isPresent();
    boolean isLeased = server.number("PTTL", "k") > 0;
    hold.release();
    boolean isFreed = !server.exists("k");
    server.ask("DEL", "k");
    return new Seen(isSession, isLeased, holder.owner(), isFreed);
  }

  @ParameterizedTest
  @EnumSource
  void sessionAndAutoRenew(Driven driven) throws Exception {
    Mutex lock = driven.locks(made, server.port).mutex("k").lease(Duration.ofMillis(900));
    assertTrue(seen(lock.autoRenew().session()).isSession);
    assertFalse(seen(lock.session().autoRenew()).isSession);
    long before = server.calls("lock.renew");
    try (Hold hold = lock.session().autoRenew().acquire()) {
      Server.until(() -> server.calls("lock.renew") > before);
    }
  }

  @ParameterizedTest
  @EnumSource
  void withoutLeaseAndOptionsThatNeedOne(Driven driven) throws Exception {
    Mutex lock = driven.locks(made, server.port).mutex("k");
    assertTrue(seen(lock.withoutLease().autoRenew()).isLeased);
    assertFalse(seen(lock.autoRenew().withoutLease()).isLeased);
    assertTrue(seen(lock.withoutLease().session()).isSession);
    Seen last = seen(lock.session().withoutLease());
    assertFalse(last.isSession || last.isLeased);
    assertFalse(seen(lock.withoutLease().atLeast(INTERVAL)).isFreed);
    last = seen(lock.atLeast(INTERVAL).withoutLease());
    assertTrue(last.isFreed && !last.isLeased);
    assertTrue(seen(lock.withoutLease().lease(INTERVAL)).isLeased);
    // An option that needs no lease keeps the existing one.
    lock.lease(Duration.ofSeconds(5)).autoRenew().acquire();
    assertTrue(server.number("PTTL", "k") <= 5000);
  }

  @ParameterizedTest
  @EnumSource
  void atLeastAndWhatItExcludes(Driven driven) throws Exception {
    Mutex lock = driven.locks(made, server.port).mutex("k");
    Seen last = seen(lock.session().atLeast(INTERVAL));
    assertFalse(last.isSession || last.isFreed);
    last = seen(lock.atLeast(INTERVAL).session());
    assertTrue(last.isSession && last.isFreed);
    last = seen(lock.token("me").atLeast(INTERVAL));
    assertNotEquals("me", last.owner);
    assertFalse(last.isFreed);
    last = seen(lock.atLeast(INTERVAL).token("me"));
    assertEquals("me", last.owner);
    assertTrue(last.isFreed);
  }

  @ParameterizedTest
  @EnumSource
  void mixedAndSession(Driven driven) throws Exception {
    Mutex lock = driven.locks(made, server.port).mutex("k");
    Duration interval = Duration.ofMillis(10);
    assertFalse(seen(lock.session().mixed(interval)).isSession);
    assertTrue(seen(lock.mixed(interval).session()).isSession);
  }

  @ParameterizedTest
  @EnumSource
  void withinAndToken(Driven driven) throws Exception {
    ReentrantMutex lock = driven.locks(made, server.port).reentrant("k");
    Hold outer = lock.acquire();
    Hold inner = lock.token("other").within(outer).tryAcquire().orElseThrow();
    assertEquals(2, inner.holds());
    inner.release();
    assertEquals(Optional.empty(), lock.within(outer).token("other").tryAcquire());
    outer.release();
  }
}
