package redislock;

import java.util.List;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/** Sends one command, and retries it while that may help, within its time limit. */
final class Repeat<T extends @Nullable Object> extends Task<T> {
  /** Interprets a reply; {@code sent}: when its request was sent. */
  interface Result<T extends @Nullable Object> {
    T of(@Nullable Object reply, long sent);
  }

  private final List<byte[]> words;
  private final Result<T> result;
  private final Function<Trouble, Step> failed;
  private Clock.Resend resend = new Clock.Resend(Limits.RESEND_MS);

  /** For a command under a lock: while a slot moves, possibly no node can run it. */
  private final Clock.Resend moving = new Clock.Resend(Limits.RELEASE_MS);

  private long withinMs = Limits.LATE_MS;
  private boolean runsOnce;

  /** Its deadline ends the retries, and each attempt; null: other limits apply. */
  private @Nullable Owner kept;

  private long sent;

  /** When the first attempt that got no reply was sent; {@link Clock#NEVER}: none. */
  volatile long unanswered = Clock.NEVER;

  private Repeat(byte[] key, List<byte[]> words, Result<T> result, Function<Trouble, Step> failed) {
    super(key);
    this.words = words;
    this.result = result;
    this.failed = failed;
  }

  private Repeat<T> until(long resendMs, long withinMs) {
    this.resend = new Clock.Resend(resendMs);
    this.withinMs = withinMs;
    return this;
  }

  @Override
  Step begin() {
    sent = Clock.now();
    return new Step.Send(
        words, kept == null ? withinMs : Math.max(1, Math.min(withinMs, kept.deadline - sent)));
  }

  /** True if it failed although the server may have executed it. */
  boolean mayHaveRun() {
    return unanswered != Clock.NEVER;
  }

  @Override
  Step reply(@Nullable Object reply) {
    return new Step.Done(result.of(reply, sent));
  }

  @Override
  Step trouble(Trouble trouble) {
    if (trouble.mayHaveRun()) {
      unanswered = Math.min(unanswered, sent);
    }
    if (kept != null) {
      boolean isOver = !trouble.heals() || Clock.now() >= kept.deadline;
      return isOver ? failed.apply(trouble) : new Step.Sleep(resend.pause(kept.deadline));
    }
    boolean helps = trouble.heals() && !(runsOnce && trouble.mayHaveRun());
    Clock.Resend limit = runsOnce && trouble.isRedirection() ? moving : resend;
    return helps && !limit.over() ? new Step.Sleep(limit.pause()) : failed.apply(trouble);
  }

  /** A query, retried for a second. */
  static <T extends @Nullable Object> Repeat<T> query(
      LockType lockType, String lock, List<byte[]> words, Result<T> result) {
    return new Repeat<>(
        lockType.key(), words, result, trouble -> new Step.GivenUp(trouble.translated(lock)));
  }

  /** LOCK.HELD; the result is null if the token does not hold the lock. */
  static Repeat<@Nullable Grant> held(LockType lockType, byte[] token, String lock) {
    return new Repeat<>(lockType.key(), lockType.held(token), Grant::ofHeld, orLost(lock));
  }

  /** A renewal with this lease; the result is when it was sent, or null if the lock was lost. */
  static Repeat<@Nullable Long> renewal(LockType lockType, Owner owner, long leaseMs) {
    return new Repeat<>(
        lockType.key(),
        lockType.renew(owner.token, leaseMs),
        (reply, sent) -> Words.number(reply) == 1 ? sent : null,
        orLost(owner.lock));
  }

  /**
   * A renewal by an owner that holds nothing, which changes nothing but is refused if the lease is
   * too long.
   */
  static List<byte[]> proof(LockType lockType, long leaseMs) {
    return lockType.renew(Context.newToken(), leaseMs);
  }

  /** The same as a query, which throws if the lease is refused. */
  static Repeat<Boolean> proof(LockType lockType, String lock, long leaseMs) {
    Function<Trouble, Step> failed =
        trouble ->
            trouble.meansLost() ? new Step.Done(false) : new Step.GivenUp(trouble.translated(lock));
    return new Repeat<>(lockType.key(), proof(lockType, leaseMs), (reply, sent) -> true, failed);
  }

  /** A renewal by a keeper, retried until the owner's deadline. */
  static Repeat<@Nullable Long> keeping(LockType lockType, Owner owner, long leaseMs) {
    Repeat<@Nullable Long> renewal = renewal(lockType, owner, leaseMs);
    renewal.kept = owner;
    return renewal;
  }

  private static Function<Trouble, Step> orLost(String lock) {
    return trouble ->
        trouble.meansLost() ? new Step.Done(null) : new Step.GivenUp(trouble.translated(lock));
  }

  /**
   * LOCK.EXEC, sent again only if it did not run for certain. Its result may be a {@link Trouble}.
   */
  static Repeat<@Nullable Object> exec(LockType lockType, byte[] token, List<byte[]> command) {
    Repeat<@Nullable Object> exec =
        new Repeat<>(
            lockType.key(),
            lockType.exec(token, command),
            (reply, sent) -> reply,
            trouble -> new Step.Done(trouble));
    exec.runsOnce = true;
    return exec;
  }

  /** A step of a cleanup, retried until it has run. It fails when the lease has expired. */
  static Repeat<@Nullable Object> cleanup(
      byte[] key, List<byte[]> words, long leaseMs, Result<@Nullable Object> result) {
    Function<Trouble, Step> failed =
        trouble -> trouble.heals() ? new Step.GivenUp(trouble.error) : new Step.Done(null);
    return new Repeat<>(key, words, result, failed).until(leaseMs, Limits.UNDO_MS);
  }
}
