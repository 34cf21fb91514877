package redislock;

import java.util.ArrayDeque;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Finds the waiter that a message of the server is about. Delivery is at most once: a waiter that
 * may have missed a message is told that it was interrupted, and asks again. No I/O.
 */
final class Inbox {
  private final Map<String, Set<Waiter>> waiters = new ConcurrentHashMap<>();

  /** The messages for one request: kept until they are asked for. */
  final class Waiter {
    private final String about;
    private final ArrayDeque<Task.Notice> notices = new ArrayDeque<>();
    private @Nullable Consumer<Task.Notice> taker;

    private Waiter(String about) {
      this.about = about;
      waiters.compute(
          about,
          (same, found) -> {
            Set<Waiter> all = found == null ? ConcurrentHashMap.newKeySet() : found;
            all.add(this);
            return all;
          });
    }

    private void tell(Task.Notice notice) {
      Consumer<Task.Notice> told;
      synchronized (this) {
        told = taker;
        taker = null;
        if (told == null) {
          notices.add(notice);
        }
      }
      if (told != null) {
        told.accept(notice);
      }
    }

    /** Gives the next message to the taker, once. */
    void next(Consumer<Task.Notice> next) {
      Task.Notice first;
      synchronized (this) {
        first = notices.poll();
        taker = first == null ? next : null;
      }
      if (first != null) {
        next.accept(first);
      }
    }

    /** Forgets what was told: the reply to the request that follows says the same. */
    synchronized void clear() {
      notices.clear();
      taker = null;
    }

    void close() {
      waiters.computeIfPresent(
          about,
          (same, found) -> {
            found.remove(this);
            return found.isEmpty() ? null : found;
          });
    }
  }

  /** Registered before its request is sent: a message may come before the reply. */
  Waiter waiter(byte[] key, byte[] token) {
    return new Waiter(Words.told(key) + ' ' + Words.told(token));
  }

  void deliver(byte[] message) {
    Map<String, String> fields;
    try {
      fields = Json.fields(Words.text(message));
    } catch (IllegalArgumentException e) {
      return; // Another client publishes on our channel.
    }
    Set<Waiter> found = waiters.get(fields.get("key") + " " + fields.get("token"));
    String outcome = fields.get("outcome");
    if (found == null || outcome == null) {
      return;
    }
    // One owner may wait twice for one key. The message does not say for which request: each asks
    // again.
    Task.Notice notice =
        found.size() > 1
            ? Task.Notice.INTERRUPTED
            : new Task.Notice(
                outcome.substring("text:".length()),
                Long.parseLong(fields.getOrDefault("fence", "0")),
                Integer.parseInt(fields.getOrDefault("holds", "1")),
                Integer.parseInt(fields.getOrDefault("slot", "-1")));
    found.forEach(waiter -> waiter.tell(notice));
  }

  void interrupt() {
    waiters.values().forEach(all -> all.forEach(waiter -> waiter.tell(Task.Notice.INTERRUPTED)));
  }
}
