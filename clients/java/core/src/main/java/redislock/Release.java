package redislock;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Gives holds back, and counts a release that was sent again as done; the result is false if the
 * lock was lost.
 */
final class Release extends Task<Boolean> {
  private final Family family;
  private final Owner owner;
  private final int holds;
  private final long keptUntil;
  private final boolean failed;
  private final boolean wasLost;
  private final Clock.Resend resend;
  private boolean mayBeDone;
  private boolean keeps = true;
  private boolean keeping;
  private boolean eachByItself;

  /** {@code keptUntil}: the server is to keep the lock until then, in place of freeing it. */
  Release(Family family, Owner owner, int holds, long keptUntil, boolean failed, long resendMs) {
    super(family.key());
    this.family = family;
    this.owner = owner;
    this.holds = holds;
    this.keptUntil = keptUntil;
    this.failed = failed;
    this.wasLost = owner.isLost();
    this.resend = new Clock.Resend(resendMs);
  }

  @Override
  Step begin() {
    long leftMs = keptUntil - Clock.now();
    keeping = keeps && leftMs > 0;
    List<byte[]> words =
        keeping ? family.renew(owner.token, leftMs) : family.release(owner.token, holds, failed);
    return new Step.Send(words, Limits.LATE_MS);
  }

  @Override
  Step reply(@Nullable Object reply) {
    long count = Words.number(reply);
    if (keeping) {
      if (count == 1) {
        return new Step.Done(true);
      }
      // One of several locks was lost: the others are released.
      keeps = false;
      return begin();
    }
    // A release that finds nothing because an earlier one, whose reply was lost, has run; not so if
    // the lock was known
    // to be lost before. If it finds some of several keys, no earlier one has run.
    return new Step.Done(family.wasHeld(count) || mayBeDone && !wasLost && count <= 0);
  }

  @Override
  Step trouble(Trouble trouble) {
    if (trouble.meansLost()) {
      eachByItself = true;
      return new Step.Done(false);
    }
    if (!trouble.heals() || resend.over()) {
      return new Step.GivenUp(trouble.translated(owner.lock));
    }
    mayBeDone |= trouble.mayHaveRun();
    return new Step.Sleep(resend.pause());
  }

  /**
   * Releases of each key, to be run beside the caller: a joint one changes nothing where one key is
   * no lock.
   */
  List<Repeat<@Nullable Object>> afterwards() {
    if (!eachByItself || family.keys.size() == 1) {
      return List.of();
    }
    return family.keys.stream()
        .map(key -> Repeat.release(key, owner.token, owner.leaseMs))
        .toList();
  }
}
