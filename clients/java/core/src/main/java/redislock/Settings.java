package redislock;

import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** The options of a lock, unchanged once they are there: {@link #with} makes others. */
final class Settings implements Cloneable {
  long leaseMs = 30_000;
  boolean autoRenew;
  boolean session;
  long atLeastMs;

  /** The holds that one acquire adds. */
  int permits = 1;

  /** null: a new one for each hold. */
  byte @Nullable [] token;

  boolean tellHolder;
  int replicas;
  long replicaTimeoutMs;

  /** The interval of polls; 0: waits in the queue. */
  long pollMs;

  /** The owner that is to hold more; null: an owner of its own. */
  @Nullable Owner within;

  Settings with(Consumer<Settings> change) {
    try {
      Settings changed = (Settings) clone();
      change.accept(changed);
      changed.check();
      return changed;
    } catch (CloneNotSupportedException e) {
      throw new AssertionError(e);
    }
  }

  private void check() {
    require(leaseMs >= 1, "a lease is 1 ms or longer");
    require(
        leaseMs != Family.PERSIST || !session && !autoRenew,
        "session and autoRenew need a lease: it is renewed");
    require(!session || !autoRenew, "with session the server renews: leave autoRenew out");
    require(
        !session || pollMs == 0,
        "mixed polls, and a session is bound while it waits: use one of them");
    require(atLeastMs == 0 || leaseMs != Family.PERSIST, "atLeast needs a lease");
    require(atLeastMs == 0 || !session, "a session ends with its connection: leave atLeast out");
    require(atLeastMs == 0 || token == null, "atLeast needs a new token for each hold");
    require(
        token == null || token.length >= 1 && token.length <= 1024, "a token has 1 to 1,024 bytes");
  }

  private static void require(boolean isSo, String message) {
    if (!isSo) {
      throw new IllegalArgumentException(message);
    }
  }
}
