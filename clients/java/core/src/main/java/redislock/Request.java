package redislock;

import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

/**
 * One acquire; its retries repeat the same words.
 *
 * @param tokenUsedBefore a late message may belong to an earlier request of the token
 * @param before what the owner holds in this mode, and is left with if the request is withdrawn
 * @param otherMode true if it holds another mode too
 * @param session the grant belongs to the connection
 * @param coalesce a release by the holder answers this request too
 * @param byMessage it waits by messages over a shared connection, else on one of its own
 * @param isCluster redirections are followed
 * @param sliceMs the longest BLOCK
 * @param isDistrusted tells whether a message may be about an earlier request of the token, which
 *     was withdrawn
 * @param onQueued called when the server has queued it, maybe more than once
 * @param onRetry called once, before the first repetition after a failure
 */
record Request(
    Family family,
    Owner owner,
    boolean tokenUsedBefore,
    int before,
    boolean otherMode,
    Settings settings,
    boolean session,
    boolean coalesce,
    Patience patience,
    boolean byMessage,
    boolean isCluster,
    long sliceMs,
    BooleanSupplier isDistrusted,
    Runnable onQueued,
    Consumer<RuntimeException> onRetry) {}
