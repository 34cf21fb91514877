package redislock;

/** The protocol's times, in milliseconds. */
final class Limits {
  /** A queued request is sent again after so long: the most that a lost message costs. */
  static final long SLICE_MS = 5000;

  /** While a slot is being moved, messages may not arrive. */
  static final long MOVING_SLICE_MS = 250;

  /** How late a request's message may come, counted from the end of its time. */
  static final long LATE_MESSAGE_MS = 250;

  /** A blocking request without a reply for so long counts as queued. */
  static final long QUEUED_MS = 100;

  /** How late the last attempt may end, counted from the end of the caller's time. */
  static final long LATE_REPLY_MS = 1000;

  /** After this time a missing reply counts as lost. */
  static final long LATE_MS = 5000;

  /** For so long a request that does not wait is sent again. */
  static final long RESEND_MS = 1000;

  /** For so long a release is sent again, or a command of a slot that moves. */
  static final long RELEASE_MS = 10_000;

  /**
   * So long a caller that gives up waits for its cleanup, which then goes on beside it until the
   * lease is over.
   */
  static final long KEPT_MS = 1000;

  /** The time limit of one attempt of a cleanup. */
  static final long UNDO_MS = 2000;

  private Limits() {}
}
