import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * ZooKeeper: Curator's InterProcessMutex as its page describes. Each link has one CuratorFramework (a session), and
 * each owner reuses its mutexes, as the page asks.
 */
public class Curator extends Load {
    public static void main(String[] words) throws Exception {
        new Curator().run(words);
    }

    /** Its path is the owner's node, which has the number for fencing. */
    private static class Mutex extends InterProcessMutex implements Held {
        private final CuratorFramework client;

        Mutex(CuratorFramework client, long lock) {
            super(client, "/locks/lock-" + lock);
            this.client = client;
        }

        @Override
        public long fence() throws Exception {
            return client.checkExists().forPath(getLockPath()).getCzxid();
        }
    }

    @Override
    protected Link connect() {
        CuratorFramework client = CuratorFrameworkFactory.newClient(word("endpoints"), (int) number("lease") * 1000,
                15_000, new ExponentialBackoffRetry(1000, 3));
        Session session = new Session(client);
        client.getConnectionStateListenable().addListener((it, state) -> {
            if (state == ConnectionState.LOST) session.isLost = true;
        });
        client.start();
        return session;
    }

    private static class Session implements Link {
        private final CuratorFramework client;
        private volatile boolean isLost;

        Session(CuratorFramework client) {
            this.client = client;
        }

        @Override
        public boolean isLost() {
            return isLost;
        }

        @Override
        public Owner owner() {
            Map<Long, Mutex> mutexes = new HashMap<>();
            return new Owner() {
                @Override
                public Held acquire(long lock) throws Exception {
                    Mutex mutex = mutexes.computeIfAbsent(lock, it -> new Mutex(client, it));
                    mutex.acquire();
                    return mutex;
                }

                @Override
                public Held tryAcquire(long lock) throws Exception {
                    Mutex mutex = mutexes.computeIfAbsent(lock, it -> new Mutex(client, it));
                    // With a timeout of 0 Curator checks once and does not wait.
                    return mutex.acquire(0, TimeUnit.MILLISECONDS) ? mutex : null;
                }
            };
        }
    }
}
