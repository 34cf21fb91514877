package redislock;

import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Requests a lock until it is granted or the acquire timeout has passed. The result is null if it
 * was not granted.
 *
 * <pre> PROVED, if a time of atLeast may be too long ──▶ ASKED … ASKED ──queued──▶ QUEUED
 * ──message, or a slice later──▶ ASKED …        (by message) ASKED ──nil, time left──▶ ASKED …
 * (blocking, or polling) ASKED ──granted──▶ RESTARTED, if it waited long ──▶ COMPARED, if another
 * mode is held ──▶ CONFIRMED by replicas
 * </pre>
 *
 * It must never end with an outcome that is unknown: {@link #undo()} withdraws what was sent and
 * not answered.
 */
class Acquire extends Task<@Nullable Grant> {
  enum State {
    PROVED,
    LISTENING,
    ASKED,
    QUEUED,
    RESTARTED,
    COMPARED,
    CONFIRMED,
    EXECUTED,
    HOLDER,
    TYPE
  }

  final Request request;
  private final boolean runs;
  private final WaitLimit waitLimit;
  private final Clock.Resend resend = new Clock.Resend(Limits.RESEND_MS);
  State state = State.ASKED;
  private @Nullable String channel;
  private long sent;

  /**
   * True if the outcome of a request is unknown, or it was granted: cancelling then has to withdraw
   * it.
   */
  boolean open;

  /**
   * False while the server might still refuse the time of atLeast, which only the release sends.
   */
  private boolean isProven;

  private boolean wasOpen;
  private boolean isFirst = true;
  private boolean queuedReported;

  /** True if a message about a grant may concern an earlier request of the token. */
  boolean tokenUsedBefore;

  /**
   * True if an earlier request was queued and its outcome not received, so a late message may
   * concern that request.
   */
  private boolean messagePending;

  /** The failure of the latest request; null if it got its reply. */
  private @Nullable Trouble unanswered;

  /** The latest failure since the last reply, including that of a subscription. */
  private @Nullable Trouble failure;

  /** The latest of these failures that says more than that nothing came in time. */
  private @Nullable Trouble cause;

  private boolean retryLogged;

  @Nullable Grant grant;

  /** True once its driver has begun to undo it. */
  final AtomicBoolean isUndone = new AtomicBoolean();

  private boolean releasesAll;
  private long retryAt;
  private long queuedUntil;
  private long movingUntil;

  /** The holder, if the lock was not granted and the caller asked for it; null if unknown. */
  @Nullable String holder;

  /** {@code runs}: each request is sent together with a command. */
  Acquire(Request request, boolean runs) {
    super(request.lockType().key());
    this.request = request;
    this.waitLimit = request.waitLimit();
    this.runs = runs;
    this.tokenUsedBefore = request.tokenUsedBefore();
    // If the time is not above the lease, the request itself proves it.
    this.isProven = request.settings().atLeastMs <= request.settings().leaseMs;
  }

  @Override
  Step begin() {
    return ask();
  }

  private Step ask() {
    if (!isProven) {
      state = State.PROVED;
      List<byte[]> words = Repeat.proof(request.lockType(), request.settings().atLeastMs);
      return new Step.Send(words, within(Limits.LATE_MS));
    }
    boolean isSubscribed = channel != null && !(runs && isFirst);
    // Most locks are free, so the first request is sent without a subscription.
    boolean isAtOnce = isFirst && request.byMessage() && !isSubscribed;
    isFirst = false;
    if (!waitLimit.queues() || isAtOnce) {
      return send(State.ASKED, List.of(), Limits.LATE_MS, false);
    }
    long leftMs = Math.max(1, waitLimit.ends() - Clock.now());
    if (!request.byMessage()) {
      long blockMs = Math.min(request.sliceMs(), leftMs);
      return send(State.ASKED, blocking(blockMs), blockMs + Limits.LATE_MS, true);
    }
    if (channel == null) {
      return listen();
    }
    // Twice the slice, because a client that is paused would otherwise miss lock.keep-place.
    long blockMs = Math.min(2 * Limits.SLICE_MS, leftMs);
    queuedUntil = Clock.now() + blockMs;
    return send(State.ASKED, Words.of(blocking(blockMs), "NOTIFY", channel), Limits.LATE_MS, false);
  }

  private List<byte[]> blocking(long blockMs) {
    return Words.of("BLOCK", blockMs, request.coalesce() ? List.of("COALESCE") : List.of());
  }

  private Step listen() {
    state = State.LISTENING;
    return new Step.Listen(Math.max(1, Math.min(Limits.LATE_MS, waitLimit.ends() - Clock.now())));
  }

  /** The packet for a request with these words. {@code isNotified}: it waits by message. */
  List<List<byte[]>> packet(List<byte[]> words, boolean isNotified) {
    return List.of(words);
  }

  private Step send(State next, List<byte[]> tail, long longestMs, boolean blocks) {
    int holds = request.before() + request.settings().permits;
    List<byte[]> words =
        Words.of(
            request.lockType().acquire(request.owner().token, holds, request.settings().leaseMs),
            tail,
            request.session() ? List.of("SESSION") : List.of());
    state = next;
    wasOpen = open;
    open = true;
    sent = Clock.now();
    boolean isNotified = !blocks && !tail.isEmpty();
    return new Step.Send(packet(words, isNotified), within(longestMs), blocks);
  }

  /**
   * Limits the last attempt of an acquire that waits, so that the caller gets its result in time.
   */
  private long within(long longestMs) {
    long leftMs = waitLimit.ends() + Limits.LATE_REPLY_MS - Clock.now();
    return waitLimit.waitMs() == 0 ? longestMs : Math.max(1, Math.min(longestMs, leftMs));
  }

  @Override
  Step reply(@Nullable Object reply) {
    switch (state) {
      case PROVED:
        return proven();
      case COMPARED:
        // This counts the holds of both modes, so if there are no more than the grant's, the other
        // mode was lost.
        boolean wasLost =
            !(reply instanceof List<?> list) || Words.number(list.get(1)) <= grant.holds();
        return wasLost ? lostBefore() : confirm();
      case CONFIRMED:
        long confirmed = Words.number(reply);
        return confirmed >= request.settings().replicas
            ? new Step.Done(grant)
            : notReplicated(confirmed);
      case TYPE:
        return new Step.GivenUp(wrongType(Words.text(reply)));
      case HOLDER:
        String first = LockInfo.firstHolder(reply);
        // A request that was granted after its time is withdrawn.
        boolean isOwn = Words.text(request.owner().token).equals(first);
        holder = open && isOwn ? null : first;
        return notAcquired();
      default:
        return answered(reply);
    }
  }

  private Step proven() {
    isProven = true;
    failure = null;
    cause = null;
    unanswered = null;
    return ask();
  }

  private Step answered(@Nullable Object reply) {
    if (!runs) {
      // Even after a grant the command may be refused, and is sent again.
      resend.answered();
    }
    unanswered = null;
    failure = null;
    cause = null;
    if (!(reply instanceof List<?> list)) {
      // A queued request stays queued even if a later one that does not wait gets nil.
      open = wasOpen && request.byMessage() && channel == null;
      return notGranted();
    }
    long fence = Words.number(list.get(1));
    if (list.get(0) == null) {
      open = false;
      return new Step.Done(Grant.done(fence));
    }
    if (fence == 0) {
      reportQueued();
      state = State.QUEUED;
      // Random, to spread the retries of requests that started to wait together.
      long slice =
          Clock.now() < movingUntil
              ? Limits.MOVING_SLICE_MS
              : Clock.random(Limits.SLICE_MS, 0.8, 1);
      retryAt = Math.min(sent + slice, queuedUntil + Limits.LATE_MESSAGE_MS);
      return new Step.Await(retryAt);
    }
    grant = Grant.of(list, deadline(sent));
    if (state == State.ASKED && !runs && isLate()) {
      // The lease began with the grant, which may be later than the request by a slice, or by the
      // time to connect. Asking again restarts it.
      return send(State.RESTARTED, List.of(), Limits.LATE_MS, false);
    }
    return granted();
  }

  private void reportQueued() {
    if (!queuedReported) {
      queuedReported = true;
      request.onQueued().run();
    }
  }

  @Override
  void blocked() {
    if (state == State.ASKED) {
      reportQueued();
    }
  }

  @Override
  void subscribed(String channel) {
    this.channel = channel;
  }

  private long deadline(long since) {
    return request.settings().leaseMs == LockType.PERSIST
        ? Clock.NEVER
        : Clock.after(since, request.settings().leaseMs);
  }

  private boolean isLate() {
    return request.settings().leaseMs != LockType.PERSIST
        && Clock.now() - sent >= request.settings().leaseMs / 10;
  }

  private Step granted() {
    long fence = request.owner().fence;
    if (request.owner().lost.isDone()) {
      return lostBefore();
    }
    if (fence != 0 && grant.fence() != fence) {
      if (!request.otherMode()) {
        return lostBefore();
      }
      // An upgrade has a new fence, so only the server knows whether READ lasted until then.
      state = State.COMPARED;
      return new Step.Send(request.lockType().held(request.owner().token), within(Limits.LATE_MS));
    }
    return confirm();
  }

  /** Completes a grant. */
  Step confirm() {
    Settings settings = request.settings();
    if (settings.replicas == 0) {
      return new Step.Done(grant);
    }
    state = State.CONFIRMED;
    List<byte[]> words = Words.of("WAIT", settings.replicas, settings.replicaTimeoutMs);
    return new Step.Send(List.of(words), settings.replicaTimeoutMs + Limits.LATE_MS, true);
  }

  private Step notReplicated(long confirmed) {
    String message =
        "%d of %d replicas confirmed the grant within %d ms: released"
            .formatted(confirmed, request.settings().replicas, request.settings().replicaTimeoutMs);
    return new Step.GivenUp(new NotReplicatedException(message, request.owner().lock));
  }

  private Step lostBefore() {
    releasesAll = true;
    return new Step.GivenUp(
        new LockLostException(
            "the lock was lost before it was acquired again, so the new hold was released",
            request.owner().lock));
  }

  /** The acquire timeout has passed. */
  private Step notInTime() {
    if (!request.settings().tellHolder) {
      return notAcquired();
    }
    state = State.HOLDER;
    return new Step.Send(Words.of("LOCK.INFO", key, "COUNT", 1), Limits.LATE_REPLY_MS);
  }

  /** The message about the end of the wait may be lost, and then the request is withdrawn. */
  private Step notAcquired() {
    return open ? new Step.GivenUp(null) : new Step.Done(null);
  }

  private Step notGranted() {
    if (waitLimit.waitMs() == 0) {
      open = false; // It was never queued.
      return notInTime();
    }
    if (waitLimit.pollMs() > 0) {
      // Jittered, because old and new clients that poll in step would starve each other.
      long ms = Clock.random(waitLimit.pollMs(), 0.5, 1.5);
      return Clock.now() + ms > waitLimit.ends() ? notInTime() : new Step.Sleep(ms);
    }
    if (request.byMessage() && channel == null && Clock.now() < waitLimit.ends()) {
      return listen();
    }
    return again();
  }

  /** The next request, or the end of the wait. */
  private Step again() {
    if (waitLimit.waitMs() == 0 || Clock.now() < waitLimit.ends()) {
      return ask();
    }
    if (unanswered != null) {
      return failed(unanswered, null);
    }
    return notInTime();
  }

  @Override
  Step trouble(Trouble trouble) {
    switch (state) {
      case TYPE:
        return new Step.GivenUp(wrongType("something else"));
      case HOLDER:
        return notAcquired();
      case CONFIRMED:
        return new Step.GivenUp(trouble.translated(request.owner().lock));
      case ASKED, RESTARTED:
        open = wasOpen || trouble.mayHaveRun();
        unanswered = trouble;
        break;
      case PROVED:
        if (trouble.meansLost()) {
          // The acquire itself reports a key of another type.
          return proven();
        }
        unanswered = trouble;
        break;
      case EXECUTED:
        unanswered = trouble;
        break;
      default:
        break;
    }
    failure = trouble;
    Trouble earlier = cause;
    cause = trouble.isTimeout() ? cause : trouble;
    String code = trouble.code();
    if (code.equals("ASK") || code.equals("TRYAGAIN")) {
      movingUntil = Clock.now() + Limits.RESEND_MS;
    }
    if ((code.equals("MOVED") || code.equals("ASK")) && !request.isCluster()) {
      return new Step.GivenUp(trouble.noCluster(request.owner().lock));
    }
    if (code.equals("WRONGTYPE") && waitLimit.pollMs() == 0) {
      unanswered = trouble;
      state = State.TYPE;
      return new Step.Send(Words.of("TYPE", key), within(Limits.LATE_MS));
    }
    if (!waitLimit.queues() && (code.equals("WRONGTYPE") || code.equals("GRACE"))) {
      unanswered = null;
      failure = null;
      cause = null;
      return notGranted();
    }
    boolean isOnce = waitLimit.waitMs() == 0;
    boolean isOver = isOnce ? resend.over() : Clock.now() >= waitLimit.ends();
    if (isOver && trouble.heals() && state == State.LISTENING) {
      return again();
    }
    if (isOver || !trouble.heals()) {
      return failed(trouble, earlier);
    }
    if (state == State.LISTENING) {
      channel = null;
    }
    return new Step.Sleep(isOnce ? resend.pause() : resend.pause(waitLimit.ends()));
  }

  /** {@code earlier}: the cause so far, because the end of a last attempt may say less. */
  private Step failed(Trouble trouble, @Nullable Trouble earlier) {
    RuntimeException error = trouble.translated(request.owner().lock);
    if (earlier != null && trouble.stage != Trouble.Stage.REFUSED && earlier.error != error) {
      error.addSuppressed(earlier.error);
    }
    return new Step.GivenUp(error);
  }

  /** What prevented the request, or the message about its grant; null if nothing did. */
  @Nullable RuntimeException hindrance() {
    Trouble latest = cause != null ? cause : failure;
    return latest == null ? null : latest.error;
  }

  @Override
  Step slept() {
    if (failure != null && !retryLogged && !failure.isRedirection()) {
      retryLogged = true;
      request.onRetry().accept(failure.error);
    }
    return again();
  }

  @Override
  Step notice(@Nullable Notice notice) {
    boolean mayBeEarlier = tokenUsedBefore || messagePending;
    messagePending = true;
    if (notice == null) {
      return again();
    }
    switch (notice.outcome()) {
      case "granted":
        boolean isIncomplete =
            notice.fence() == 0 || request.lockType().hasSlots() && notice.slot() < 0;
        if (isLate() || tokenUsedBefore || isIncomplete) {
          return ask();
        }
        grant = new Grant(false, notice.fence(), notice.holds(), deadline(sent), notice.slot());
        return granted();
      case "done":
        if (mayBeEarlier || notice.fence() == 0) {
          return again();
        }
        open = false;
        return new Step.Done(Grant.done(notice.fence()));
      case "timeout":
        // Too early for this request, so the message belongs to an earlier one.
        if (Clock.now() < queuedUntil - 5) {
          return new Step.Await(retryAt);
        }
        messagePending = false;
        open = false;
        return again();
      case "cancelled":
        if (request.isDistrusted().getAsBoolean()) {
          return again();
        }
        return new Step.GivenUp(new WaitCancelledException("cancelled", request.owner().lock));
      case "superseded", "unblocked":
        return new Step.Sleep(
            Math.min(Clock.random(250, 0.5, 1), Math.max(0, waitLimit.ends() - Clock.now())));
      case "interrupted", "moved":
        // The subscription may have ended. The next request subscribes again.
        channel = null;
        return again();
      default:
        // A key of another type, or a lost permission: the reply to the next request has the
        // reason.
        return ask();
    }
  }

  private RuntimeException wrongType(String found) {
    String lock = request.owner().lock;
    String hint =
        found.equals("string")
            ? "; a SET NX client may hold it: mixed() shares the lock with such clients"
            : "";
    String message = "the key \"" + lock + "\" is a " + found + ", not a lock" + hint;
    return (LockException) new WrongTypeException(message, lock).initCause(unanswered.error);
  }

  /**
   * Removes the request from the queue, then releases its grant. LOCK.CANCEL comes first, because a
   * release alone could arrive just before the grant.
   */
  List<Repeat<@Nullable Object>> undo() {
    LockType lockType = request.lockType();
    Owner owner = request.owner();
    int left = releasesAll ? 0 : request.before();
    // The release says FAILED, because reporting the work as done would keep the waiting callers
    // from doing it.
    List<byte[]> release = lockType.release(owner.token, left, request.coalesce());
    Repeat.Result<@Nullable Object> held =
        (reply, sent) -> {
          Grant found = Grant.ofHeld(reply, sent);
          if (found != null) {
            owner.fence = found.fence();
          }
          return reply;
        };
    return Stream.of(
            undo(lockType.cancel(owner.token), (reply, sent) -> reply),
            undo(release, (reply, sent) -> reply),
            // READ keeps the fence of an upgrade that was released.
            undo(lockType.held(owner.token), held))
        .limit(request.otherMode() ? 3 : 2)
        .toList();
  }

  private Repeat<@Nullable Object> undo(
      List<byte[]> words, Repeat.Result<@Nullable Object> result) {
    Owner owner = request.owner();
    long leaseMs = request.settings().leaseMs;
    // An earlier hold may have a longer lease.
    long retryMs = owner.fence > 0 ? Math.max(leaseMs, owner.retryMs()) : leaseMs;
    return Repeat.cleanup(key, words, retryMs, result);
  }

  @Override
  long keptMs() {
    // The time that has passed since the timeout counts towards the delay of the caller.
    long ms =
        waitLimit.waitMs() == 0 ? Limits.KEPT_MS : waitLimit.ends() + Limits.KEPT_MS - Clock.now();
    return Math.max(0, Math.min(Limits.KEPT_MS, ms));
  }
}
