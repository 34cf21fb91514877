package redislock;

import java.util.Arrays;

/**
 * Distributed locks over a Redis client of Lettuce or Jedis. The server needs the redis-lock
 * module. Thread-safe; one instance per client is enough.
 *
 * <pre>{@code
 * RedisLocks locks = RedisLocks.over(RedisClient.create("redis://localhost"));
 * try (Hold hold = locks.mutex("report").acquire()) {
 *   report(hold.fence());
 * }
 * }</pre>
 *
 * <p>Each lock is an immutable builder: keep it, share it, or derive others from it. The owner of a
 * lock is the {@link Hold}, not the thread.
 */
public final class RedisLocks implements AutoCloseable {
  private final Context context;

  private RedisLocks(Context context) {
    this.context = context;
  }

  /**
   * Creates locks over a Redis client. Nothing is sent before the first lock is acquired, and
   * {@link #close()} leaves the client open.
   *
   * @param client of Lettuce: {@code RedisClient} or {@code RedisClusterClient}; of Jedis: {@code
   *     RedisClient}, {@code RedisSentinelClient}, {@code RedisClusterClient}, or one of their
   *     predecessors ({@code JedisPooled}, {@code JedisSentineled}, {@code JedisCluster})
   * @return the locks
   * @throws IllegalArgumentException if the client is of another class
   */
  public static RedisLocks over(AutoCloseable client) {
    return new RedisLocks(Context.of(driver(client)));
  }

  /** Compares by name, so that each driver is loaded only if its library is present. */
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

  /** A separate class, because the verifier of {@link RedisLocks} would load both libraries. */
  private static final class Drivers {
    static Driver lettuce(AutoCloseable client) {
      return new LettuceDriver((io.lettuce.core.AbstractRedisClient) client);
    }

    static Driver jedis(AutoCloseable client) {
      return new JedisDriver((redis.clients.jedis.UnifiedJedis) client);
    }
  }

  /**
   * Returns these locks with an observer of their events.
   *
   * @param observer receives the events; replaces an earlier one
   * @return locks over the same connections
   */
  public RedisLocks observedBy(LockObserver observer) {
    return new RedisLocks(context.with(observer, context.prefix()));
  }

  /**
   * Returns these locks with a prefix of their keys.
   *
   * @param prefix goes before each name; replaces an earlier one
   * @return locks over the same connections
   */
  public RedisLocks withPrefix(String prefix) {
    return new RedisLocks(context.with(context.observer(), prefix));
  }

  /**
   * Returns a mutex, which has one holder at a time.
   *
   * @param name the name of the lock, which is the key on the server
   * @return the lock
   */
  public Mutex mutex(String name) {
    return new Mutex(context, name, lockType(LockEvent.Kind.MUTEX, 0, name), new Settings());
  }

  /**
   * Returns a reentrant mutex, which its owner may acquire again with {@link
   * ReentrantMutex#within}.
   *
   * @param name the name of the lock
   * @return the lock
   */
  public ReentrantMutex reentrant(String name) {
    return reentrant(LockEvent.Kind.REENTRANT, name);
  }

  /**
   * Returns a read/write lock: many readers or one writer, first come, first served. The writer may
   * read as well, and a reader may become the writer.
   *
   * @param name the name of the lock
   * @return its two views
   */
  public ReadWriteLocks readWrite(String name) {
    return new ReadWriteLocks(
        reentrant(LockEvent.Kind.READ, name), reentrant(LockEvent.Kind.WRITE, name));
  }

  private ReentrantMutex reentrant(LockEvent.Kind kind, String name) {
    return new ReentrantMutex(context, name, lockType(kind, 0, name), new Settings());
  }

  private LockType lockType(LockEvent.Kind kind, int limit, String... names) {
    return new LockType(kind, Arrays.stream(names).map(context::key).toList(), limit, false);
  }

  /**
   * Returns a semaphore, each acquire of which takes one permit.
   *
   * @param name the name of the semaphore
   * @param limit how many permits may be held at once, 1 to 1,000,000
   * @return the semaphore
   * @throws IllegalArgumentException if the limit is less than 1
   */
  public Semaphore semaphore(String name, int limit) {
    if (limit < 1) {
      throw new IllegalArgumentException("the limit of a semaphore must be 1 or more");
    }
    LockType lockType = lockType(LockEvent.Kind.SEMAPHORE, limit, name);
    return new Semaphore(context, name, lockType, new Settings());
  }

  /**
   * Returns multiple mutexes as one lock, which is acquired as a whole or not at all. In a cluster
   * all keys must hash to one slot.
   *
   * @param names the names of the locks, each once
   * @return the lock
   * @throws IllegalArgumentException if there is no name
   */
  public MultiMutex all(String... names) {
    if (names.length == 0) {
      throw new IllegalArgumentException("at least one name is required");
    }
    LockType lockType = lockType(LockEvent.Kind.MULTI, 0, names);
    return new MultiMutex(context, String.join(" ", names), lockType, new Settings());
  }

  /**
   * Closes the connections that were opened for these locks, and ends their renewals and waits. The
   * client stays open. Locks that are still held are lost: those with a session immediately; those
   * with {@link RedisLock#autoRenew()} are released now, for which this waits a second at most; all
   * others expire with their lease.
   */
  @Override
  public void close() {
    context.driver().close();
  }

  /** True if no withdrawal or release is running in the background. */
  boolean endingsAreOver() {
    return context.driver().endings.areOver();
  }
}
