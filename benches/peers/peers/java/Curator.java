// The load of load.rs, for ZooKeeper: Curator's InterProcessMutex as its page tells, one CuratorFramework (a session)
// for each link, one thread for each owner; an owner keeps its mutexes, as the page asks. It speaks as load.rs does.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class Curator {
    static final long TRIAL_LOCK = 90_000;
    static final long TRIAL_LOCKS = 10_000;
    static final Map<String, String> task = new HashMap<>();
    static final Queue<String> cycles = new ConcurrentLinkedQueue<>();
    static final AtomicLong asking = new AtomicLong();
    static final AtomicLong errors = new AtomicLong();
    static volatile String lastError = "";
    static volatile boolean isOver;

    /** Its path is the owner's node, which has the number for fencing. */
    static class Mutex extends InterProcessMutex {
        Mutex(CuratorFramework client, long lock) {
            super(client, "/locks/lock-" + lock);
        }

        long fence(CuratorFramework client) throws Exception {
            return client.checkExists().forPath(getLockPath()).getCzxid();
        }
    }

    static class Link {
        final CuratorFramework client;
        final AtomicBoolean isLost = new AtomicBoolean();

        Link() {
            client = CuratorFrameworkFactory.newClient(task.get("endpoints"), (int) number("lease") * 1000, 15_000,
                new ExponentialBackoffRetry(1000, 3));
            client.getConnectionStateListenable().addListener((it, state) -> {
                if (state == ConnectionState.LOST) isLost.set(true);
            });
            client.start();
        }
    }

    static long number(String name) {
        return Long.parseLong(task.get(name));
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static void failed(Exception error) {
        errors.incrementAndGet();
        lastError = error.toString().replace('\n', ' ');
    }

    public static void main(String[] words) throws Exception {
        for (String word : words) {
            String[] pair = word.split("=", 2);
            if (pair.length == 2) task.put(pair[0], pair[1]);
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        String work = task.get("work");
        Link[] links = new Link[(int) number("links")];
        Thread[] connecting = new Thread[links.length];
        for (int i = 0; i < links.length; i++) {
            Link link = links[i] = new Link();
            int number = i;
            connecting[i] = new Thread(() -> serve(link, number));
            connecting[i].start();
        }
        for (Thread thread : connecting) thread.join();
        Mutex gate = new Mutex(links[0].client, number("first"));
        boolean isQueue = work.equals("queue");
        if (isQueue) {
            gate.acquire();
        } else {
            say("ready");
            expect(input, "go");
        }
        boolean keeps = work.equals("hold") || work.equals("try");
        for (int i = 0; i < number("owners"); i++) {
            Link link = links[i % links.length];
            int owner = i;
            Thread thread = new Thread(() -> {
                if (keeps) hold(link, owner, work.equals("try"));
                else cycle(link, owner);
            });
            thread.setDaemon(true);
            thread.start();
        }
        if (isQueue) {
            while (asking.get() < number("owners")) Thread.sleep(10);
            say("ready");
            expect(input, "go");
            gate.release();
        }
        expect(input, "stop");
        isOver = true;
        StringBuilder lines = new StringBuilder();
        for (String line : cycles) lines.append(line).append('\n');
        if (errors.get() > 0) lines.append("errors ").append(errors.get()).append(' ').append(lastError).append('\n');
        say(lines + "end");
        Runtime.getRuntime().halt(0);
    }

    static void expect(BufferedReader input, String word) throws Exception {
        if (!word.equals(input.readLine())) Runtime.getRuntime().halt(1);
    }

    static void serve(Link link, int number) {
        long started = System.nanoTime(), pid = ProcessHandle.current().pid();
        for (long attempts = 0; ; attempts++) {
            try {
                long lock = TRIAL_LOCK + (pid + attempts * number("links") + number) % TRIAL_LOCKS;
                Mutex mutex = new Mutex(link.client, lock);
                mutex.acquire();
                mutex.release();
                return;
            } catch (Exception error) {
                if (System.nanoTime() - started > 60_000_000_000L) Runtime.getRuntime().halt(1);
                pause(100);
            }
        }
    }

    static void cycle(Link link, int owner) {
        SplittableRandom dice = new SplittableRandom(owner);
        Map<Long, Mutex> mutexes = new HashMap<>();
        long first = number("first"), locks = number("locks");
        while (!isOver) {
            long lock = first + dice.nextLong(locks);
            Mutex mutex = mutexes.computeIfAbsent(lock, it -> new Mutex(link.client, it));
            long asked = System.nanoTime();
            asking.incrementAndGet();
            try {
                mutex.acquire();
                long granted = System.nanoTime();
                mutex.release();
                long released = System.nanoTime();
                cycles.add("cycle " + lock + ' ' + owner + ' ' + asked + ' ' + granted + ' ' + released + " 0");
            } catch (Exception error) {
                failed(error);
                pause(10);
            }
        }
    }

    static void hold(Link link, int owner, boolean isTry) {
        long end = number("first") + number("locks"), pace = number("pace");
        Queue<String> kept = new ConcurrentLinkedQueue<>();
        for (long lock = number("first") + owner; lock < end && !isOver; lock += number("owners")) {
            Mutex mutex = new Mutex(link.client, lock);
            long asked = System.nanoTime();
            String name = " " + lock + ' ' + owner + ' ';
            try {
                // Curator tries nothing in no time: it looks once, then leaves.
                boolean isTaken = !isTry || mutex.acquire(0, TimeUnit.MILLISECONDS);
                if (!isTry) mutex.acquire();
                long granted = System.nanoTime();
                if (isTaken) {
                    say("held" + name + asked + ' ' + granted + ' ' + mutex.fence(link.client));
                    kept.add(name);
                } else {
                    say("refused" + name + asked + ' ' + granted);
                }
            } catch (Exception error) {
                failed(error);
                say("failed" + name + asked + ' ' + System.nanoTime() + ' ' + error.toString().replace('\n', ' '));
            }
            if (pace > 0) pause(pace);
        }
        say("took " + owner);
        while (true) {
            pause(50);
            if (link.isLost.get()) {
                for (String name; (name = kept.poll()) != null; ) say("lost" + name + System.nanoTime());
            }
        }
    }

    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
