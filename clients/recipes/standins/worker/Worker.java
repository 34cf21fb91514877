import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redislock.Hold;
import redislock.Mutex;
import redislock.NotReplicatedException;
import redislock.RedisLocks;
import redislock.WrongTypeException;

/**
 * Does all that a worker of docs/acl.md may do with the client for Java: {@code Worker.java PORT LIBRARY}. Of a cluster
 * the port is that of a node.
 */
class Worker {
  static final Duration SECOND = Duration.ofSeconds(1);

  public static void main(String[] arguments) throws Exception {
    int port = Integer.parseInt(arguments[0]);
    RedisURI uri = RedisURI.builder().withHost("127.0.0.1").withPort(port)
        .withAuthentication("worker", "worker-secret".toCharArray()).build();
    DefaultJedisClientConfig login =
        DefaultJedisClientConfig.builder().user("worker").password("worker-secret").build();
    HostAndPort node = new HostAndPort("127.0.0.1", port);
    switch (arguments[1]) {
      case "lettuce" -> alone(RedisLocks.over(RedisClient.create(uri)));
      case "jedis" -> alone(RedisLocks.over(
          redis.clients.jedis.RedisClient.builder().hostAndPort(node).clientConfig(login).build()));
      case "lettuce-cluster" -> inCluster(RedisLocks.over(RedisClusterClient.create(uri)));
      case "jedis-cluster" -> inCluster(RedisLocks.over(
          redis.clients.jedis.RedisClusterClient.builder().nodes(Set.of(node)).clientConfig(login).build()));
      default -> throw new IllegalArgumentException(arguments[1]);
    }
    System.out.println("all done");
    System.exit(0);
  }

  static void alone(RedisLocks locks) throws Exception {
    Hold first = locks.mutex("lock:1").acquire();
    require(first.isHeld());
    first.extend(Duration.ofSeconds(5));
    first.exec("SET", "account:1", "100");
    Thread waiting = new Thread(() -> use(locks.mutex("lock:1")));
    waiting.start();
    System.out.println("waits");
    System.in.read();
    first.release();
    waiting.join();
    use(locks.mutex("lock:8").session());
    use(locks.mutex("lock:9").mixed(SECOND));
    use(locks.mutex("lock:10").lease(Duration.ofMillis(300)).autoRenew());
    for (AutoCloseable hold : List.of(locks.reentrant("lock:2").acquire(), locks.readWrite("lock:3").write().acquire(),
        locks.readWrite("lock:4").read().acquire(), locks.semaphore("lock:5", 2).slots().acquire(),
        locks.all("lock:6", "lock:7").acquire())) {
      hold.close();
    }
    String[] made = {null};
    locks.mutex("lock:11").once(() -> made[0], hold -> made[0] = "made", SECOND);
    fails(locks.mutex("lock:string"), WrongTypeException.class);
    fails(locks.mutex("lock:12").replicas(1, Duration.ofMillis(1)), NotReplicatedException.class);
  }

  static void inCluster(RedisLocks locks) {
    List.of("lock:1", "lock:2", "lock:{3}", "lock:held").forEach(key -> use(locks.mutex(key)));
  }

  static void use(Mutex mutex) {
    try (Hold hold = mutex.acquire()) {
      require(mutex.isLocked());
      mutex.info();
    } catch (InterruptedException interrupt) {
      throw new IllegalStateException(interrupt);
    }
  }

  static void fails(Mutex mutex, Class<? extends Exception> expected) throws Exception {
    try {
      mutex.acquire();
    } catch (Exception thrown) {
      require(expected.isInstance(thrown));
      return;
    }
    throw new IllegalStateException("no " + expected);
  }

  static void require(boolean what) {
    if (!what) {
      throw new IllegalStateException("not so");
    }
  }
}
