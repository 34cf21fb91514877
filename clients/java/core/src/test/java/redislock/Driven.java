package redislock;

import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisProtocol;

/** The library under test, and the clients that the test has created. */
enum Driven {
  LETTUCE,
  JEDIS;

  /** How a client connects. */
  static final class Options {
    String host = "127.0.0.1";
    String user;
    String password;
    int database;
    boolean resp2;
    Duration timeout;
    int poolSize = 8;
  }

  /** Closes what a test has created. */
  static final class Made implements AutoCloseable {
    private final List<AutoCloseable> all = new ArrayList<>();

    <T extends AutoCloseable> T add(T each) {
      all.add(0, each);
      return each;
    }

    @Override
    public void close() throws Exception {
      for (AutoCloseable each : all) {
        each.close();
      }
    }
  }

  RedisLocks locks(Made made, int port) {
    return locks(made, port, new Options());
  }

  RedisLocks locks(Made made, int port, Options options) {
    return made.add(RedisLocks.over(made.add(client(port, options))));
  }

  AutoCloseable client(int port, Options options) {
    if (this == LETTUCE) {
      RedisURI.Builder uri =
          RedisURI.builder().withHost(options.host).withPort(port).withDatabase(options.database);
      if (options.user != null) {
        uri.withAuthentication(options.user, options.password.toCharArray());
      }
      io.lettuce.core.RedisClient client =
          io.lettuce.core.RedisClient.create(Resources.SHARED, uri.build());
      io.lettuce.core.ClientOptions.Builder settings = io.lettuce.core.ClientOptions.builder();
      if (options.resp2) {
        settings.protocolVersion(io.lettuce.core.protocol.ProtocolVersion.RESP2);
      }
      if (options.timeout != null) {
        settings.timeoutOptions(io.lettuce.core.TimeoutOptions.enabled(options.timeout));
      }
      client.setOptions(settings.build());
      return client;
    }
    DefaultJedisClientConfig.Builder config =
        DefaultJedisClientConfig.builder()
            .database(options.database)
            .protocol(options.resp2 ? RedisProtocol.RESP2 : RedisProtocol.RESP3);
    if (options.user != null) {
      config.user(options.user).password(options.password);
    }
    if (options.timeout != null) {
      config.socketTimeoutMillis((int) options.timeout.toMillis());
    }
    ConnectionPoolConfig pool = new ConnectionPoolConfig();
    pool.setMaxTotal(options.poolSize);
    return redis.clients.jedis.RedisClient.builder()
        .hostAndPort(options.host, port)
        .clientConfig(config.build())
        .poolConfig(pool)
        .build();
  }

  RedisLocks cluster(Made made, int port) {
    AutoCloseable client =
        this == LETTUCE
            ? RedisClusterClient.create(Resources.SHARED, RedisURI.create("127.0.0.1", port))
            : redis.clients.jedis.RedisClusterClient.create(
                Set.of(new HostAndPort("127.0.0.1", port)));
    return made.add(RedisLocks.over(made.add(client)));
  }

  RedisLocks sentinel(Made made, int port, String master) {
    AutoCloseable client =
        this == LETTUCE
            ? io.lettuce.core.RedisClient.create(
                Resources.SHARED, RedisURI.Builder.sentinel("127.0.0.1", port, master).build())
            : redis.clients.jedis.RedisSentinelClient.builder()
                .masterName(master)
                .sentinels(Set.of(new HostAndPort("127.0.0.1", port)))
                .build();
    return made.add(RedisLocks.over(made.add(client)));
  }

  /** Lettuce's threads: creating them for each client would take most of the time. */
  static final class Resources {
    static final io.lettuce.core.resource.ClientResources SHARED =
        io.lettuce.core.resource.DefaultClientResources.create();
  }
}
