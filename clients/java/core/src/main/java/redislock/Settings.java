package redislock;

import java.time.Duration;
import java.util.StringJoiner;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** The options of a lock. They never change; {@link #with} returns a changed copy. */
final class Settings implements Cloneable {
  private static final long LEASE_MS = 30_000;

  long leaseMs = LEASE_MS;
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

  /** The polling interval; 0: wait in the queue. */
  long pollMs;

  /** The owner that acquires again; null: a new owner. */
  @Nullable Owner within;

  Settings with(Consumer<Settings> change) {
    try {
      Settings changed = (Settings) clone();
      change.accept(changed);
      return changed;
    } catch (CloneNotSupportedException e) {
      throw new AssertionError(e);
    }
  }

  // Each option removes earlier ones that it excludes, so a lock overrides the one that it is
  // derived from.

  void withoutLease() {
    leaseMs = LockType.PERSIST;
    autoRenew = false;
    session = false;
    atLeastMs = 0;
  }

  private void withLease() {
    if (leaseMs == LockType.PERSIST) {
      leaseMs = LEASE_MS;
    }
  }

  void autoRenew() {
    withLease();
    autoRenew = true;
    session = false;
  }

  /** The server renews the lock, and frees it with its connection. It is bound while it waits. */
  void session() {
    withLease();
    session = true;
    autoRenew = false;
    atLeastMs = 0;
    pollMs = 0;
  }

  /** A session would free the lock earlier, and the owner of a token would be granted it again. */
  void atLeast(long ms) {
    withLease();
    atLeastMs = ms;
    session = false;
    token = null;
  }

  void token(byte[] owner) {
    if (owner.length < 1 || owner.length > 1024) {
      throw new IllegalArgumentException("a token must be 1 to 1,024 bytes long");
    }
    token = owner;
    atLeastMs = 0;
    within = null;
  }

  void within(Owner owner) {
    within = owner;
    token = null;
  }

  void mixed(long intervalMs) {
    pollMs = intervalMs;
    session = false;
  }

  @Override
  public String toString() {
    StringJoiner options = new StringJoiner(", ");
    options.add(
        leaseMs == LockType.PERSIST ? "withoutLease" : "lease " + Duration.ofMillis(leaseMs));
    add(options, autoRenew, "autoRenew");
    add(options, session, "session");
    add(options, atLeastMs > 0, "atLeast " + Duration.ofMillis(atLeastMs));
    add(options, permits > 1, "permits " + permits);
    add(options, replicas > 0, "replicas " + replicas);
    add(options, pollMs > 0, "mixed " + Duration.ofMillis(pollMs));
    add(options, token != null, "token");
    add(options, within != null, "within");
    return options.toString();
  }

  private static void add(StringJoiner options, boolean isSet, String option) {
    if (isSet) {
      options.add(option);
    }
  }
}
