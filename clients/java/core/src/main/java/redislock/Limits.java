package redislock;

/** The protocol's times, in milliseconds. */
final class Limits {
  /**
   * After this time a queued request is sent again, which is the most that a lost message costs.
   */
  static final long SLICE_MS = 5000;

  /** The slice while a slot is moving, because messages may not arrive. */
  static final long MOVING_SLICE_MS = 250;

  /** How long after the request has timed out its message may come. */
  static final long LATE_MESSAGE_MS = 250;

  /** A blocking request without a reply for this long counts as queued. */
  static final long QUEUED_MS = 100;

  /** How long the last attempt may go on after the acquire timeout. */
  static final long LATE_REPLY_MS = 1000;

  /** After this time a missing reply counts as lost. */
  static final long LATE_MS = 5000;

  /** How long a request that does not wait is retried. */
  static final long RESEND_MS = 1000;

  /** How long a release is retried, or a command whose slot is moving. */
  static final long RELEASE_MS = 10_000;

  /**
   * How long a cancelled caller waits for its cleanup, which then goes on in the background until
   * the lease expires.
   */
  static final long KEPT_MS = 1000;

  /** The timeout of one attempt of a cleanup. */
  static final long UNDO_MS = 2000;

  private Limits() {}
}
