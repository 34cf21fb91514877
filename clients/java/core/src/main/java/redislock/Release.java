package redislock;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Releases holds, and counts a release that was sent again as successful. The result is false if
 * the lock was lost.
 */
final class Release extends Task<Boolean> {
  /** Why it is released. */
  enum How {
    /** The caller waits until it has run, and may try again. This is not so with the others. */
    DONE,
    /** At the end of a block, whose body may have thrown. */
    ENDED,
    /** The work failed. */
    FAILED
  }

  final How how;

  /** The owner's holds in this mode after the release. */
  final int left;

  /** True if the owner holds nothing after the release. */
  final boolean isLast;

  /** The server keeps the lock until then, instead of freeing it. */
  final long keptUntil;

  private final LockType lockType;
  private final Owner owner;
  private final boolean wasLost;
  private final Clock.Resend resend;
  private boolean mayBeDone;
  private boolean keeps = true;
  private boolean keeping;

  /**
   * Separate releases of each key, to run in the background. A joint release changes nothing if one
   * key is not a lock.
   */
  List<Repeat<@Nullable Object>> afterwards = List.of();

  Release(LockType lockType, Owner owner, int perHold, How how) {
    super(lockType.key());
    this.lockType = lockType;
    this.owner = owner;
    this.how = how;
    left = Math.max(0, owner.holds(lockType.mode()) - perHold);
    isLast = left == 0 && !owner.holdsBeside(lockType.mode());
    keptUntil = isLast && how != How.FAILED ? owner.keptUntil : -Clock.NEVER;
    wasLost = owner.isLost();
    resend = new Clock.Resend(isLast && how != How.DONE ? owner.retryMs() : Limits.RELEASE_MS);
  }

  @Override
  Step begin() {
    long leftMs = keptUntil - Clock.now();
    keeping = keeps && leftMs > 0;
    List<byte[]> words =
        keeping
            ? lockType.renew(owner.token, leftMs)
            : lockType.release(owner.token, left, how == How.FAILED);
    return new Step.Send(words, Limits.LATE_MS);
  }

  @Override
  Step reply(@Nullable Object reply) {
    long count = Words.number(reply);
    if (keeping) {
      if (count == 1) {
        return new Step.Done(!wasLost);
      }
      // One of multiple locks was lost: release the others.
      keeps = false;
      return begin();
    }
    // A loss that was known before remains a loss, even if the server still had the lock. A release
    // finds nothing if an earlier one ran whose reply was lost. If it finds some of multiple keys,
    // no earlier one has run.
    return new Step.Done(!wasLost && (lockType.wasHeld(count) || mayBeDone && count <= 0));
  }

  @Override
  Step trouble(Trouble trouble) {
    if (trouble.meansLost()) {
      if (lockType.keys().size() > 1) {
        afterwards = lockType.keys().stream().map(this::byItself).toList();
      }
      return new Step.Done(false);
    }
    if (!trouble.heals() || resend.over()) {
      return new Step.GivenUp(trouble.translated(owner.lock));
    }
    mayBeDone |= trouble.mayHaveRun();
    return new Step.Sleep(resend.pause());
  }

  private Repeat<@Nullable Object> byItself(byte[] key) {
    List<byte[]> words = Words.of("LOCK.RELEASE", key, owner.token);
    return Repeat.cleanup(key, words, owner.retryMs(), (reply, sent) -> reply);
  }
}
