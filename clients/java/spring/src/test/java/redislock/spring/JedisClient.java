package redislock.spring;

import redis.clients.jedis.UnifiedJedis;

/** A client of the installed Jedis: Boot 4 brings 7.0, whose client has another name. */
final class JedisClient {
  private JedisClient() {}

  static UnifiedJedis of(int port) throws ReflectiveOperationException {
    try {
      return (UnifiedJedis)
          Class.forName("redis.clients.jedis.RedisClient")
              .getMethod("create", String.class, int.class)
              .invoke(null, "127.0.0.1", port);
    } catch (ClassNotFoundException e) {
      return (UnifiedJedis)
          Class.forName("redis.clients.jedis.JedisPooled")
              .getConstructor(String.class, int.class)
              .newInstance("127.0.0.1", port);
    }
  }
}
