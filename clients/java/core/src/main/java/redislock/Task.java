package redislock;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A routine of the protocol, without I/O: given the outcome of a step, it returns the next one. A
 * {@link Driver} runs it step by step, and each step has one outcome:
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
   * The replies to the packet, with a {@link Trouble} for each that did not come, or a single one
   * for all.
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

  /**
   * This channel is subscribed. Called before the first step, and before the one that follows
   * Listen.
   */
  void subscribed(String channel) {}

  /**
   * A blocking request has had no reply for {@link Limits#QUEUED_MS}, so it waits. Called in
   * parallel to the steps.
   */
  void blocked() {}

  /** A message about the request; null if none came in time. */
  Step notice(@Nullable Notice notice) {
    throw new IllegalStateException("this task awaits no message");
  }

  /** How long the caller of a failed task waits for the cleanup. */
  long keptMs() {
    return Limits.KEPT_MS;
  }

  /**
   * A message that the server published about a queued request. {@code interrupted}: a message may
   * be lost.
   */
  record Notice(String outcome, long fence, int holds, int slot) {
    static final Notice INTERRUPTED = new Notice("interrupted", 0, 0, -1);
  }
}
