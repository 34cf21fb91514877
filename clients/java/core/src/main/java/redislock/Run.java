package redislock;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Requests a lock, runs a command under it, and releases it, in one packet. Over a shared
 * connection that packet does not wait. If it is not granted, the request waits like any other, and
 * the command and the release follow the grant in one packet.
 *
 * <p>It must never send a command again that may have run.
 */
final class Run extends Acquire {
  private final List<List<byte[]>> behind;

  /** The replies to the packet: that of the acquire, then those of the command and the release. */
  private List<@Nullable Object> packet = List.of();

  private boolean isWhole;

  /** The command's reply. */
  @Nullable Object reply;

  /** Why there is no reply after a grant; null if there is one. */
  @Nullable RuntimeException error;

  Run(Request request, List<byte[]> command) {
    super(request, true);
    LockType lockType = request.lockType();
    behind =
        List.of(
            lockType.exec(request.owner().token, command),
            lockType.release(request.owner().token, request.before(), false));
  }

  @Override
  List<List<byte[]>> packet(List<byte[]> words, boolean isNotified) {
    isWhole = !isNotified;
    return isWhole ? List.of(words, behind.get(0), behind.get(1)) : List.of(words);
  }

  @Override
  Step replies(List<@Nullable Object> replies) {
    if (state == State.EXECUTED) {
      return executed(replies.get(0), replies.get(replies.size() - 1));
    }
    boolean mayHaveRun = replies.get(0) instanceof Trouble trouble && trouble.mayHaveRun();
    if (state == State.ASKED && isWhole && mayHaveRun) {
      return new Step.GivenUp(((Trouble) replies.get(0)).error);
    }
    packet = replies;
    return super.replies(replies);
  }

  @Override
  Step confirm() {
    state = State.EXECUTED;
    return isWhole
        ? executed(packet.get(1), packet.get(2))
        : new Step.Send(behind, Limits.LATE_MS, false);
  }

  private Step executed(@Nullable Object executed, @Nullable Object released) {
    // A message may have reported the grant of this token.
    tokenUsedBefore = true;
    open = released instanceof Trouble;
    if (!(executed instanceof Trouble trouble)) {
      reply = executed;
      return new Step.Done(grant);
    }
    if (trouble.mayHaveRun()) {
      return new Step.GivenUp(trouble.error);
    }
    // WRONGTYPE may concern the lock's key, in which case the release gets it as well, or the
    // command's own.
    boolean isNoLock =
        trouble.code().equals("WRONGTYPE")
            && released instanceof Trouble refused
            && refused.meansLost();
    if (!isWhole && trouble.asked() != null && released instanceof Trouble) {
      // The key has moved to the node that granted the lock.
      return new Step.Send(behind, Limits.LATE_MS, false);
    }
    if (!isNoLock && trouble.heals()) {
      return trouble(trouble);
    }
    error =
        isNoLock || trouble.code().equals("NOTHELD")
            ? LockLostException.notRun(request.owner().lock, trouble.error)
            : trouble.ownError(request.owner().lock);
    return new Step.Done(grant);
  }
}
