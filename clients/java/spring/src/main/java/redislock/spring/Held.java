package redislock.spring;

import org.jspecify.annotations.Nullable;
import redislock.Hold;
import redislock.LockLostException;

/**
 * A lock that was granted to a call with {@link Locked} and is shared with its nested calls. Any of
 * them may end last, in any thread.
 */
final class Held {
  final Observed observed;
  private final String name;
  private final Hold hold;
  private final InUse inUse;
  private int calls = 1;

  Held(String name, Hold hold, Observed observed, InUse inUse) {
    this.name = name;
    this.hold = hold;
    this.observed = observed;
    this.inUse = inUse;
    inUse.begin();
  }

  /**
   * Starts a nested call.
   *
   * @return false if the lock was released already
   * @throws LockLostException if the lock was lost
   */
  synchronized boolean enter() {
    if (calls == 0) {
      return false;
    }
    if (hold.isLost()) {
      throw new LockLostException("the lock \"" + name + "\" of the outer call was lost", name);
    }
    calls++;
    return true;
  }

  /**
   * Ends a call; the last one releases the lock.
   *
   * @param error the error of the call, to which a loss is added; null if it has none
   * @throws LockLostException if the lock was lost, and the call has no error
   */
  void leave(@Nullable Throwable error) {
    synchronized (this) {
      calls--;
      if (calls > 0) {
        return;
      }
    }
    observed.end(error);
    try {
      hold.close();
    } catch (RuntimeException e) {
      if (error == null) {
        throw e;
      }
      error.addSuppressed(e);
    } finally {
      inUse.end();
    }
  }
}
