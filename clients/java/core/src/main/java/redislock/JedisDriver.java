package redislock;

import java.io.IOException;
import java.lang.reflect.Field;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;
import redis.clients.jedis.Connection;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.providers.ClusterConnectionProvider;
import redis.clients.jedis.providers.ConnectionProvider;
import redis.clients.jedis.util.JedisClusterCRC16;
import redis.clients.jedis.util.Pool;

/**
 * The driver for Jedis. Each request, including one that waits in the server's queue, uses a
 * connection of the pool. At most half of a pool waits, and further waits use separate connections,
 * because the release of the lock needs one of the pool.
 */
final class JedisDriver extends Driver {
  /**
   * How often to check the threads with outstanding requests for an interrupt, which does not end a
   * socket read.
   */
  private static final long INTERRUPT_MS = 20;

  private final ConnectionProvider provider;

  /** A separate connection that no wait has used for this long is closed. */
  static final long IDLE_MS = 1000;

  private final Map<Pool<Connection>, Waits> waits = new ConcurrentHashMap<>();
  private final Map<Sending, Thread> interruptible = new ConcurrentHashMap<>();
  private final AtomicBoolean watching = new AtomicBoolean();

  JedisDriver(UnifiedJedis client) {
    try {
      // In older versions no other thread can close a connection, which is needed to end a wait.
      Connection.class.getMethod("forceDisconnect");
    } catch (NoSuchMethodException e) {
      throw new IllegalArgumentException(
          "this version of Jedis is too old: locks need Jedis 7 or later (Spring Boot 3 brings"
              + " Jedis 6: set its property jedis.version)",
          e);
    }
    try {
      // The client resends its own commands after a failure, so use its connections. Neither major
      // version offers them in another way.
      Field field = UnifiedJedis.class.getDeclaredField("provider");
      field.setAccessible(true);
      if (!(field.get(client) instanceof ConnectionProvider found)) {
        throw new IllegalArgumentException(
            "this Jedis client has one connection: use RedisClient, or one with a pool");
      }
      provider = found;
    } catch (ReflectiveOperationException e) {
      throw new IllegalArgumentException(
          "this version of Jedis is not supported: its connections cannot be found", e);
    }
  }

  @Override
  boolean waitsByMessage() {
    return false;
  }

  @Override
  boolean isCluster() {
    return provider instanceof ClusterConnectionProvider;
  }

  @Override
  long sliceMs() {
    // The socket timeout is set for each request.
    return Limits.SLICE_MS;
  }

  @Override
  Line newLine(byte[] key) {
    return new JedisLine(key);
  }

  @Override
  void end() {
    interruptible.keySet().forEach(Sending::cut);
    waits.values().forEach(each -> each.closeIdle(Clock.NEVER));
  }

  @Override
  <T extends @Nullable Object> T run(Task<T> task, @Nullable Line line)
      throws InterruptedException {
    Loop<T> loop = new Loop<>(task, (JedisLine) line);
    try {
      T result = loop.finish();
      if (loop.isGivenUp()) {
        Futures.await(undo(task, line), task.keptMs());
      }
      return result;
    } catch (InterruptedException | RuntimeException | Error e) {
      long keptMs = e instanceof InterruptedException ? Limits.KEPT_MS : task.keptMs();
      Futures.await(undo(task, line), keptMs);
      throw e;
    }
  }

  @Override
  <T extends @Nullable Object> CompletableFuture<T> start(Task<T> task, @Nullable Line line) {
    Beside<T> running = new Beside<>();
    workers.execute(() -> running.work(() -> run(task, line), () -> undo(task, line)));
    return running;
  }

  @Override
  <T extends @Nullable Object> CompletableFuture<T> runFor(Task<T> task, long ms) {
    Loop<T> loop = new Loop<>(task, null);
    CompletableFuture<T> running = new CompletableFuture<>();
    boolean interrupted = Thread.interrupted();
    try {
      if (loop.runUntil(Clock.now() + ms)) {
        running.complete(loop.result());
      } else {
        workers.execute(() -> finish(loop, running));
      }
    } catch (InterruptedException e) {
      interrupted = true;
      workers.execute(() -> finish(loop, running));
    } catch (RuntimeException e) {
      running.completeExceptionally(e);
    }
    if (interrupted) {
      Futures.await(running, ms);
      Thread.currentThread().interrupt();
    }
    return running;
  }

  private static <T extends @Nullable Object> void finish(
      JedisDriver.Loop<T> loop, CompletableFuture<T> running) {
    try {
      running.complete(loop.finish());
    } catch (InterruptedException | RuntimeException e) {
      running.completeExceptionally(e);
    }
  }

  private interface Work<T extends @Nullable Object> {
    T run() throws InterruptedException;
  }

  /** A task on a dedicated thread, which cancelling interrupts. */
  private static final class Beside<T extends @Nullable Object> extends CompletableFuture<T> {
    private @Nullable Thread thread;

    void work(Work<T> work, Runnable abandoned) {
      boolean isCancelled;
      synchronized (this) {
        isCancelled = isDone();
        thread = Thread.currentThread();
      }
      if (isCancelled) {
        abandoned.run();
        return;
      }
      try {
        T result = work.run();
        synchronized (this) {
          thread = null;
        }
        if (!complete(result)) {
          abandoned.run();
        }
      } catch (InterruptedException e) {
        completeExceptionally(new CancellationException("interrupted"));
      } catch (RuntimeException | Error e) {
        completeExceptionally(e);
      } finally {
        synchronized (this) {
          thread = null;
        }
      }
    }

    @Override
    public boolean cancel(boolean mayInterrupt) {
      boolean cancelled = super.cancel(mayInterrupt);
      synchronized (this) {
        if (cancelled && thread != null) {
          thread.interrupt();
        }
      }
      return cancelled;
    }
  }

  /** A running task, over blocking connections. */
  private final class Loop<T extends @Nullable Object> {
    private final Task<T> task;
    private final @Nullable JedisLine line;
    private @Nullable String asked;
    private Step step;

    Loop(Task<T> task, @Nullable JedisLine line) {
      this.task = task;
      this.line = line;
      this.step = task.begin();
    }

    T finish() throws InterruptedException {
      runUntil(Clock.NEVER);
      return result();
    }

    boolean isGivenUp() {
      return step instanceof Step.GivenUp;
    }

    @SuppressWarnings("unchecked")
    T result() {
      return (T) (step instanceof Step.Done done ? done.result() : null);
    }

    /** False: the time ran out first. After an interrupt the task stays at its next step. */
    boolean runUntil(long until) throws InterruptedException {
      while (!(step instanceof Step.Done)) {
        if (step instanceof Step.GivenUp given) {
          if (given.error() != null) {
            throw given.error();
          }
          return true;
        }
        long leftMs = until - Clock.now();
        if (leftMs <= 0) {
          return false;
        }
        if (step instanceof Step.Send send) {
          send(send, Math.min(leftMs, send.withinMs()));
        } else if (step instanceof Step.Sleep sleep) {
          closing.await(Math.min(leftMs, sleep.ms()), TimeUnit.MILLISECONDS);
          step = task.slept();
        } else {
          throw new IllegalStateException("no messages over connections that block");
        }
      }
      return true;
    }

    private void send(Step.Send send, long withinMs) throws InterruptedException {
      Runnable blocked = send.blocks() ? task::blocked : null;
      List<@Nullable Object> replies;
      try {
        if (isClosed()) {
          throw closed();
        }
        replies =
            line == null
                ? JedisDriver.this.send(task.key, asked, send.packet(), withinMs, blocked)
                : line.send(send.packet(), withinMs, blocked);
      } catch (Trouble trouble) {
        replies = List.of(trouble);
      }
      Trouble trouble = Trouble.of(replies);
      asked = trouble == null ? null : trouble.asked();
      boolean failed = trouble != null && trouble.stage != Trouble.Stage.REFUSED;
      // Take the outcome first: even after an interrupt, a command that may have run is not sent
      // again.
      step = task.replies(failed && isClosed() ? List.of(closed()) : replies);
      if (failed && Thread.interrupted()) {
        throw new InterruptedException();
      }
    }
  }

  /**
   * Sends to the node of {@link Trouble#asked()}, or to that of the key. Throws if there was no
   * connection.
   */
  private List<@Nullable Object> send(
      byte[] key,
      @Nullable String asked,
      List<List<byte[]>> packet,
      long withinMs,
      @Nullable Runnable blocked)
      throws Trouble, InterruptedException {
    Pool<Connection> pool = pool(key, asked);
    Waits waiting = blocked != null ? waits.computeIfAbsent(pool, Waits::new) : null;
    boolean isPooled = waiting == null || waiting.pooled.tryAcquire();
    try {
      Connection connection = isPooled ? borrowed(pool, withinMs) : waiting.separate(withinMs);
      Sending sending = new Sending(connection);
      boolean reusable = false;
      try {
        List<@Nullable Object> replies = sending.exchange(packet, asked != null, withinMs, blocked);
        Trouble trouble = Trouble.of(replies);
        boolean isBroken = trouble != null && trouble.endsConnection();
        if (isBroken) {
          // The other idle connections are most likely broken as well.
          pool.clear();
          if (waiting != null) {
            waiting.closeIdle(Clock.NEVER);
          }
        }
        // A session that was not released is still bound to it.
        boolean isBound = packet.size() > 1 && replies.get(packet.size() - 1) instanceof Trouble;
        reusable = !isBroken && !isBound && !sending.isCut();
        if (trouble != null) {
          failed(trouble);
        }
        return replies;
      } finally {
        if (reusable && !isPooled) {
          waiting.keep(connection);
        } else if (reusable) {
          connection.rollbackTimeout();
          pool.returnResource(connection);
        } else if (!isPooled) {
          quietly(connection);
        } else {
          quietly(connection);
          // The pool replaces it at once, and connecting may take seconds.
          workers.execute(() -> returnBroken(pool, connection));
        }
      }
    } finally {
      if (waiting != null && isPooled) {
        waiting.pooled.release();
      }
    }
  }

  private static void returnBroken(Pool<Connection> pool, Connection connection) {
    try {
      pool.returnBrokenResource(connection);
    } catch (JedisException e) {
      Context.LOG.log(System.Logger.Level.DEBUG, "the pool could not replace a connection", e);
    }
  }

  /**
   * The connections of the requests that may wait: half of a pool, and beyond that separate ones
   * with the pool's parameters. Connecting costs several times as much as a hand-off, so the next
   * wait reuses a separate connection.
   */
  private final class Waits {
    final Semaphore pooled;
    private final Pool<Connection> pool;
    private final ConcurrentLinkedDeque<Idle> idle = new ConcurrentLinkedDeque<>();
    private final AtomicBoolean sweeping = new AtomicBoolean();

    private record Idle(Connection connection, long since) {}

    Waits(Pool<Connection> pool) {
      this.pool = pool;
      pooled = new Semaphore(pool.getMaxTotal() < 0 ? Integer.MAX_VALUE : pool.getMaxTotal() / 2);
    }

    Connection separate(long withinMs) throws Trouble, InterruptedException {
      Idle latest = pool.isClosed() ? null : idle.pollFirst();
      return latest != null ? latest.connection : made(pool, withinMs);
    }

    void keep(Connection connection) {
      idle.addFirst(new Idle(connection, Clock.now()));
      if (isClosed()) {
        closeIdle(Clock.NEVER);
      } else if (sweeping.compareAndSet(false, true)) {
        timeouts.add(IDLE_MS, this::sweep);
      }
    }

    private void sweep() {
      sweeping.set(false);
      closeIdle(Clock.now() - IDLE_MS);
      if (!idle.isEmpty() && sweeping.compareAndSet(false, true)) {
        timeouts.add(IDLE_MS, this::sweep);
      }
    }

    /** Closes those that were last used by then. */
    void closeIdle(long by) {
      for (Idle each : idle) {
        if (each.since <= by && idle.remove(each)) {
          quietly(each.connection);
        }
      }
    }
  }

  /** Refreshes the map of slots if this failure means that some may have moved. */
  private Trouble failed(Trouble trouble) {
    if (provider instanceof ClusterConnectionProvider cluster
        && (trouble.code().equals("MOVED") || trouble.stage != Trouble.Stage.REFUSED)) {
      try {
        cluster.renewSlotCache();
      } catch (JedisException e) {
        // The next request will try again.
      }
    }
    return trouble;
  }

  @SuppressWarnings("unchecked")
  private Pool<Connection> pool(byte[] key, @Nullable String asked) throws Trouble {
    try {
      if (!(provider instanceof ClusterConnectionProvider cluster)) {
        return (Pool<Connection>) provider.getConnectionMap().values().iterator().next();
      }
      HostAndPort node =
          asked == null ? cluster.getNode(JedisClusterCRC16.getSlot(key)) : HostAndPort.from(asked);
      Pool<Connection> pool = node == null ? null : cluster.getNodes().get(node.toString());
      if (pool == null && node != null) {
        // Jedis does not know a new node while its first slots are still moving.
        cluster.getConnection(node).close();
        pool = cluster.getNodes().get(node.toString());
      }
      if (pool != null) {
        return pool;
      }
    } catch (JedisException | NoSuchElementException | ClassCastException e) {
      Trouble refusal = refusal(e);
      throw refusal != null ? refusal : new Trouble(e, Trouble.Stage.UNSENT);
    }
    throw failed(
        new Trouble(
            new JedisConnectionException("no node serves the slot of the key"),
            Trouble.Stage.UNSENT));
  }

  private Connection borrowed(Pool<Connection> pool, long withinMs)
      throws Trouble, InterruptedException {
    if (pool.getNumIdle() == 0) {
      return connecting(
          pool,
          () -> pool.borrowObject(Duration.ofMillis(withinMs)),
          pool::returnResource,
          withinMs);
    }
    try {
      return pool.borrowObject(Duration.ofMillis(withinMs));
    } catch (InterruptedException e) {
      throw e;
    } catch (Exception e) {
      throw notConnected(pool, e);
    }
  }

  /** A separate connection, with the pool's parameters. */
  private Connection made(Pool<Connection> pool, long withinMs)
      throws Trouble, InterruptedException {
    Callable<Connection> made = () -> pool.getFactory().makeObject().getObject();
    return connecting(pool, made, JedisDriver::quietly, Math.min(withinMs, Limits.UNDO_MS));
  }

  /** Connects on another thread, because neither an interrupt nor a time limit ends a connect. */
  private Connection connecting(
      Pool<Connection> pool,
      Callable<Connection> work,
      Consumer<Connection> abandoned,
      long withinMs)
      throws Trouble, InterruptedException {
    CompletableFuture<Connection> made = new CompletableFuture<>();
    workers.execute(
        () -> {
          try {
            Connection connection = work.call();
            if (!made.complete(connection)) {
              abandoned.accept(connection);
            }
          } catch (Exception e) {
            made.completeExceptionally(e);
          }
        });
    try {
      return made.get(withinMs, TimeUnit.MILLISECONDS);
    } catch (ExecutionException e) {
      throw notConnected(pool, e.getCause());
    } catch (TimeoutException e) {
      abandon(pool, made, abandoned);
      throw new Trouble(
          new JedisConnectionException("no connection in time"), Trouble.Stage.UNSENT);
    } catch (InterruptedException e) {
      abandon(pool, made, abandoned);
      throw e;
    }
  }

  private static void abandon(
      Pool<Connection> pool, CompletableFuture<Connection> made, Consumer<Connection> abandoned) {
    if (made.cancel(false)) {
      pool.clear();
    } else {
      // It came together with the interrupt, or just after the timeout, and the pool must not lose
      // it.
      made.thenAccept(abandoned);
    }
  }

  private static @Nullable Trouble refusal(Throwable error) {
    return Trouble.refusal(error, JedisDataException.class, JedisDataException::new);
  }

  private static Trouble notConnected(Pool<Connection> pool, Throwable error) {
    RuntimeException unchecked = Futures.unchecked(error);
    // The reply to HELLO, AUTH or SELECT.
    Trouble refusal = refusal(error);
    if (refusal != null) {
      return refusal;
    }
    boolean heals =
        error instanceof JedisException
            || error instanceof IOException
            || error instanceof NoSuchElementException;
    return new Trouble(
        unchecked, heals && !pool.isClosed() ? Trouble.Stage.UNSENT : Trouble.Stage.CLOSED);
  }

  private static void quietly(Connection connection) {
    try {
      connection.forceDisconnect();
    } catch (IOException | JedisException e) {
      // It is closed anyway.
    }
  }

  /** One use of a connection by a thread, which an interrupt ends. */
  private final class Sending {
    private final Connection connection;
    private boolean isOver;
    private boolean isCut;

    Sending(Connection connection) {
      this.connection = connection;
    }

    /** Closes the connection, unless this use has ended, after which it may have another user. */
    synchronized void cut() {
      if (!isOver) {
        isCut = true;
        quietly(connection);
      }
    }

    /** True if it was closed by an interrupt, perhaps after its last reply. */
    synchronized boolean isCut() {
      return isCut;
    }

    private synchronized void over() {
      isOver = true;
    }

    /**
     * {@code asking}: after an ASKING, whose own reply is omitted. {@code blocked}: called if the
     * first reply takes long.
     */
    List<@Nullable Object> exchange(
        List<List<byte[]>> packet, boolean asking, long withinMs, @Nullable Runnable blocked) {
      List<@Nullable Object> replies = new ArrayList<>(packet.size());
      Timeouts.Timeout telling = blocked == null ? null : timeouts.add(Limits.QUEUED_MS, blocked);
      interruptible.put(this, Thread.currentThread());
      if (watching.compareAndSet(false, true)) {
        watch();
      }
      try {
        connection.setSoTimeout((int) Math.min(withinMs, Integer.MAX_VALUE));
        for (List<byte[]> words : packet) {
          if (asking) {
            write(connection, List.of(Words.bytes("ASKING")));
          }
          write(connection, words);
        }
        // Jedis connects again to write to a closed connection: what was cut before a packet was
        // whole must not be read.
        if (isClosed() || isCut()) {
          throw new JedisConnectionException("closed before the request was sent");
        }
        while (replies.size() < packet.size()) {
          if (asking) {
            connection.getOne();
          }
          try {
            replies.add(connection.getOne());
          } catch (JedisDataException e) {
            replies.add(new Trouble(e, Trouble.Stage.REFUSED));
          }
        }
      } catch (JedisException e) {
        Trouble trouble = new Trouble(e, Trouble.Stage.UNANSWERED);
        while (replies.size() < packet.size()) {
          replies.add(trouble);
        }
      } finally {
        interruptible.remove(this);
        over();
        if (telling != null) {
          telling.cancel();
        }
      }
      return replies;
    }
  }

  /** Writes into the connection's buffer. */
  private static void write(Connection connection, List<byte[]> words) {
    byte[] name = words.get(0);
    ProtocolCommand command = () -> name;
    connection.sendCommand(command, words.subList(1, words.size()).toArray(byte[][]::new));
  }

  private void watch() {
    timer.schedule(
        () -> {
          if (interruptible.isEmpty()) {
            watching.set(false);
            // A request that has begun meanwhile relied on this check.
            if (!interruptible.isEmpty() && watching.compareAndSet(false, true)) {
              watch();
            }
            return;
          }
          interruptible.forEach(
              (sending, thread) -> {
                if (thread.isInterrupted()) {
                  sending.cut();
                }
              });
          watch();
        },
        INTERRUPT_MS,
        TimeUnit.MILLISECONDS);
  }

  /**
   * A dedicated connection of one acquire. Once it is kept, a separate thread reads on it and
   * notices its end at once.
   */
  private final class JedisLine implements Line {
    private final byte[] key;
    private volatile @Nullable Connection connection;
    private @Nullable String asked;
    private volatile boolean closed;
    private final BlockingQueue<CompletableFuture<@Nullable Object>> checks =
        new ArrayBlockingQueue<>(1);

    JedisLine(byte[] key) {
      this.key = key;
    }

    List<@Nullable Object> send(
        List<List<byte[]>> packet, long withinMs, @Nullable Runnable blocked)
        throws Trouble, InterruptedException {
      if (connection == null) {
        connection = made(pool(key, asked), withinMs);
      }
      Connection open = connection;
      if (closed || open == null) {
        drop();
        throw new Trouble(
            new JedisConnectionException("the request was cancelled"), Trouble.Stage.UNSENT);
      }
      Sending sending = new Sending(open);
      List<@Nullable Object> replies = sending.exchange(packet, asked != null, withinMs, blocked);
      Trouble trouble = Trouble.of(replies);
      if (trouble == null && sending.isCut()) {
        // Closed after the last reply: what was granted over this connection has ended with it.
        JedisException error = new JedisConnectionException("an interrupt ended the connection");
        trouble = new Trouble(error, Trouble.Stage.UNANSWERED);
        replies = List.of(trouble);
      }
      if (trouble != null) {
        drop();
        asked = trouble.asked();
        failed(trouble);
      }
      return replies;
    }

    private void drop() {
      Connection open = connection;
      connection = null;
      if (open != null) {
        quietly(open);
      }
    }

    @Override
    public void keep(Runnable ended) {
      Connection open = connection;
      if (open == null) {
        ended.run();
        return;
      }
      open.setTimeoutInfinite();
      workers.execute(
          () -> {
            try {
              for (; ; ) {
                Object reply = open.getUnflushedObject();
                CompletableFuture<@Nullable Object> check = checks.poll();
                if (check != null) {
                  check.complete(reply);
                }
              }
            } catch (JedisException e) {
              quietly(open);
              if (!closed) {
                ended.run();
              }
            }
          });
    }

    @Override
    public CompletableFuture<@Nullable Object> check(List<byte[]> words, long withinMs) {
      Connection open = connection;
      CompletableFuture<@Nullable Object> reply = new CompletableFuture<>();
      if (open == null || !checks.offer(reply)) {
        reply.completeExceptionally(new JedisConnectionException("the connection has ended"));
        return reply;
      }
      workers.execute(
          () -> {
            try {
              write(open, words);
              open.getMany(0); // flushes
              if (connection != open) {
                quietly(open); // Jedis connected again to write.
              }
            } catch (JedisException e) {
              reply.completeExceptionally(e);
            }
          });
      return reply.orTimeout(withinMs, TimeUnit.MILLISECONDS);
    }

    @Override
    public void cut() {
      drop();
    }

    @Override
    public void close() {
      closed = true;
      forget(this);
      drop();
    }
  }
}
