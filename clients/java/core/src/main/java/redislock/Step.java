package redislock;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What a {@link Task} wants done next. All times are in milliseconds, points in time by {@link
 * Clock#now()}.
 */
sealed interface Step {
  /**
   * Send these commands in one packet, and wait so long for the replies; {@code blocks}: the server
   * may keep the first one back meanwhile.
   */
  record Send(List<List<byte[]>> packet, long withinMs, boolean blocks) implements Step {
    Send(List<byte[]> words, long withinMs) {
      this(List.of(words), withinMs, false);
    }
  }

  /** Subscribe to the messages about the task's key. */
  record Listen(long withinMs) implements Step {}

  /** Wait for a message about the task's request until then. */
  record Await(long until) implements Step {}

  record Sleep(long ms) implements Step {}

  /** The task is over, with this result. */
  record Done(@Nullable Object result) implements Step {}

  /** The task is over: what it has left behind is undone; it throws, or its result is null. */
  record GivenUp(@Nullable RuntimeException error) implements Step {}
}
