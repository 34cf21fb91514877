package redislock;

import java.lang.System.Logger.Level;
import java.lang.ref.WeakReference;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * What the locks of one client share: its connections, its known owners, and its observer. Events
 * also go to the debug log ({@code redislock}).
 */
record Context(
    Driver driver,
    @Nullable LockObserver observer,
    String prefix,
    Map<String, WeakReference<Owner>> owners,
    ThreadLocal<Map<ThreadLock.Key, ThreadLock.Held>> threads) {
  static Context of(Driver driver) {
    return new Context(driver, null, "", new HashMap<>(), ThreadLocal.withInitial(HashMap::new));
  }

  Context with(@Nullable LockObserver observer, String prefix) {
    return new Context(driver, observer, prefix, owners, threads);
  }

  static final System.Logger LOG = System.getLogger("redislock");
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final String TOKEN_PREFIX = tokenPrefix();

  /** host:pid:random, at most 38 bytes, which the server stores without a second object. */
  static byte[] newToken() {
    return Words.bytes(TOKEN_PREFIX + HexFormat.of().toHexDigits(RANDOM.nextLong()));
  }

  private static String tokenPrefix() {
    String host = host();
    String pid = ":" + ProcessHandle.current().pid() + ":";
    return host.substring(0, Math.min(host.length(), 38 - 16 - pid.length())) + pid;
  }

  private static String host() {
    String name = System.getenv("HOSTNAME");
    if (name == null || name.isBlank()) {
      try {
        name = InetAddress.getLocalHost().getHostName();
      } catch (UnknownHostException e) {
        name = "host";
      }
    }
    return name.replaceAll("[^\\x21-\\x7e]", "-").replace(':', '-');
  }

  byte[] key(String name) {
    if (name.isEmpty()) {
      throw new IllegalArgumentException("the name of a lock must not be empty");
    }
    return Words.bytes(prefix + name);
  }

  /**
   * The state of a token that the caller provides, on a lock that counts holds. All of its acquires
   * share one.
   */
  Owner owner(LockType lockType, String lock, byte[] token, long leaseMs) {
    String id = Words.json(lockType.key()) + ' ' + Words.json(token);
    synchronized (owners) {
      owners.values().removeIf(ref -> ref.get() == null);
      WeakReference<Owner> ref = owners.get(id);
      Owner known = ref == null ? null : ref.get();
      if (known == null || known.isOver()) {
        known = new Owner(lock, token, leaseMs);
        owners.put(id, new WeakReference<>(known));
      }
      return known;
    }
  }

  /** Logs that a failed request is being retried, which may take long. */
  static void warn(String what, Throwable error) {
    Throwable root = error;
    while (root.getCause() != null) {
      root = root.getCause();
    }
    if (root.getSuppressed().length > 0) {
      // Jedis suppresses the failure to connect to each address of a host.
      root = root.getSuppressed()[0];
    }
    String cause = root == error ? "" : ", caused by " + root;
    LOG.log(Level.WARNING, what + " failed and will be retried: " + error + cause);
  }

  boolean isObserved() {
    return observer != null || LOG.isLoggable(Level.DEBUG);
  }

  /** Reports an event of the owner; {@code fence}: 0 without a hold. */
  void emit(
      LockEvent.Type type,
      LockType lockType,
      Owner owner,
      long fence,
      long ms,
      @Nullable Throwable error) {
    if (!isObserved()) {
      return;
    }
    LockEvent event =
        new LockEvent(
            type,
            lockType.kind(),
            lockType.keys().stream().map(Words::text).toList(),
            Words.text(owner.token),
            fence,
            Duration.ofMillis(ms),
            error);
    LOG.log(Level.DEBUG, event::toString);
    if (observer != null) {
      try {
        observer.on(event);
      } catch (RuntimeException e) {
        LOG.log(Level.WARNING, "an observer threw an error", e);
      }
    }
  }
}
