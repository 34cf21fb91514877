package redislock;

import java.util.ArrayDeque;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Delivers messages of the server to their waiters. Messages are delivered at most once, so a
 * waiter that may have missed one gets INTERRUPTED and asks again. No I/O.
 */
final class Inbox {
  private final Map<String, Set<Waiter>> waiters = new ConcurrentHashMap<>();

  /** Keeps the messages for one request until they are taken. */
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

    private void push(Task.Notice notice) {
      Consumer<Task.Notice> waiting;
      synchronized (this) {
        waiting = taker;
        taker = null;
        if (waiting == null) {
          notices.add(notice);
        }
      }
      if (waiting != null) {
        waiting.accept(notice);
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

    /** Discards earlier messages, because the reply to the next request says the same. */
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

  /** Register before the request is sent, because a message may come before the reply. */
  Waiter waiter(byte[] key, byte[] token) {
    return new Waiter(Words.json(key) + ' ' + Words.json(token));
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
    // One owner may wait twice for one key. The message does not say for which request, so each
    // asks again.
    Task.Notice notice =
        found.size() > 1
            ? Task.Notice.INTERRUPTED
            : new Task.Notice(
                outcome.substring("text:".length()),
                Long.parseLong(fields.getOrDefault("fence", "0")),
                Integer.parseInt(fields.getOrDefault("holds", "1")),
                Integer.parseInt(fields.getOrDefault("slot", "-1")));
    found.forEach(waiter -> waiter.push(notice));
  }

  void interrupt() {
    waiters.values().forEach(all -> all.forEach(waiter -> waiter.push(Task.Notice.INTERRUPTED)));
  }
}
