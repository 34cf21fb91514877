package redislock;

import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * The withdrawals and releases under way, by key and token: the owner's next acquire waits for
 * them. Otherwise one that arrives late, or is sent again, would end that acquire's grant.
 */
final class Endings {
  private final ConcurrentHashMap<String, Set<CompletableFuture<?>>> byOwner =
      new ConcurrentHashMap<>();
  private final ConcurrentHashMap<String, Long> distrust = new ConcurrentHashMap<>();

  void add(List<byte[]> keys, byte[] token, CompletableFuture<?> ending) {
    for (byte[] key : keys) {
      String id = id(key, token);
      byOwner.compute(
          id,
          (same, endings) -> {
            Set<CompletableFuture<?>> all =
                endings == null ? ConcurrentHashMap.newKeySet() : endings;
            all.add(ending);
            return all;
          });
      ending.whenComplete(
          (result, error) ->
              byOwner.computeIfPresent(
                  id,
                  (same, endings) -> {
                    endings.remove(ending);
                    return endings.isEmpty() ? null : endings;
                  }));
    }
  }

  boolean areOver() {
    return byOwner.isEmpty();
  }

  /** Completes when all of the owner's are over; null: there are none. Never fails. */
  @Nullable CompletableFuture<?> settled(List<byte[]> keys, byte[] token) {
    if (byOwner.isEmpty()) {
      return null;
    }
    CompletableFuture<?>[] all =
        keys.stream()
            .flatMap(key -> byOwner.getOrDefault(id(key, token), Set.of()).stream())
            .map(each -> each.handle((result, error) -> null))
            .toArray(CompletableFuture[]::new);
    return all.length == 0 ? null : CompletableFuture.allOf(all);
  }

  /**
   * A request of this token that waits by message is withdrawn: a message about it may come late.
   */
  void distrust(List<byte[]> keys, byte[] token) {
    long now = Clock.now();
    distrust.values().removeIf(until -> until < now);
    keys.forEach(key -> distrust.put(id(key, token), now + 2 * Limits.SLICE_MS + Limits.LATE_MS));
  }

  long distrustUntil(List<byte[]> keys, byte[] token) {
    return distrust.isEmpty()
        ? -Clock.NEVER
        : keys.stream()
            .mapToLong(key -> distrust.getOrDefault(id(key, token), -Clock.NEVER))
            .max()
            .orElseThrow();
  }

  private static String id(byte[] key, byte[] token) {
    return Words.told(key) + ' ' + Words.told(token);
  }
}
