package redislock;

import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * One acquire; its retries repeat the same words.
 *
 * @param lock the name of the lock
 * @param tokenUsedBefore a late message may belong to an earlier request of the token
 * @param before what the owner holds in this mode, and is left with if the request is withdrawn
 * @param holds what it is to hold
 * @param otherMode true if it holds another mode too
 * @param session the grant belongs to the connection
 * @param coalesce a release by the holder answers this request too
 * @param mode how it waits
 * @param sliceMs the longest BLOCK
 * @param isDistrusted tells whether a message may be about an earlier request of the token, which
 *     was withdrawn
 * @param onQueued called when the server has queued it, maybe more than once
 */
record Request(
    Family family,
    String lock,
    Owner owner,
    boolean tokenUsedBefore,
    int before,
    int holds,
    boolean otherMode,
    Settings settings,
    boolean session,
    boolean coalesce,
    Patience patience,
    Acquire.Mode mode,
    long sliceMs,
    BooleanSupplier isDistrusted,
    Runnable onQueued) {
  byte[] token() {
    return owner.token;
  }

  long leaseMs() {
    return settings.leaseMs;
  }

  List<byte[]> words() {
    return family.acquire(token(), holds, leaseMs());
  }
}
