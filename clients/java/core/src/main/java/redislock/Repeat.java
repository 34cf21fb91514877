package redislock;

import java.util.List;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** Sends one command, and sends it again where that may help, until its time is over. */
final class Repeat<T extends @Nullable Object> extends Task<T> {
  private final Supplier<List<byte[]>> words;
  private final BiFunction<@Nullable Object, Long, T> result;
  private final Function<Trouble, Step> failed;
  private final Predicate<Trouble> helps;
  private final Clock.Resend resend;
  private final long withinMs;
  private long sent;

  private Repeat(
      byte[] key,
      Supplier<List<byte[]>> words,
      Predicate<Trouble> helps,
      Clock.Resend resend,
      long withinMs,
      BiFunction<@Nullable Object, Long, T> result,
      Function<Trouble, Step> failed) {
    super(key);
    this.words = words;
    this.helps = helps;
    this.resend = resend;
    this.withinMs = withinMs;
    this.result = result;
    this.failed = failed;
  }

  @Override
  Step begin() {
    sent = Clock.now();
    return new Step.Send(words.get(), withinMs);
  }

  @Override
  Step reply(@Nullable Object reply) {
    return new Step.Done(result.apply(reply, sent));
  }

  @Override
  Step trouble(Trouble trouble) {
    if (!helps.test(trouble) || resend.over()) {
      return failed.apply(trouble);
    }
    return new Step.Sleep(resend.pause());
  }

  @Override
  Step slept() {
    return begin();
  }

  /** For a second. {@code result} gets the reply, and when the request was sent. */
  static <T extends @Nullable Object> Repeat<T> shortly(
      byte[] key, String lock, List<byte[]> words, BiFunction<@Nullable Object, Long, T> result) {
    Clock.Resend resend = new Clock.Resend(Limits.RESEND_MS, 250);
    return new Repeat<>(
        key,
        () -> words,
        Trouble::heals,
        resend,
        Limits.LATE_MS,
        result,
        trouble -> new Step.GivenUp(trouble.translated(lock)));
  }

  /** LOCK.HELD; the result is null if the token does not hold the lock. */
  static Repeat<@Nullable Grant> held(Family family, byte[] token, String lock) {
    Clock.Resend resend = new Clock.Resend(Limits.RESEND_MS, 250);
    List<byte[]> words = family.held(token);
    return new Repeat<>(
        family.key(),
        () -> words,
        Trouble::heals,
        resend,
        Limits.LATE_MS,
        Grant::ofHeld,
        trouble ->
            trouble.meansLost() ? new Step.Done(null) : new Step.GivenUp(trouble.translated(lock)));
  }

  /** A renewal with this lease; the result is the new deadline, or null if the lock was lost. */
  static Repeat<@Nullable Long> renewal(Family family, byte[] token, String lock, long leaseMs) {
    List<byte[]> words = family.renew(token, leaseMs);
    Clock.Resend resend = new Clock.Resend(Limits.RESEND_MS, 250);
    return new Repeat<>(
        family.key(),
        () -> words,
        Trouble::heals,
        resend,
        Limits.LATE_MS,
        (reply, sent) -> Words.number(reply) == 1 ? Clock.after(sent, leaseMs) : null,
        trouble ->
            trouble.meansLost() ? new Step.Done(null) : new Step.GivenUp(trouble.translated(lock)));
  }

  /** A renewal of a keeper: until the deadline, in attempts that end there. */
  static Repeat<@Nullable Long> keeping(
      Family family, byte[] token, String lock, long leaseMs, long deadline) {
    List<byte[]> words = family.renew(token, leaseMs);
    long leftMs = Math.max(50, deadline - Clock.now());
    return new Repeat<>(
        family.key(),
        () -> words,
        Trouble::heals,
        new Clock.Resend(leftMs, 250),
        leftMs,
        (reply, sent) -> Words.number(reply) == 1 ? Clock.after(sent, leaseMs) : null,
        trouble ->
            trouble.meansLost() ? new Step.Done(null) : new Step.GivenUp(trouble.translated(lock)));
  }

  /** LOCK.EXEC: sent again only if it certainly did not run. */
  static Repeat<@Nullable Object> exec(
      Family family, byte[] token, String lock, List<byte[]> command) {
    List<byte[]> words = family.exec(token, command);
    return new Repeat<>(
        family.key(),
        () -> words,
        trouble -> trouble.heals() && !trouble.mayHaveRun(),
        new Clock.Resend(Limits.RESEND_MS, 250),
        Limits.LATE_MS,
        (reply, sent) -> reply,
        trouble -> new Step.GivenUp(new Refused(trouble)));
  }

  /**
   * A command that takes something back: until it has run, or the lease is over. Its result is its
   * reply.
   */
  static Repeat<@Nullable Object> undone(byte[] key, List<byte[]> words, long leaseMs) {
    return new Repeat<>(
        key,
        () -> words,
        Trouble::heals,
        new Clock.Resend(leaseMs, 1000),
        Limits.UNDO_MS,
        (reply, sent) -> reply,
        trouble -> new Step.Done(null));
  }

  /** The failure of a LOCK.EXEC, before it is known whose error it is. */
  static final class Refused extends RuntimeException {
    private static final long serialVersionUID = 1;

    final transient Trouble trouble;

    Refused(Trouble trouble) {
      super(null, null, false, false);
      this.trouble = trouble;
    }
  }
}
