package redislock;

import java.util.Arrays;

/**
 * Distributed locks over a Redis client of Lettuce or Jedis; the server needs the redis-lock
 * module. One per client is enough, and it is thread-safe.
 *
 * <pre>{@code
 * RedisLocks locks = RedisLocks.over(RedisClient.create("redis://localhost"));
 * try (Hold hold = locks.mutex("report").acquire()) {
 *   report(hold.fence());
 * }
 * }</pre>
 *
 * <p>Each lock is an immutable builder: keep it, share it, derive others from it. The owner of a
 * hold is the {@link Hold}, and not the thread.
 */
public final class RedisLocks implements AutoCloseable {
  private final Context context;

  private RedisLocks(Context context) {
    this.context = context;
  }

  /**
   * Locks over this client. Nothing is sent before the first lock; {@link #close()} leaves the
   * client open.
   *
   * @param client of Lettuce: {@code RedisClient} or {@code RedisClusterClient}; of Jedis: {@code
   *     RedisClient}, {@code RedisSentinelClient}, {@code RedisClusterClient}, or one of their
   *     forerunners ({@code JedisPooled}, {@code JedisSentineled}, {@code JedisCluster})
   * @return the locks
   * @throws IllegalArgumentException if it is something else
   */
  public static RedisLocks over(AutoCloseable client) {
    return new RedisLocks(Context.of(driver(client)));
  }

  /** By name: each driver is loaded only where its library is there. */
  private static Driver driver(AutoCloseable client) {
    for (Class<?> each = client.getClass(); each != null; each = each.getSuperclass()) {
      if (each.getName().equals("io.lettuce.core.AbstractRedisClient")) {
        return Drivers.lettuce(client);
      }
      if (each.getName().equals("redis.clients.jedis.UnifiedJedis")) {
        return Drivers.jedis(client);
      }
    }
    throw new IllegalArgumentException(
        "expected a client of Lettuce (RedisClient, RedisClusterClient) or Jedis (RedisClient,"
            + " RedisSentinelClient, RedisClusterClient), not "
            + client.getClass().getName());
  }

  /** Apart from {@link RedisLocks}: a verifier of that class would load both libraries. */
  private static final class Drivers {
    static Driver lettuce(AutoCloseable client) {
      return new LettuceDriver((io.lettuce.core.AbstractRedisClient) client);
    }

    static Driver jedis(AutoCloseable client) {
      return new JedisDriver((redis.clients.jedis.UnifiedJedis) client);
    }
  }

  /**
   * These locks, with their events told to an observer.
   *
   * @param observer in place of an earlier one
   * @return locks over the same connections
   */
  public RedisLocks observedBy(LockObserver observer) {
    return new RedisLocks(context.with(observer, context.prefix()));
  }

  /**
   * These locks, with keys that begin so.
   *
   * @param prefix before each name; replaces an earlier one
   * @return locks over the same connections
   */
  public RedisLocks withPrefix(String prefix) {
    return new RedisLocks(context.with(context.observer(), prefix));
  }

  /**
   * A lock with one holder.
   *
   * @param name of the lock: the key on the server
   * @return the lock
   */
  public Mutex mutex(String name) {
    return new Mutex(context, name, family(LockEvent.Kind.MUTEX, 0, name), new Settings());
  }

  /**
   * A lock that its owner may acquire again while it holds it ({@link ReentrantMutex#within}).
   *
   * @param name of the lock
   * @return the lock
   */
  public ReentrantMutex reentrant(String name) {
    return reentrant(LockEvent.Kind.REENTRANT, name);
  }

  /**
   * Many readers or one writer, first come, first served; the writer may read, and a reader may
   * become the writer.
   *
   * @param name of the lock
   * @return its two views
   */
  public ReadWriteLocks readWrite(String name) {
    return new ReadWriteLocks(
        reentrant(LockEvent.Kind.READ, name), reentrant(LockEvent.Kind.WRITE, name));
  }

  private ReentrantMutex reentrant(LockEvent.Kind kind, String name) {
    return new ReentrantMutex(context, name, family(kind, 0, name), new Settings());
  }

  private Family family(LockEvent.Kind kind, int limit, String... names) {
    return new Family(kind, Arrays.stream(names).map(context::key).toList(), limit, false);
  }

  /**
   * At most so many permits at once.
   *
   * @param name of the semaphore
   * @param limit 1 to 1,000,000
   * @return the semaphore; each acquire takes one permit
   */
  public Semaphore semaphore(String name, int limit) {
    if (limit < 1) {
      throw new IllegalArgumentException("the limit of a semaphore must be 1 or more");
    }
    Family family = family(LockEvent.Kind.SEMAPHORE, limit, name);
    return new Semaphore(context, name, family, new Settings());
  }

  /**
   * Several mutexes at once, all or none of them; in a cluster all keys share one slot.
   *
   * @param names of the locks, each once
   * @return the lock
   */
  public MultiMutex all(String... names) {
    if (names.length == 0) {
      throw new IllegalArgumentException("at least one name is required");
    }
    Family family = family(LockEvent.Kind.MULTI, 0, names);
    return new MultiMutex(context, String.join(" ", names), family, new Settings());
  }

  /**
   * Closes the connections that were made for these locks, and ends their renewals and waits. The
   * client stays open. What is held is lost: with a session at once; a hold that is renewed is
   * released now, for which this waits a second at most; any other ends with its lease.
   */
  @Override
  public void close() {
    context.driver().close();
  }

  /** True if no withdrawal or release is under way beside its caller. */
  boolean endingsAreOver() {
    return context.driver().endings.areOver();
  }
}
