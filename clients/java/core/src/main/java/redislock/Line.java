package redislock;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/**
 * A connection of one acquire's own: of a session, which is bound to it, or where WAIT has to
 * follow the grant. Replaced after a failure until it is kept.
 */
interface Line {
  /** From now on it is the session's: it is not replaced, and {@code ended} runs when it ends. */
  void keep(Runnable ended);

  /** Sends a command over the kept connection: a failure fails the future, or is its reply. */
  CompletableFuture<@Nullable Object> check(List<byte[]> words, long withinMs);

  /** Ends the connection, as a failure of the network does. */
  void cut();

  /** Closes it: what is under way fails, and no end is told. */
  void close();
}
