package redislock;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What a {@link Task} wants its driver to do next. All times are in milliseconds; points in time
 * are those of {@link Clock#now()}.
 */
sealed interface Step {
  /**
   * Send these commands in one packet, and wait this long for the replies. {@code blocks}: the
   * server may delay the first one.
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

  /** The task has ended with this result. */
  record Done(@Nullable Object result) implements Step {}

  /** The task has ended. What it left behind is undone; then it throws, or its result is null. */
  record GivenUp(@Nullable RuntimeException error) implements Step {}
}
