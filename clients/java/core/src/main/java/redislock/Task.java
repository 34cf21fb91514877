package redislock;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A routine of the protocol that does no I/O: told what has happened, it says what to do next. A
 * {@link Driver} runs it, one step after the other, and each step has one outcome:
 *
 * <pre>
 *   Send    replies                 Listen  slept or trouble
 *   Await   notice                  Sleep   slept
 * </pre>
 *
 * @param <T> the type of its result
 */
abstract class Task<T extends @Nullable Object> {
  final byte[] key;

  Task(byte[] key) {
    this.key = key;
  }

  abstract Step begin();

  /**
   * The replies to what was sent, with a {@link Trouble} in place of one that has not come; or only
   * one, for all of them.
   */
  Step replies(List<@Nullable Object> replies) {
    Object first = replies.get(0);
    return first instanceof Trouble trouble ? trouble(trouble) : reply(first);
  }

  abstract Step reply(@Nullable Object reply);

  abstract Step trouble(Trouble trouble);

  Step slept() {
    return begin();
  }

  /** Before the first step, and before the one that follows Listen: this channel is subscribed. */
  void subscribed(String channel) {}

  /**
   * A blocking request has had no reply for {@link Limits#QUEUED_MS}: it waits. Called beside the
   * steps.
   */
  void blocked() {}

  /** A message about the request; null: none has come in time. */
  Step notice(@Nullable Notice notice) {
    throw new IllegalStateException("this task awaits no message");
  }

  /** How long the caller of a failed task is kept for what undoes it. */
  long keptMs() {
    return Limits.KEPT_MS;
  }

  /**
   * A message that the server published about a queued request. {@code interrupted}: one may be
   * lost.
   */
  record Notice(String outcome, long fence, int holds, int slot) {
    static final Notice INTERRUPTED = new Notice("interrupted", 0, 0, -1);
  }
}
