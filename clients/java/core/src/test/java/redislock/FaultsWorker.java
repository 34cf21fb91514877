package redislock;

import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Random;

/**
 * The worker of clients/faults: {@code FaultsWorker lettuce|jedis PORT SEED}; that folder's README
 * describes its output.
 */
public final class FaultsWorker {
  private static final int LINES = 6;
  private static final int KEYS = 4;
  private static volatile boolean stopping;

  private FaultsWorker() {}

  public static void main(String[] arguments) throws Exception {
    int port = Integer.parseInt(arguments[1]);
    AutoCloseable client = client(arguments[0], port);
    RedisLocks locks = RedisLocks.over(client);
    List<Thread> lines = new ArrayList<>();
    for (int number = 0; number < LINES; number++) {
      Random random = new Random((arguments[2] + " " + number).hashCode());
      Thread line =
          new Thread(
              () -> {
                try {
                  while (!stopping) {
                    new Turn(random).run(locks);
                  }
                } catch (Throwable e) {
                  unexpected(e);
                }
              });
      line.start();
      lines.add(line);
    }
    System.in.read();
    stopping = true;
    for (Thread line : lines) {
      line.join();
    }
    long ends = System.nanoTime() + 20_000_000_000L;
    while (left(locks) > 0 && System.nanoTime() < ends) {
      Thread.sleep(50);
    }
    report("{\"e\":\"end\",\"left\":%d}", left(locks));
    locks.close();
    client.close();
  }

  private static AutoCloseable client(String library, int port) {
    return library.equals("lettuce")
        ? io.lettuce.core.RedisClient.create(RedisURI.create("127.0.0.1", port))
        : redis.clients.jedis.RedisClient.create("127.0.0.1", port);
  }

  /** Threads of the client, and pending withdrawals, for which Lettuce has no thread. */
  private static long left(RedisLocks locks) {
    long threads =
        Thread.getAllStackTraces().entrySet().stream()
            .filter(each -> each.getKey().getName().equals("redislock"))
            .filter(
                each ->
                    Arrays.stream(each.getValue())
                        .anyMatch(at -> at.getClassName().startsWith("redislock.")))
            .count();
    return threads + (locks.endingsAreOver() ? 0 : 1);
  }

  private static synchronized void report(String line, Object... values) {
    System.out.println(String.format(Locale.ROOT, line, values));
    System.out.flush();
  }

  private static void unexpected(Throwable error) {
    report(
        "{\"e\":\"unexpected\",\"what\":\"%s\"}", error.toString().replaceAll("[\"\\\\\\n]", " "));
  }

  private static long now() {
    return System.currentTimeMillis();
  }

  /** One random step of a thread, from its own random numbers. */
  private static final class Turn {
    private final Random random;
    private final String key;
    private final boolean session;
    private final boolean renewed;
    private final long leaseMs;
    private final long waitMs;
    private final long cancelMs;
    private final long holdMs;
    private volatile long cancelled;

    Turn(Random random) {
      this.random = random;
      key = "k" + random.nextInt(KEYS);
      double kind = random.nextDouble();
      session = kind < 0.1;
      renewed = kind >= 0.1 && kind < 0.3;
      leaseMs = kind < 0.3 ? 1500 : kind < 0.5 ? 60_000 : 3000;
      waitMs = random.nextDouble() < 0.1 ? 0 : between(100, 2000);
      cancelMs = random.nextDouble() < 0.25 ? between(0, Math.max(waitMs, 50)) : -1;
      holdMs = renewed && random.nextDouble() < 0.2 ? between(0, 2500) : between(0, 60);
    }

    private long between(long from, long to) {
      return from + (long) (random.nextDouble() * (to - from));
    }

    void run(RedisLocks locks) throws InterruptedException {
      Mutex mutex = locks.mutex(key).lease(Duration.ofMillis(leaseMs));
      if (renewed) {
        mutex = mutex.autoRenew();
      } else if (session) {
        mutex = mutex.session();
      }
      long began = now();
      Optional<Hold> granted = acquire(mutex, began);
      if (granted.isEmpty()) {
        return;
      }
      Hold hold = granted.get();
      long since = now();
      long until = 0;
      long ends = System.nanoTime() + holdMs * 1_000_000;
      while (!hold.isLost()) {
        until = now();
        if (System.nanoTime() >= ends) {
          break;
        }
        Thread.sleep(5);
      }
      if (until > 0) {
        report(
            "{\"e\":\"held\",\"key\":\"%s\",\"fence\":%d,\"since\":%d,\"until\":%d,\"session\":%b}",
            key, hold.fence(), since, until, session);
      }
      for (; ; ) {
        began = now();
        String outcome = "released";
        try {
          hold.release();
        } catch (LockLostException e) {
          outcome = "lost";
        } catch (RuntimeException e) {
          outcome = "failed";
        }
        report(
            "{\"e\":\"release\",\"began\":%d,\"ended\":%d,\"outcome\":\"%s\"}",
            began, now(), outcome);
        if (!outcome.equals("failed") || session) {
          return;
        }
      }
    }

    private Optional<Hold> acquire(Mutex mutex, long began) {
      Thread caller = Thread.currentThread();
      Thread canceller = cancelMs < 0 ? null : new Thread(() -> cancel(caller));
      if (canceller != null) {
        canceller.start();
      }
      Optional<Hold> granted = Optional.empty();
      String outcome;
      try {
        granted = mutex.tryAcquire(Duration.ofMillis(waitMs));
        outcome = granted.isPresent() ? "granted" : "refused";
      } catch (InterruptedException e) {
        outcome = "cancelled";
      } catch (RuntimeException e) {
        outcome = "failed";
      }
      long ended = now();
      if (canceller != null) {
        canceller.interrupt();
        while (canceller.isAlive()) {
          try {
            canceller.join();
          } catch (InterruptedException e) {
            // The interrupt of the canceller came too late.
          }
        }
        Thread.interrupted();
      }
      report(
          "{\"e\":\"acquire\",\"key\":\"%s\",\"wait\":%d,\"began\":%d,\"ended\":%d,"
              + "\"outcome\":\"%s\",\"cancelled\":%d}",
          key, waitMs, began, ended, outcome, outcome.equals("cancelled") ? cancelled : 0);
      return granted;
    }

    private void cancel(Thread caller) {
      try {
        Thread.sleep(cancelMs);
        cancelled = now();
        caller.interrupt();
      } catch (InterruptedException e) {
        // The acquire has returned first.
      }
    }
  }
}
