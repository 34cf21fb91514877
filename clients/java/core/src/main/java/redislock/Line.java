package redislock;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/**
 * A dedicated connection of one acquire: of a session, which is bound to it, or of a grant that
 * WAIT has to follow. It is replaced after a failure until it is kept.
 */
interface Line {
  /**
   * From now on it belongs to the session: it is no longer replaced, and {@code ended} runs when it
   * ends.
   */
  void keep(Runnable ended);

  /** Sends a command over the kept connection. A failure fails the future, or is its reply. */
  CompletableFuture<@Nullable Object> check(List<byte[]> words, long withinMs);

  /** Ends the connection as a network failure would. */
  void cut();

  /** Closes it. Outstanding commands fail, and {@code ended} is not called. */
  void close();
}
