import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The load of load.rs, in Java: it takes the same words and says the same lines. An owner is a thread. What a peer's
 * client has to be able to do is what is abstract here.
 */
public abstract class Load {
    /** A connection, a session, a client: what one process of this peer's users has. Owners share it. */
    public interface Link {
        Owner owner() throws Exception;

        /** Whether the client has reported the locks of this link as lost. */
        default boolean isLost() {
            return false;
        }
    }

    /** A thread or task that acquires locks. */
    public interface Owner {
        /** Waits indefinitely. */
        Held acquire(long lock) throws Exception;

        /** Null: it is held by another. */
        Held tryAcquire(long lock) throws Exception;
    }

    public interface Held {
        /** The number for fencing; 0: there is none, or the load does not ask for it. */
        default long fence() throws Exception {
            return 0;
        }

        void release() throws Exception;
    }

    static final long TRIAL_LOCK = 90_000;
    static final long TRIAL_LOCKS = 10_000;
    static final long TIMEOUT_NS = 60_000_000_000L;

    private final Map<String, String> task = new HashMap<>();
    private final Queue<String> cycles = new ConcurrentLinkedQueue<>();
    private final AtomicLong asking = new AtomicLong();
    private final AtomicLong errors = new AtomicLong();
    private volatile String lastError = "";
    private volatile boolean isOver;

    protected abstract Link connect() throws Exception;

    protected String word(String name) {
        return task.get(name);
    }

    protected long number(String name) {
        return Long.parseLong(task.get(name));
    }

    /** The words of the task, `name=value` each; others are no business of this. */
    protected void run(String[] words) throws Exception {
        for (String word : words) {
            String[] pair = word.split("=", 2);
            if (pair.length == 2) task.put(pair[0], pair[1]);
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        String work = task.get("work");
        Link[] links = new Link[(int) number("links")];
        Thread[] connecting = new Thread[links.length];
        for (int i = 0; i < links.length; i++) {
            int number = i;
            connecting[i] = new Thread(() -> links[number] = serving(number));
            connecting[i].start();
        }
        for (Thread thread : connecting) thread.join();
        Held barrier = null;
        if (work.equals("queue")) {
            barrier = links[0].owner().acquire(number("first"));
        } else {
            say("ready");
            expect(input, "go");
        }
        for (int i = 0; i < number("owners"); i++) {
            Link link = links[i % links.length];
            int owner = i;
            Thread thread = new Thread(() -> {
                switch (work) {
                    case "hold", "try" -> hold(link, owner, work.equals("try"));
                    case "sweep" -> sweep(link, owner);
                    default -> cycle(link, owner);
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        if (barrier != null) {
            while (asking.get() < number("owners")) Thread.sleep(10);
            say("ready");
            expect(input, "go");
            barrier.release();
        }
        expect(input, "stop");
        isOver = true;
        StringBuilder lines = new StringBuilder();
        for (String line : cycles) lines.append(line).append('\n');
        if (errors.get() > 0) lines.append("errors ").append(errors.get()).append(' ').append(lastError).append('\n');
        say(lines + "end");
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private void failed(Exception error) {
        errors.incrementAndGet();
        lastError = error.toString().replace('\n', ' ');
    }

    private static void expect(BufferedReader input, String word) throws Exception {
        if (!word.equals(input.readLine())) Runtime.getRuntime().halt(1);
    }

    /** Returns a link over which a lock has been acquired and released. */
    private Link serving(int number) {
        long started = System.nanoTime(), pid = ProcessHandle.current().pid();
        for (long attempts = 0; ; attempts++) {
            try {
                long lock = TRIAL_LOCK + (pid + attempts * number("links") + number) % TRIAL_LOCKS;
                Link link = connect();
                link.owner().acquire(lock).release();
                return link;
            } catch (Exception error) {
                if (System.nanoTime() - started > TIMEOUT_NS) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
                pause(100);
            }
        }
    }

    private Owner owner(Link link) {
        while (true) {
            try {
                return link.owner();
            } catch (Exception error) {
                pause(100);
            }
        }
    }

    private void cycle(Link link, int number) {
        SplittableRandom rng = new SplittableRandom(number);
        Owner owner = owner(link);
        long first = number("first"), locks = number("locks");
        while (!isOver) {
            long lock = first + rng.nextLong(locks);
            long asked = System.nanoTime();
            asking.incrementAndGet();
            try {
                Held held = owner.acquire(lock);
                long granted = System.nanoTime();
                held.release();
                long released = System.nanoTime();
                cycles.add("cycle " + lock + ' ' + number + ' ' + asked + ' ' + granted + ' ' + released + " 0");
            } catch (Exception error) {
                failed(error);
                pause(10);
            }
        }
    }

    private void sweep(Link link, int number) {
        Owner owner = owner(link);
        for (long lock = number("first"); lock < number("first") + number("locks"); lock++) {
            try {
                Held held = owner.acquire(lock);
                pause(1);
                held.release();
            } catch (Exception error) {
                failed(error);
            }
        }
        say("took " + number);
    }

    private void hold(Link link, int number, boolean isTry) {
        Owner owner = owner(link);
        long end = number("first") + number("locks"), pace = number("pace");
        Queue<String> kept = new ConcurrentLinkedQueue<>();
        for (long lock = number("first") + number; lock < end && !isOver; lock += number("owners")) {
            long asked = System.nanoTime();
            String name = " " + lock + ' ' + number + ' ';
            try {
                Held held = isTry ? owner.tryAcquire(lock) : owner.acquire(lock);
                long granted = System.nanoTime();
                if (held != null) {
                    say("held" + name + asked + ' ' + granted + ' ' + held.fence());
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
        say("took " + number);
        while (true) {
            pause(50);
            if (link.isLost()) {
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
