package redislock;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;

/**
 * The outstanding requests of each owner, by key and token. Requests that count holds are sent one
 * after another, and an acquire waits for the withdrawals and releases before it. Otherwise one
 * that arrives late, or is sent again, would end that acquire's grant.
 */
final class Endings {
  private static final CompletableFuture<?> NONE = CompletableFuture.completedFuture(null);

  private final ConcurrentHashMap<String, CompletableFuture<?>> last = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<String, Long> distrust = new ConcurrentHashMap<>();

  /** Adds a request. Completes when the earlier ones have ended, and never fails. */
  CompletableFuture<?> add(List<byte[]> keys, byte[] token, CompletableFuture<?> request) {
    CompletableFuture<?> over = request.handle((result, error) -> null);
    return all(keys, token, id -> add(id, over));
  }

  private CompletableFuture<?> add(String id, CompletableFuture<?> over) {
    CompletableFuture<?>[] earlier = {NONE};
    CompletableFuture<?> both =
        last.compute(
            id,
            (same, before) -> {
              earlier[0] = before == null ? NONE : before;
              return before == null ? over : CompletableFuture.allOf(before, over);
            });
    both.thenRun(() -> last.remove(id, both));
    return earlier[0];
  }

  boolean areOver() {
    return last.isEmpty();
  }

  /** Completes when all requests of the owner have ended; never fails. */
  CompletableFuture<?> settled(List<byte[]> keys, byte[] token) {
    return last.isEmpty() ? NONE : all(keys, token, id -> last.getOrDefault(id, NONE));
  }

  private static CompletableFuture<?> all(
      List<byte[]> keys, byte[] token, Function<String, CompletableFuture<?>> of) {
    return CompletableFuture.allOf(
        keys.stream().map(key -> of.apply(id(key, token))).toArray(CompletableFuture[]::new));
  }

  /**
   * Records that a request of this token was withdrawn, so that a message about it may come late.
   */
  void distrust(List<byte[]> keys, byte[] token) {
    long now = Clock.now();
    distrust.values().removeIf(until -> until < now);
    keys.forEach(key -> distrust.put(id(key, token), now + 2 * Limits.SLICE_MS + Limits.LATE_MS));
  }

  boolean isDistrusted(List<byte[]> keys, byte[] token) {
    return !distrust.isEmpty()
        && keys.stream().anyMatch(key -> distrust.getOrDefault(id(key, token), -1L) > Clock.now());
  }

  private static String id(byte[] key, byte[] token) {
    return Words.json(key) + ' ' + Words.json(token);
  }
}
