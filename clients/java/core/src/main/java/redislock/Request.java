package redislock;

import java.util.concurrent.CompletableFuture;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * One acquire; its retries repeat the same words.
 *
 * @param tokenUsedBefore a late message may belong to an earlier request of the token
 * @param before the owner's holds in this mode, which remain if the request is withdrawn
 * @param otherMode true if the owner holds the other mode as well
 * @param session the grant is bound to the connection
 * @param coalesce a release by the holder ends this request with "done"
 * @param byMessage it waits for messages over a shared connection; otherwise on a dedicated one
 * @param isCluster redirections are followed
 * @param sliceMs the longest BLOCK
 * @param isDistrusted returns whether a message may concern an earlier, withdrawn request of the
 *     token
 * @param over completes when it has ended, and what it left on the server is undone
 * @param onQueued called when the server has queued it, maybe more than once
 * @param onRetry called once, before the first repetition after a failure
 */
record Request(
    LockType lockType,
    Owner owner,
    boolean tokenUsedBefore,
    int before,
    boolean otherMode,
    Settings settings,
    boolean session,
    boolean coalesce,
    WaitLimit waitLimit,
    boolean byMessage,
    boolean isCluster,
    long sliceMs,
    BooleanSupplier isDistrusted,
    CompletableFuture<@Nullable Void> over,
    Runnable onQueued,
    Consumer<RuntimeException> onRetry) {}
