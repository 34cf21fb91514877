package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** No memory stays in use after a request's reply, nor for a name after its last hold. */
@Isolated("it keeps the processors busy, and others measure times")
@Timeout(300)
final class SoakTest {
  /** A kilobyte that each pair left behind would fill this heap. */
  private static final String HEAP = "-Xmx20m";

  /** SOAK_PAIRS=100000 is the number for a release of this project. */
  private static final int PAIRS =
      Integer.parseInt(System.getenv().getOrDefault("SOAK_PAIRS", "20000"));

  private static final int THREADS = 8;

  @ParameterizedTest
  @EnumSource
  void pairsLeaveNothingOnTheHeap(Driven driven) throws Exception {
    try (Server server = new Server()) {
      String program = Path.of(System.getProperty("java.home"), "bin", "java").toString();
      String path = System.getProperty("java.class.path");
      Process process =
          new ProcessBuilder(
                  List.of(
                      program,
                      HEAP,
                      "-XX:TieredStopAtLevel=1", // As in pom.xml.
                      "-XX:+ExitOnOutOfMemoryError",
                      "-cp",
                      path,
                      Pairs.class.getName(),
                      driven.name(),
                      "" + server.port))
              .redirectErrorStream(true)
              .start();
      String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      assertEquals(0, process.waitFor(), printed);
      assertEquals(0, server.number("DBSIZE"));
    }
  }

  /** The program: each pair has its own name. */
  static final class Pairs {
    public static void main(String[] arguments) throws Exception {
      ExecutorService threads = Executors.newFixedThreadPool(THREADS);
      try (Driven.Made made = new Driven.Made()) {
        RedisLocks locks = Driven.valueOf(arguments[0]).locks(made, Integer.parseInt(arguments[1]));
        List<Future<Void>> all = new ArrayList<>();
        for (int thread = 0; thread < THREADS; thread++) {
          int first = thread;
          Callable<Void> pairs =
              () -> {
                for (int pair = first; pair < PAIRS; pair += THREADS) {
                  pair(locks, pair);
                }
                return null;
              };
          all.add(threads.submit(pairs));
        }
        for (Future<Void> each : all) {
          each.get();
        }
      } finally {
        threads.shutdownNow();
      }
      System.exit(0);
    }

    private static void pair(RedisLocks locks, int number) throws Exception {
      String name = "k" + number;
      switch (number % 8) {
        case 0 -> locks.reentrant(name).token("t" + number).acquire().release();
        case 1 -> locks.semaphore(name, 2).acquire().close();
        case 2 -> {
          Lock lock = locks.mutex(name).asLock();
          lock.lock();
          lock.unlock();
        }
        case 3 -> locks.mutex(name).acquireAsync(Duration.ofMinutes(1)).get().release();
        case 4 -> {
          try (Hold hold = locks.mutex(name).autoRenew().acquire()) {
            hold.lost();
            hold.exec("PING");
          }
        }
        case 5 -> locks.mutex(name).run("PING");
        case 6 -> {
          try (Hold hold = locks.mutex(name).acquire()) {
            locks.mutex(name).tryAcquire();
          }
        }
        default -> locks.mutex(name).acquire().release();
      }
    }
  }
}
