package redislock;

import org.jspecify.annotations.Nullable;

/**
 * The options of a lock. Times in milliseconds.
 *
 * @param autoRenew null: not given; while {@link Mutex#once} makes a value, true without session
 * @param token null: a new one for each hold
 * @param pollMs 0: waits in the queue
 */
record Settings(
    long leaseMs,
    @Nullable Boolean autoRenew,
    boolean session,
    long atLeastMs,
    byte @Nullable [] token,
    boolean tellHolder,
    int replicas,
    long replicaTimeoutMs,
    long pollMs,
    @Nullable Owner within) {
  static final Settings DEFAULT =
      new Settings(30_000, null, false, 0, null, false, 0, 1000, 0, null);

  Settings {
    boolean renews = Boolean.TRUE.equals(autoRenew);
    require(leaseMs >= 1, "a lease is 1 ms or longer");
    require(
        leaseMs != Family.PERSIST || !session && !renews,
        "session and autoRenew need a lease: it is renewed");
    require(!session || !renews, "with session the server renews: leave autoRenew out");
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

  Settings withLease(long ms) {
    return new Settings(
        ms,
        autoRenew,
        session,
        atLeastMs,
        token,
        tellHolder,
        replicas,
        replicaTimeoutMs,
        pollMs,
        within);
  }

  Settings withAutoRenew() {
    return new Settings(
        leaseMs,
        true,
        session,
        atLeastMs,
        token,
        tellHolder,
        replicas,
        replicaTimeoutMs,
        pollMs,
        within);
  }

  Settings withSession() {
    return new Settings(
        leaseMs,
        autoRenew,
        true,
        atLeastMs,
        token,
        tellHolder,
        replicas,
        replicaTimeoutMs,
        pollMs,
        within);
  }

  Settings withAtLeast(long ms) {
    return new Settings(
        leaseMs,
        autoRenew,
        session,
        ms,
        token,
        tellHolder,
        replicas,
        replicaTimeoutMs,
        pollMs,
        within);
  }

  Settings withToken(byte[] bytes) {
    return new Settings(
        leaseMs,
        autoRenew,
        session,
        atLeastMs,
        bytes,
        tellHolder,
        replicas,
        replicaTimeoutMs,
        pollMs,
        within);
  }

  Settings withHolder() {
    return new Settings(
        leaseMs,
        autoRenew,
        session,
        atLeastMs,
        token,
        true,
        replicas,
        replicaTimeoutMs,
        pollMs,
        within);
  }

  Settings withReplicas(int count, long timeoutMs) {
    return new Settings(
        leaseMs,
        autoRenew,
        session,
        atLeastMs,
        token,
        tellHolder,
        count,
        timeoutMs,
        pollMs,
        within);
  }

  Settings withPolls(long ms) {
    return new Settings(
        leaseMs,
        autoRenew,
        session,
        atLeastMs,
        token,
        tellHolder,
        replicas,
        replicaTimeoutMs,
        ms,
        within);
  }

  Settings withOwner(Owner owner) {
    return new Settings(
        leaseMs,
        autoRenew,
        session,
        atLeastMs,
        token,
        tellHolder,
        replicas,
        replicaTimeoutMs,
        pollMs,
        owner);
  }
}
