package redislock;

import java.lang.ref.WeakReference;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** What the locks of one client share: its connections, its observer, and its known owners. */
record Context(
    Driver driver,
    Observed observed,
    String prefix,
    ConcurrentHashMap<String, WeakReference<Owner>> owners,
    ThreadLocal<Map<ThreadLock.Key, ThreadLock.Held>> threads) {
  static Context of(Driver driver) {
    return new Context(
        driver,
        new Observed(null),
        "",
        new ConcurrentHashMap<>(),
        ThreadLocal.withInitial(HashMap::new));
  }

  Context with(Observed observed, String prefix) {
    return new Context(driver, observed, prefix, owners, threads);
  }

  private static final SecureRandom RANDOM = new SecureRandom();
  private static final String HOST = host();

  /** host:pid:random, 38 bytes at most: so many are stored without a second object. */
  static byte[] newToken() {
    String tail =
        ":" + ProcessHandle.current().pid() + ":" + HexFormat.of().toHexDigits(RANDOM.nextLong());
    return Words.bytes(HOST.substring(0, Math.min(HOST.length(), 38 - tail.length())) + tail);
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
      throw new IllegalArgumentException("the name of a lock is not empty");
    }
    return Words.bytes(prefix + name);
  }

  /**
   * The state of a caller's own token on a lock that counts: one, so that its holds are counted in
   * one place.
   */
  Owner owner(Family family, String lock, byte[] token, long leaseMs) {
    String id = Words.told(family.key()) + ' ' + Words.told(token);
    owners.values().removeIf(ref -> ref.get() == null);
    Owner[] found = new Owner[1];
    owners.compute(
        id,
        (same, ref) -> {
          Owner known = ref == null ? null : ref.get();
          found[0] = known == null || known.isOver() ? new Owner(lock, token, leaseMs) : known;
          return known == found[0] ? ref : new WeakReference<>(found[0]);
        });
    return found[0];
  }
}
