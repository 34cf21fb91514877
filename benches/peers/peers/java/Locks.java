import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import java.util.function.LongFunction;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import redislock.Hold;
import redislock.Mutex;
import redislock.RedisLocks;

/**
 * Locks on Redis, in Java: `Locks KIND name=value…`. One client for each link, with what comes as default; the lease
 * is the task's. That is 30 s, which is also the default of Redisson's watchdog, but where the death of a holder is
 * measured.
 */
public class Locks extends Load {
    private final String kind;

    private Locks(String kind) {
        this.kind = kind;
    }

    public static void main(String[] words) throws Exception {
        new Locks(words[0]).run(words);
    }

    @Override
    protected Link connect() {
        Duration lease = Duration.ofSeconds(number("lease"));
        return switch (kind) {
            case "java:lettuce", "java:renewed", "java:session" -> {
                RedisLocks locks = RedisLocks.over(RedisClient.create("redis://" + word("endpoints")));
                yield owners(lock -> {
                    Mutex mutex = locks.mutex("lock-" + lock).lease(lease);
                    return kind.equals("java:renewed")
                            ? mutex.autoRenew() : kind.equals("java:session") ? mutex.session() : mutex;
                });
            }
            case "java:jedis" -> {
                RedisLocks locks = RedisLocks.over(redis.clients.jedis.RedisClient.create(host(), port()));
                yield owners(lock -> locks.mutex("lock-" + lock).lease(lease));
            }
            case "java:spring" -> {
                RedisLocks locks = RedisLocks.over(RedisClient.create("redis://" + word("endpoints")));
                var registry = new redislock.spring.RedisLockRegistry(locks, "locks:", lease);
                yield ofThreads(lock -> registry.obtain("lock-" + lock));
            }
            case "java:shedlock" -> {
                RedisLocks locks = RedisLocks.over(RedisClient.create("redis://" + word("endpoints")));
                yield jobs(new redislock.shedlock.RedisLockProvider(locks), lease);
            }
            case "redisson", "redisson:fair" -> {
                RedissonClient redisson = redisson(lease);
                boolean isFair = kind.endsWith("fair");
                LongFunction<RLock> fair = lock -> redisson.getFairLock("lock-" + lock);
                yield ofThreads(isFair ? fair : lock -> redisson.getLock("lock-" + lock));
            }
            case "redisson:fenced" -> fenced(redisson(lease));
            case "spring", "spring:pubsub" -> {
                RedisLockRegistry registry = new RedisLockRegistry(connections(), "locks", lease.toMillis());
                if (kind.endsWith("pubsub")) registry.setRedisLockType(RedisLockType.PUB_SUB_LOCK);
                yield ofThreads(lock -> registry.obtain("lock-" + lock));
            }
            case "shedlock" -> jobs(new RedisLockProvider(connections()), lease);
            default -> throw new IllegalArgumentException("there is no " + kind);
        };
    }

    private String host() {
        return word("endpoints").split(":")[0];
    }

    private int port() {
        return Integer.parseInt(word("endpoints").split(":")[1]);
    }

    private RedissonClient redisson(Duration lease) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + word("endpoints"));
        config.setLockWatchdogTimeout(lease.toMillis());
        return Redisson.create(config);
    }

    private LettuceConnectionFactory connections() {
        LettuceConnectionFactory factory = new LettuceConnectionFactory(host(), port());
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    private static Link owners(LongFunction<Mutex> mutexes) {
        return () -> new Owner() {
            @Override
            public Held acquire(long lock) throws Exception {
                return held(mutexes.apply(lock).acquire());
            }

            @Override
            public Held tryAcquire(long lock) throws Exception {
                return mutexes.apply(lock).tryAcquire().map(this::held).orElse(null);
            }

            private Held held(Hold hold) {
                return new Held() {
                    @Override
                    public long fence() {
                        return hold.fence();
                    }

                    @Override
                    public void release() {
                        hold.release();
                    }
                };
            }
        };
    }

    private static Link ofThreads(LongFunction<? extends Lock> locks) {
        return () -> new Owner() {
            @Override
            public Held acquire(long lock) {
                Lock taken = locks.apply(lock);
                taken.lock();
                return taken::unlock;
            }

            @Override
            public Held tryAcquire(long lock) {
                Lock taken = locks.apply(lock);
                return taken.tryLock() ? taken::unlock : null;
            }
        };
    }

    private static Link fenced(RedissonClient redisson) {
        return () -> new Owner() {
            @Override
            public Held acquire(long lock) {
                RFencedLock taken = redisson.getFencedLock("lock-" + lock);
                return held(taken, taken.lockAndGetToken());
            }

            @Override
            public Held tryAcquire(long lock) {
                RFencedLock taken = redisson.getFencedLock("lock-" + lock);
                Long fence = taken.tryLockAndGetToken();
                return fence == null ? null : held(taken, fence);
            }

            private Held held(RLock taken, long fence) {
                return new Held() {
                    @Override
                    public long fence() {
                        return fence;
                    }

                    @Override
                    public void release() {
                        taken.unlock();
                    }
                };
            }
        };
    }

    /** A job that is not granted its lock is skipped: nothing here waits. */
    private static Link jobs(LockProvider provider, Duration lease) {
        return () -> new Owner() {
            @Override
            public Held acquire(long lock) throws Exception {
                Held held = tryAcquire(lock);
                if (held == null) throw new IllegalStateException("held by another job");
                return held;
            }

            @Override
            public Held tryAcquire(long lock) {
                LockConfiguration job = new LockConfiguration(Instant.now(), "lock-" + lock, lease, Duration.ZERO);
                Optional<SimpleLock> taken = provider.lock(job);
                return taken.<Held>map(it -> it::unlock).orElse(null);
            }
        };
    }
}
