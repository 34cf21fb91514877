package redislock;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;

/** A server, and locks over one of the libraries, for the cases of clients/conformance.md. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
@Timeout(60)
abstract class Cases {
  static final Duration LONG = Duration.ofSeconds(30);

  final Driven driven;
  Server server;
  Driven.Made made;
  RedisLocks locks;
  ExecutorService threads;

  Cases(Driven driven) {
    this.driven = driven;
  }

  @BeforeAll
  void startServer() {
    server = new Server();
  }

  @AfterAll
  void stopServer() {
    server.close();
  }

  @BeforeEach
  void connect() {
    server.ask("FLUSHALL");
    server.ask("CONFIG", "RESETSTAT");
    made = new Driven.Made();
    locks = driven.locks(made, server.port);
    threads = Executors.newCachedThreadPool();
  }

  @AfterEach
  void disconnect() throws Exception {
    threads.shutdownNow();
    assertTrue(threads.awaitTermination(10, TimeUnit.SECONDS));
    made.close();
  }

  static Duration ms(long ms) {
    return Duration.ofMillis(ms);
  }

  static long timed(Work work) throws Exception {
    long began = System.nanoTime();
    work.run();
    return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
  }

  interface Work {
    void run() throws Exception;
  }

  <T> Future<T> beside(java.util.concurrent.Callable<T> work) {
    return threads.submit(work);
  }

  static <T> T of(Future<T> future) throws Exception {
    return future.get(20, TimeUnit.SECONDS);
  }

  LockInfo info(String name) throws InterruptedException {
    return locks.mutex(name).info().orElseThrow();
  }

  static Throwable failure(Future<?> future) throws Exception {
    return assertThrows(java.util.concurrent.ExecutionException.class, () -> of(future)).getCause();
  }
}
