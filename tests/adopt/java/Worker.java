import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.config.Config;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import redis.clients.jedis.Jedis;

/**
 * One client of a Java library, unchanged: `Worker LIBRARY turns|hold|"hand over" PORT KEY TURNS` (`run` and
 * `redisson.py` describe what each does).
 */
public class Worker {
    static final Duration LEASE = Duration.ofSeconds(2);

    interface Acquire {
        Runnable acquire() throws Exception;
    }

    static LettuceConnectionFactory connections(int port) {
        LettuceConnectionFactory factory = new LettuceConnectionFactory("127.0.0.1", port);
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    static Acquire library(String name, int port, String key, Duration lease) {
        switch (name) {
            case "redisson": {
                Config config = new Config();
                config.useSingleServer().setAddress("redis://127.0.0.1:" + port).setConnectionMinimumIdleSize(1)
                        .setConnectionPoolSize(4).setSubscriptionConnectionMinimumIdleSize(1);
                RLock lock = Redisson.create(config).getLock(key);
                return () -> {
                    lock.lock(lease.toMillis(), TimeUnit.MILLISECONDS);
                    return lock::unlock;
                };
            }
            case "shedlock": {
                LockProvider provider = new RedisLockProvider(connections(port), "test");
                return () -> {
                    while (true) {
                        Optional<SimpleLock> lock =
                                provider.lock(new LockConfiguration(Instant.now(), key, LEASE, Duration.ZERO));
                        if (lock.isPresent()) {
                            return lock.get()::unlock;
                        }
                        Thread.sleep(5);
                    }
                };
            }
            case "spring": {
                // The registry adds its name as a prefix to the key.
                RedisLockRegistry registry = new RedisLockRegistry(connections(port), "lock", LEASE.toMillis());
                return () -> {
                    var lock = registry.obtain(key);
                    lock.lock();
                    return lock::unlock;
                };
            }
            default:
                throw new IllegalArgumentException(name);
        }
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[2]);
        Duration lease = args[1].equals("hand over") ? Duration.ofSeconds(60) : LEASE;
        Acquire acquire = library(args[0], port, args[3], lease);
        if (args[1].equals("hold")) {
            acquire.acquire();
            System.out.println("held");
            Thread.sleep(600_000);
        }
        if (args[1].equals("hand over")) {
            Runnable release = acquire.acquire();
            System.out.println("held");
            System.in.read();
            release.run();
        }
        try (Jedis jedis = new Jedis("127.0.0.1", port)) {
            for (int turn = 0; turn < Integer.parseInt(args[4]); turn++) {
                Runnable release = acquire.acquire();
                if (jedis.incr("inside") != 1 || jedis.decr("inside") != 0) {
                    throw new IllegalStateException("not alone");
                }
                release.run();
            }
        }
        System.out.println("done");
        System.exit(0);
    }
}
