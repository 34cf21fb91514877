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
 * fails or is cancelled, and delays the caller for a second at most.
 */
abstract class Driver implements AutoCloseable {
  static final Cleaner CLEANER = Cleaner.create();

  final Endings endings = new Endings();
  final ScheduledThreadPoolExecutor timer =
      new ScheduledThreadPoolExecutor(1, daemons("redislock-timer"));

  final Timeouts timeouts = new Timeouts(timer);

  /** Opens when the locks are closed, which ends all pauses. */
  final CountDownLatch closing = new CountDownLatch(1);

  private final Set<Line> lines = ConcurrentHashMap.newKeySet();

  /** The keepers of the holds that are renewed. */
  final Set<Keeper> renewing = ConcurrentHashMap.newKeySet();

  /** Virtual threads if available, otherwise daemon threads. */
  final Executor workers = workers();

  Driver() {
    timer.setRemoveOnCancelPolicy(true);
    // Not shut down, because losses are reported even after close(). Its thread ends by itself.
    timer.setKeepAliveTime(1, TimeUnit.SECONDS);
    timer.allowCoreThreadTimeOut(true);
  }

  /** True if requests wait for messages over a shared connection. */
  abstract boolean waitsByMessage();

  /** True if it sends to the node of the key, and follows redirections. */
  abstract boolean isCluster();

  /** The longest BLOCK that the connections allow. */
  abstract long sliceMs();

  /** A dedicated connection for requests about this key, opened with its first command. */
  final Line line(byte[] key) {
    Line line = newLine(key);
    lines.add(line);
    return line;
  }

  abstract Line newLine(byte[] key);

  final void forget(Line line) {
    lines.remove(line);
  }

  /** Ends the running tasks, then the connections. */
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

  /** Runs the task in the background. Cancelling the future ends it. */
  abstract <T extends @Nullable Object> CompletableFuture<T> start(
      Task<T> task, @Nullable Line line);

  /**
   * Runs the task. The caller waits for a limited time, after which it goes on in the background.
   * An interrupt does not end it.
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
   * Undoes what the task may have left on the server, after its latest request. The owner's next
   * acquire waits for this.
   */
  final CompletableFuture<?> undo(Task<?> task, @Nullable Line line, CompletableFuture<?> request) {
    if (line != null) {
      line.close();
    }
    if (!(task instanceof Acquire acquire)) {
      return CompletableFuture.completedFuture(null);
    }
    CompletableFuture<@Nullable Void> over = acquire.request.over();
    // It may be cancelled while its failure is being undone.
    if (acquire.isUndone.getAndSet(true)) {
      return over;
    }
    if (!acquire.open) {
      over.complete(null);
      return over;
    }
    List<byte[]> keys = acquire.request.lockType().keys();
    byte[] token = acquire.request.owner().token;
    endings.distrust(keys, token);
    CompletableFuture<?> undoing = request;
    for (Repeat<@Nullable Object> each : acquire.undo()) {
      undoing = undoing.thenCompose(none -> start(each, null));
    }
    endings.add(keys, token, undoing);
    undoing.whenComplete((none, error) -> over.complete(null));
    return over;
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
      // By reflection: Java 21 and later have it, and this is compiled for 17.
      return (Executor) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    } catch (ReflectiveOperationException e) {
      return Executors.newCachedThreadPool(daemons("redislock"));
    }
  }
}
