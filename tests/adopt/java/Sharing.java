import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * One instance with Redisson that takes a lock again and again: `Sharing PORT KEY HOLD_MS PAUSE_MS`. It prints `ready`
 * and begins. A line on its input ends it: it prints its grants and its longest wait in ms, that of the wait under way
 * too.
 */
public class Sharing {
    static int grants;
    static long longest;
    static long asked = System.nanoTime();

    static synchronized void asks() {
        asked = System.nanoTime();
    }

    static synchronized void granted() {
        grants++;
        longest = Math.max(longest, System.nanoTime() - asked);
        asked = Long.MAX_VALUE;
    }

    static synchronized String report() {
        long last = asked == Long.MAX_VALUE ? 0 : System.nanoTime() - asked;
        return grants + " " + TimeUnit.NANOSECONDS.toMillis(Math.max(longest, last));
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + args[0]).setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(4).setSubscriptionConnectionMinimumIdleSize(1);
        RedissonClient redisson = Redisson.create(config);
        RLock lock = redisson.getLock(args[1]);
        long holdMs = Long.parseLong(args[2]);
        long pauseMs = Long.parseLong(args[3]);
        // Warm up: loads the scripts and opens the subscription.
        lock.lock();
        lock.unlock();
        System.out.println("ready");
        System.in.read();
        Thread worker = new Thread(() -> {
            while (true) {
                asks();
                lock.lock();
                granted();
                sleep(holdMs);
                lock.unlock();
                sleep(pauseMs);
            }
        });
        worker.setDaemon(true);
        asks();
        worker.start();
        while (System.in.read() != '.') {
            // The end of the measured time.
        }
        System.out.println(report());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
