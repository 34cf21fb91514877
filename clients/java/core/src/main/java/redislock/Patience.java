package redislock;

/**
 * How long to wait, in milliseconds.
 *
 * @param waitMs 0: not at all; {@link Clock#NEVER}: for ever
 * @param ends when that time is over; it counts from the caller's call
 * @param pollMs the interval of the polls beside clients that hold the key as a string; 0: waits in
 *     the queue
 */
record Patience(long waitMs, long ends, long pollMs) {
  static Patience of(long waitMs, long pollMs) {
    // The clock cuts its milliseconds: the time must not be over too early.
    return new Patience(waitMs, Clock.after(Clock.now() + 1, waitMs), pollMs);
  }

  boolean queues() {
    return waitMs > 0 && pollMs == 0;
  }
}
