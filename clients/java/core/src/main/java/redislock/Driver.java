package redislock;

import java.lang.ref.Cleaner;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Runs the protocol's tasks over a Redis library. {@link Acquire#undo()} follows an acquire that
 * fails, or that its caller gives up; the caller is kept for it a second at most.
 */
abstract class Driver implements AutoCloseable {
  static final Cleaner CLEANER = Cleaner.create();

  final Endings endings = new Endings();
  final ScheduledThreadPoolExecutor timer =
      new ScheduledThreadPoolExecutor(1, daemons("redislock-timer"));

  /** Opens when the locks are closed: pauses end there. */
  final CountDownLatch closing = new CountDownLatch(1);

  private final Set<Line> lines = ConcurrentHashMap.newKeySet();

  /** Those of the holds that are renewed. */
  final Set<Keeper> renewing = ConcurrentHashMap.newKeySet();

  /** Virtual threads where there are any, else daemon threads. */
  final Executor workers = workers();

  Driver() {
    timer.setRemoveOnCancelPolicy(true);
    // Without a shutdown its thread ends all the same: losses are told behind close() too.
    timer.setKeepAliveTime(1, TimeUnit.SECONDS);
    timer.allowCoreThreadTimeOut(true);
  }

  /** True if requests wait by messages, over a shared connection. */
  abstract boolean waitsByMessage();

  /** True if it asks the node of a key, and follows redirections. */
  abstract boolean isCluster();

  /** The longest BLOCK that the connections allow. */
  abstract long sliceMs();

  /** A connection of its own for requests about this key, made with its first command. */
  final Line line(byte[] key) {
    Line line = newLine(key);
    lines.add(line);
    return line;
  }

  abstract Line newLine(byte[] key);

  final void forget(Line line) {
    lines.remove(line);
  }

  /** Ends the tasks that are under way, then the connections. */
  abstract void end();

  final boolean isClosed() {
    return closing.getCount() == 0;
  }

  static Trouble closed() {
    return new Trouble(new IllegalStateException("these locks are closed"), Trouble.Stage.CLOSED);
  }

  /** Runs the task for its caller. An interrupt ends it. */
  abstract <T extends @Nullable Object> T run(Task<T> task, @Nullable Line line)
      throws InterruptedException;

  /** Runs the task beside its caller. Cancelling the future ends it. */
  abstract <T extends @Nullable Object> CompletableFuture<T> start(
      Task<T> task, @Nullable Line line);

  /**
   * Runs the task; its caller waits for it so long at most, and it goes on beside it. An interrupt
   * does not end it.
   */
  <T extends @Nullable Object> CompletableFuture<T> runFor(Task<T> task, long ms) {
    CompletableFuture<T> running = start(task, null);
    Futures.await(running, ms);
    return running;
  }

  final CompletableFuture<?> undo(Task<?> task, @Nullable Line line) {
    return undo(task, line, CompletableFuture.completedFuture(null));
  }

  /**
   * Undoes what the task may have left, behind its latest request; the owner's next acquire waits
   * for it.
   */
  final CompletableFuture<?> undo(Task<?> task, @Nullable Line line, CompletableFuture<?> request) {
    if (line != null) {
      line.close();
    }
    if (!(task instanceof Acquire acquire) || !acquire.open) {
      return CompletableFuture.completedFuture(null);
    }
    List<byte[]> keys = acquire.request.family().keys();
    byte[] token = acquire.request.owner().token;
    endings.distrust(keys, token);
    CompletableFuture<?> undoing = request;
    for (Repeat<@Nullable Object> each : acquire.undo()) {
      undoing = undoing.thenCompose(none -> start(each, null));
    }
    endings.add(keys, token, undoing);
    return undoing;
  }

  @Override
  public final void close() {
    CompletableFuture<?>[] ended =
        renewing.stream().map(Keeper::end).toArray(CompletableFuture[]::new);
    Futures.await(CompletableFuture.allOf(ended), Limits.KEPT_MS);
    closing.countDown();
    end();
    lines.forEach(Line::cut);
  }

  static ThreadFactory daemons(String name) {
    return work -> {
      Thread thread = new Thread(work, name);
      thread.setDaemon(true);
      return thread;
    };
  }

  private static Executor workers() {
    try {
      // Java 21 and later. This is compiled for 17.
      return (Executor) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    } catch (ReflectiveOperationException e) {
      return Executors.newCachedThreadPool(daemons("redislock"));
    }
  }
}
