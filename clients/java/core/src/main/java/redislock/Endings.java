package redislock;

import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The outstanding requests of each owner, by key and token. Requests that count holds are sent one
 * after another, and an acquire waits for the acquires, with their withdrawals, and the releases
 * before it. Otherwise one that arrives late, or is sent again, would end that acquire's grant.
 */
final class Endings {
  /** Nothing is outstanding. */
  static final CompletableFuture<?> NONE = CompletableFuture.completedFuture(null);

  private final ConcurrentHashMap<Id, CompletableFuture<?>> last = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<Id, Long> distrust = new ConcurrentHashMap<>();

  /** A key and a token. */
  private static final class Id {
    private final byte[] key;
    private final byte[] token;

    Id(byte[] key, byte[] token) {
      this.key = key;
      this.token = token;
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Id id && Arrays.equals(key, id.key) && Arrays.equals(token, id.token);
    }

    @Override
    public int hashCode() {
      return 31 * Arrays.hashCode(key) + Arrays.hashCode(token);
    }
  }

  /** Adds a request. Completes when the earlier ones have ended, and never fails. */
  CompletableFuture<?> add(List<byte[]> keys, byte[] token, CompletableFuture<?> request) {
    if (keys.size() == 1) {
      return add(new Id(keys.get(0), token), request);
    }
    // One at a time: two requests must not wait for each other.
    synchronized (last) {
      return CompletableFuture.allOf(
          keys.stream()
              .map(key -> add(new Id(key, token), request))
              .toArray(CompletableFuture[]::new));
    }
  }

  private CompletableFuture<?> add(Id id, CompletableFuture<?> request) {
    CompletableFuture<?>[] earlier = {NONE};
    CompletableFuture<?> latest =
        last.compute(
            id,
            (same, before) -> {
              if (before == null) {
                return request;
              }
              earlier[0] = ended(before);
              return CompletableFuture.allOf(earlier[0], ended(request));
            });
    latest.whenComplete((result, error) -> last.remove(id, latest));
    return earlier[0];
  }

  private static CompletableFuture<?> ended(CompletableFuture<?> request) {
    return request.handle((result, error) -> null);
  }

  boolean areOver() {
    return last.isEmpty();
  }

  /**
   * Records that a request of this token was withdrawn, so that a message about it may come late.
   */
  void distrust(List<byte[]> keys, byte[] token) {
    long now = Clock.now();
    distrust.values().removeIf(until -> until < now);
    keys.forEach(
        key -> distrust.put(new Id(key, token), now + 2 * Limits.SLICE_MS + Limits.LATE_MS));
  }

  boolean isDistrusted(List<byte[]> keys, byte[] token) {
    return !distrust.isEmpty()
        && keys.stream()
            .anyMatch(key -> distrust.getOrDefault(new Id(key, token), -1L) > Clock.now());
  }
}
