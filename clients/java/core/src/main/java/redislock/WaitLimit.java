package redislock;

/**
 * How long to wait, in milliseconds.
 *
 * @param waitMs 0: do not wait; {@link Clock#NEVER}: indefinitely
 * @param ends when that time has passed, counted from the caller's call
 * @param pollMs the polling interval, for sharing the key with clients that hold it as a string; 0:
 *     wait in the queue
 */
record WaitLimit(long waitMs, long ends, long pollMs) {
  static WaitLimit of(long waitMs, long pollMs) {
    // The clock truncates to milliseconds, and the wait must not end early.
    return new WaitLimit(waitMs, Clock.after(Clock.now() + 1, waitMs), pollMs);
  }

  boolean queues() {
    return waitMs > 0 && pollMs == 0;
  }
}
