package redislock;

/**
 * Receives the events of a client's locks, on the thread where they happen, so it must not block.
 * An exception that it throws is logged and changes no outcome.
 */
@FunctionalInterface
public interface LockObserver {
  /**
   * Handles an event of a lock.
   *
   * @param event what happened
   */
  void on(LockEvent event);
}
