package redislock;

/**
 * Receives the events of a client's locks, on the thread where they happen: return soon, and do not
 * block. What it throws is logged, and changes no outcome.
 */
@FunctionalInterface
public interface LockObserver {
  /**
   * Something has happened to a lock.
   *
   * @param event what
   */
  void on(LockEvent event);
}
