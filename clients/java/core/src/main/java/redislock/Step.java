package redislock;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What a {@link Task} wants done next. All times are in milliseconds, points in time by {@link
 * Clock#now()}.
 */
sealed interface Step {
  /**
   * Send these words, and wait so long for the reply; {@code blocks}: the server may keep the reply
   * back meanwhile.
   */
  record Send(List<byte[]> words, long withinMs, boolean blocks) implements Step {}

  /** Subscribe to the messages about the task's key. */
  record Listen(long withinMs) implements Step {}

  /** Wait for a message about the task's request until then. */
  record Await(long until) implements Step {}

  record Sleep(long ms) implements Step {}

  /** The task is over, with this result. */
  record Done(@Nullable Object result) implements Step {}

  /** The task is over, and throws. */
  record Failed(RuntimeException error) implements Step {}
}
