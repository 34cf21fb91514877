package redislock;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisException;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.cluster.pubsub.StatefulRedisClusterPubSubConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.pubsub.RedisPubSubListener;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.io.IOException;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The driver for Lettuce. Each node has one connection for all requests, one for the messages about
 * waiting requests, and one for each session. No thread waits.
 */
final class LettuceDriver extends Driver {
  private final Nodes nodes;
  private final String id = HexFormat.of().toHexDigits(new SecureRandom().nextLong());
  private final long sliceMs;

  /** Tags of channels, by slot. */
  private final Map<Integer, String> tags = new ConcurrentHashMap<>();

  private final AtomicInteger tried = new AtomicInteger();
  private final Set<Running<?>> running = ConcurrentHashMap.newKeySet();

  LettuceDriver(AbstractRedisClient client) {
    nodes =
        client instanceof RedisClusterClient cluster
            ? new Cluster(cluster)
            : new Single((RedisClient) client);
    TimeoutOptions timeouts = client.getOptions().getTimeoutOptions();
    sliceMs = timeouts.isTimeoutCommands() ? slice(timeouts, client) : Limits.SLICE_MS;
  }

  /**
   * Lettuce abandons a command after its own timeout, so a request that blocks must end before
   * that.
   */
  private static long slice(TimeoutOptions timeouts, AbstractRedisClient client) {
    long limitMs =
        timeouts
            .getSource()
            .getTimeUnit()
            .toMillis(timeouts.getSource().getTimeout(new LettuceCommand("PING")));
    if (limitMs <= 0) {
      limitMs = client instanceof RedisClient ? 60_000 : Limits.SLICE_MS;
    }
    return Math.max(
        1,
        limitMs < 1000
            ? limitMs / 2
            : Math.min(Limits.SLICE_MS, Math.min(limitMs * 3 / 4, limitMs - 500)));
  }

  @Override
  boolean waitsByMessage() {
    return true;
  }

  @Override
  boolean isCluster() {
    return nodes instanceof Cluster;
  }

  @Override
  long sliceMs() {
    return sliceMs;
  }

  @Override
  <T extends @Nullable Object> T run(Task<T> task, @Nullable Line line)
      throws InterruptedException {
    Running<T> running = new Running<>(task, line);
    running.begin();
    try {
      return running.get();
    } catch (InterruptedException e) {
      if (running.cancel(true)) {
        Futures.await(running.undoing, Limits.KEPT_MS);
        throw e;
      }
      // The result came first. It may be a hold that only the caller can release.
      Thread.currentThread().interrupt();
      return Futures.result(running);
    } catch (ExecutionException e) {
      throw Futures.rethrown(e.getCause());
    }
  }

  @Override
  <T extends @Nullable Object> CompletableFuture<T> start(Task<T> task, @Nullable Line line) {
    Running<T> running = new Running<>(task, line);
    running.begin();
    return running;
  }

  /** A running task: the completion of each step starts the next. */
  private final class Running<T extends @Nullable Object> extends CompletableFuture<T> {
    private final Task<T> task;
    private final @Nullable LettuceLine line;
    private final ReentrantLock mutex = new ReentrantLock();
    private boolean over;
    private volatile Inbox.@Nullable Waiter waiter;
    private volatile @Nullable Node heard;
    private volatile @Nullable String asked;
    private volatile @Nullable Packet packet;
    private volatile Timeouts.@Nullable Timeout blocked;
    volatile CompletableFuture<?> undoing = CompletableFuture.completedFuture(null);

    Running(Task<T> task, @Nullable Line line) {
      this.task = task;
      this.line = (LettuceLine) line;
    }

    /** Ends the task because the locks are closed. */
    void close() {
      proceed(() -> new Step.GivenUp(closed().error));
    }

    void begin() {
      running.add(this);
      if (line == null && task instanceof Acquire) {
        Node node = nodes.known(task.key);
        String channel = channel(task.key);
        if (node != null && node.hears(channel)) {
          hear(node);
          task.subscribed(channel);
        }
      }
      proceed(task::begin);
    }

    private void hear(Node node) {
      if (heard != node) {
        unhear();
        heard = node;
        waiter = node.inbox.waiter(task.key, ((Acquire) task).request.owner().token);
      }
    }

    private void unhear() {
      Inbox.Waiter last = waiter;
      if (last != null) {
        last.close();
      }
      heard = null;
      waiter = null;
    }

    private void proceed(Supplier<Step> next) {
      Step step;
      Packet sending = null;
      mutex.lock();
      try {
        if (over) {
          return;
        }
        try {
          step = next.get();
        } catch (RuntimeException e) {
          step = new Step.GivenUp(e);
        }
        over = step instanceof Step.Done || step instanceof Step.GivenUp;
        if (step instanceof Step.Send send) {
          sending = packet = new Packet(send, this::replied);
        }
      } finally {
        mutex.unlock();
      }
      perform(step, sending);
    }

    private void replied(List<@Nullable Object> replies) {
      Timeouts.Timeout queued = blocked;
      if (queued != null) {
        queued.cancel();
      }
      Trouble trouble = Trouble.of(replies);
      asked = trouble == null ? null : trouble.asked();
      proceed(() -> task.replies(replies));
    }

    @SuppressWarnings("unchecked")
    private void perform(Step step, @Nullable Packet sending) {
      if (step instanceof Step.Send send) {
        Inbox.Waiter mine = waiter;
        if (mine != null) {
          mine.clear();
        }
        blocked = send.blocks() ? timeouts.add(Limits.QUEUED_MS, task::blocked) : null;
        if (line == null) {
          nodes.send(task.key, asked, sending);
        } else {
          line.send(sending);
        }
      } else if (step instanceof Step.Sleep sleep) {
        timer.schedule(() -> proceed(task::slept), sleep.ms(), TimeUnit.MILLISECONDS);
      } else if (step instanceof Step.Listen listen) {
        String channel = channel(task.key);
        nodes
            .listen(task.key, channel, listen.withinMs())
            .whenComplete(
                (node, error) ->
                    proceed(
                        () -> {
                          if (error != null) {
                            return task.trouble(trouble(error));
                          }
                          hear(node);
                          task.subscribed(channel);
                          return task.slept();
                        }));
      } else if (step instanceof Step.Await await) {
        await(await.until());
      } else if (step instanceof Step.Done done) {
        unhear();
        running.remove(this);
        complete((T) done.result());
      } else if (step instanceof Step.GivenUp given) {
        unhear();
        undoing = withdraw();
        undoing
            .copy()
            .completeOnTimeout(null, task.keptMs(), TimeUnit.MILLISECONDS)
            .whenComplete((none, error) -> end(given));
      }
    }

    private void end(Step.GivenUp given) {
      running.remove(this);
      if (given.error() == null) {
        complete(null);
      } else {
        completeExceptionally(given.error());
      }
    }

    private void await(long until) {
      CompletableFuture<Task.@Nullable Notice> notice = new CompletableFuture<>();
      Inbox.Waiter mine = waiter;
      if (mine == null) {
        notice.complete(Task.Notice.INTERRUPTED);
      } else {
        mine.next(notice::complete);
      }
      Timeouts.Timeout late = timeouts.add(until - Clock.now(), () -> notice.complete(null));
      notice.whenComplete(
          (message, error) -> {
            late.cancel();
            proceed(() -> task.notice(message));
          });
    }

    @Override
    public boolean cancel(boolean mayInterrupt) {
      mutex.lock();
      try {
        if (!super.cancel(mayInterrupt)) {
          return false;
        }
        over = true;
      } finally {
        mutex.unlock();
      }
      running.remove(this);
      unhear();
      undoing = withdraw();
      return true;
    }

    private CompletableFuture<?> withdraw() {
      Packet latest = packet;
      if (latest == null) {
        return undo(task, line);
      }
      latest.abandon();
      return undo(task, line, latest.over);
    }
  }

  private static Trouble trouble(Throwable error) {
    Throwable cause = Futures.cause(error);
    if (cause instanceof Trouble trouble) {
      return trouble;
    }
    return unsent(cause);
  }

  /**
   * Why there is no connection or subscription. Anything but a network failure, such as a missing
   * class, is permanent.
   */
  private static Trouble unsent(Throwable error) {
    Throwable cause = Futures.cause(error);
    Trouble refusal =
        Trouble.refusal(
            cause, RedisCommandExecutionException.class, RedisCommandExecutionException::new);
    if (refusal != null) {
      return refusal;
    }
    if (cause instanceof CancellationException) {
      cause = new RedisConnectionException("the connection was closed", cause);
    }
    boolean heals =
        cause instanceof RedisException
            || cause instanceof IOException
            || cause instanceof TimeoutException;
    return new Trouble(
        Futures.unchecked(cause), heals ? Trouble.Stage.UNSENT : Trouble.Stage.CLOSED);
  }

  private String channel(byte[] key) {
    // In a cluster the message is published at the node of the slot, so the channel must hash to
    // that slot.
    return nodes instanceof Cluster
        ? "redislock:" + id + ":{" + tag(SlotHash.getSlot(key)) + "}"
        : "redislock:" + id;
  }

  /** A text without braces that hashes to this slot, because keys may contain any bytes. */
  private String tag(int slot) {
    for (; ; ) {
      String tag = tags.get(slot);
      if (tag != null) {
        return tag;
      }
      String next = Integer.toString(tried.getAndIncrement(), 36);
      tags.putIfAbsent(SlotHash.getSlot(next), next);
    }
  }

  @Override
  Line newLine(byte[] key) {
    return new LettuceLine(key);
  }

  @Override
  void end() {
    running.forEach(Running::close);
    nodes.close();
  }

  /** Unless its client has closed it already, because Lettuce warns about a second close. */
  private static void close(StatefulConnection<?, ?> connection) {
    if (!((RedisChannelHandler<?, ?>) connection).isClosed()) {
      connection.closeAsync();
    }
  }

  /** Completes the future in time, with a failure if necessary. */
  private <T> CompletableFuture<T> limited(CompletableFuture<T> future, long withinMs) {
    return limited(
        future,
        withinMs,
        () ->
            future.completeExceptionally(
                new Trouble(
                    new RedisConnectionException("no connection in time"), Trouble.Stage.UNSENT)));
  }

  private <T> CompletableFuture<T> limited(
      CompletableFuture<T> future, long withinMs, Runnable late) {
    if (!future.isDone()) {
      Timeouts.Timeout timeout = timeouts.add(withinMs, late);
      future.whenComplete((result, error) -> timeout.cancel());
    }
    return future;
  }

  /** Runs blocking work, such as connecting, on a separate thread. */
  private <T> CompletableFuture<T> blocking(Supplier<T> work) {
    return CompletableFuture.supplyAsync(work, workers);
  }

  /**
   * The commands of a step. If multiple packets wait for one connection, the latest is sent first,
   * so a withdrawal must not start before its request was sent or abandoned.
   */
  private final class Packet {
    private final List<LettuceCommand> commands;
    private final AtomicInteger missing;
    private final Consumer<List<@Nullable Object>> replied;
    private final AtomicBoolean decided = new AtomicBoolean();

    /** Completes when it was sent or abandoned. */
    final CompletableFuture<Void> over = new CompletableFuture<>();

    private volatile Timeouts.@Nullable Timeout timeout;
    private volatile @Nullable Connection connection;
    private volatile @Nullable Consumer<Trouble> failed;

    /** {@code replied}: takes what {@link Task#replies} takes, once. */
    Packet(Step.Send send, Consumer<List<@Nullable Object>> replied) {
      this.replied = replied;
      missing = new AtomicInteger(send.packet().size());
      commands = new ArrayList<>(missing.get());
      for (List<byte[]> words : send.packet()) {
        commands.add(new LettuceCommand(words, this::answered));
      }
      timeout = timeouts.add(send.withinMs(), () -> lost("no reply in time"));
    }

    /** Sends it once the connection is there. {@code failed} is called before its replies are. */
    void sendOver(
        CompletionStage<Connection> connecting, boolean asking, Consumer<Trouble> failed) {
      this.failed = failed;
      connecting.whenComplete(
          (connection, error) -> {
            if (error != null) {
              fail(trouble(error));
            } else if (!isOver() && begins()) {
              connection.dispatch(this, asking);
              over.complete(null);
            }
          });
    }

    /** False: it was abandoned. */
    private boolean begins() {
      return decided.compareAndSet(false, true);
    }

    void abandon() {
      if (begins()) {
        over.complete(null);
      }
    }

    boolean isOver() {
      return missing.get() == 0;
    }

    void lost(String message) {
      commands.forEach(each -> each.lost(message));
    }

    void fail(Trouble trouble) {
      commands.forEach(each -> each.answer(trouble));
    }

    private void answered() {
      if (missing.decrementAndGet() > 0) {
        return;
      }
      Timeouts.Timeout limit = timeout;
      if (limit != null) {
        limit.cancel();
      }
      Connection used = connection;
      if (used != null) {
        used.answered(this);
      }
      List<@Nullable Object> replies = new ArrayList<>(commands.size());
      commands.forEach(each -> replies.add(each.reply.join()));
      Trouble trouble = Trouble.of(replies);
      if (trouble != null) {
        nodes.failed(trouble);
        Consumer<Trouble> listener = failed;
        if (listener != null) {
          listener.accept(trouble);
        }
      }
      replied.accept(replies);
    }
  }

  /** A connection, with the packets that have no reply yet. */
  private final class Connection implements RedisConnectionStateListener {
    final StatefulRedisConnection<byte[], byte[]> redis;
    private final Set<Packet> sent = ConcurrentHashMap.newKeySet();
    private final Runnable onEnd;

    /** Why no further command may be sent over it; null if it is usable. */
    private volatile @Nullable String retired;

    Connection(StatefulRedisConnection<byte[], byte[]> redis, Runnable onEnd) {
      this.redis = redis;
      this.onEnd = onEnd;
      redis.addListener(this);
      if (!redis.isOpen()) {
        ended();
      }
    }

    void dispatch(Packet packet, boolean asking) {
      packet.connection = this;
      sent.add(packet);
      if (packet.isOver()) {
        sent.remove(packet);
      }
      // Read this after adding the packet, because retire() closes the connection only once there
      // are none.
      String why = retired;
      if (why != null) {
        packet.lost(why);
        return;
      }
      List<LettuceCommand> commands = packet.commands;
      try {
        if (asking) {
          redis.dispatch(
              commands.stream()
                  .flatMap(each -> Stream.of(new LettuceCommand("ASKING"), each))
                  .toList());
        } else if (commands.size() == 1) {
          redis.dispatch(commands.get(0));
        } else {
          redis.dispatch(commands);
        }
      } catch (Throwable e) {
        // Including Errors, because a future swallows what its callback throws.
        commands.forEach(each -> each.completeExceptionally(e));
      }
      if (!redis.isOpen()) {
        ended();
      }
    }

    /**
     * Closes it as soon as the packets that were sent over it have their replies. Closing it
     * earlier would leave their outcome unknown.
     */
    void retire(Trouble why) {
      retired = "the connection was closed, because another request failed: " + why.error;
      closeIfAnswered();
    }

    void answered(Packet packet) {
      sent.remove(packet);
      closeIfAnswered();
    }

    private void closeIfAnswered() {
      if (retired != null && sent.isEmpty()) {
        LettuceDriver.close(redis);
      }
    }

    @Override
    public void onRedisDisconnected(RedisChannelHandler<?, ?> handler) {
      ended();
    }

    private void ended() {
      sent.forEach(each -> each.lost("the connection was lost before the reply"));
      onEnd.run();
    }
  }

  /**
   * One server, with its shared connection and its subscriptions. Both are opened when they are
   * needed.
   */
  private final class Node {
    private final Supplier<CompletionStage<StatefulRedisConnection<byte[], byte[]>>> connect;
    private final Supplier<CompletionStage<? extends StatefulRedisPubSubConnection<byte[], byte[]>>>
        connectPubSub;
    private final boolean sharded;
    final Inbox inbox = new Inbox();
    private final ReentrantLock mutex = new ReentrantLock();
    private @Nullable CompletableFuture<Connection> connection;
    private long since;
    private @Nullable CompletableFuture<? extends StatefulRedisPubSubConnection<byte[], byte[]>>
        subscriber;
    private final Map<String, CompletableFuture<Node>> channels = new ConcurrentHashMap<>();

    Node(
        Supplier<CompletionStage<StatefulRedisConnection<byte[], byte[]>>> connect,
        Supplier<CompletionStage<? extends StatefulRedisPubSubConnection<byte[], byte[]>>>
            connectPubSub,
        boolean sharded) {
      this.connect = connect;
      this.connectPubSub = connectPubSub;
      this.sharded = sharded;
    }

    CompletableFuture<Connection> connection() {
      mutex.lock();
      try {
        if (isClosed()) {
          return CompletableFuture.failedFuture(closed());
        }
        CompletableFuture<Connection> current = connection;
        if (current == null || current.isCompletedExceptionally()) {
          current = connection = new CompletableFuture<>();
        } else if (current.isDone() || Clock.now() - since < Limits.UNDO_MS) {
          return current;
        }
        // An attempt that hangs is left alone, and another one is made in parallel.
        since = Clock.now();
        attempt(current);
        return current;
      } finally {
        mutex.unlock();
      }
    }

    private void attempt(CompletableFuture<Connection> made) {
      connect
          .get()
          .whenComplete(
              (redis, error) -> {
                if (error != null) {
                  made.completeExceptionally(unsent(error));
                } else if (isClosed()
                    || made.isDone()
                    || !made.complete(new Connection(redis, () -> disconnected(made)))) {
                  made.completeExceptionally(closed());
                  LettuceDriver.close(redis);
                }
              });
    }

    private void disconnected(CompletableFuture<Connection> ended) {
      drop(ended, each -> LettuceDriver.close(each.redis));
      // Waiting requests depend on the connection that they were sent over.
      inbox.interrupt();
    }

    /**
     * Closes a connection that has ended, or leads to a replica. The next request opens another
     * one.
     */
    void drop(@Nullable CompletableFuture<Connection> ended, Consumer<Connection> close) {
      mutex.lock();
      try {
        if (ended == null || connection != ended || !ended.isDone()) {
          return;
        }
        connection = null;
      } finally {
        mutex.unlock();
      }
      ended.thenAccept(close);
    }

    void send(Packet packet, boolean asking) {
      CompletableFuture<Connection> current = connection();
      packet.sendOver(current, asking, trouble -> failed(current, trouble));
    }

    private void failed(CompletableFuture<Connection> current, Trouble trouble) {
      if (!trouble.endsConnection()) {
        return;
      }
      boolean isRefused = trouble.stage == Trouble.Stage.REFUSED;
      drop(
          current,
          each -> {
            if (isRefused) {
              each.retire(trouble);
            } else {
              LettuceDriver.close(each.redis);
            }
          });
      if (isRefused) {
        deafen();
      }
    }

    boolean hears(String channel) {
      CompletableFuture<Node> listening = channels.get(channel);
      return listening != null && listening.isDone() && !listening.isCompletedExceptionally();
    }

    CompletableFuture<Node> listen(String channel, long withinMs) {
      CompletableFuture<Node> listening = channels.computeIfAbsent(channel, this::subscribe);
      listening.whenComplete(
          (node, error) -> {
            if (error != null) {
              channels.remove(channel, listening);
            }
          });
      return limited(listening.copy(), withinMs);
    }

    private CompletableFuture<Node> subscribe(String channel) {
      byte[] name = Words.bytes(channel);
      CompletableFuture<Node> confirmed = new CompletableFuture<>();
      subscriber()
          .thenCompose(
              redis -> sharded ? redis.async().ssubscribe(name) : redis.async().subscribe(name))
          .whenComplete(
              (none, error) -> {
                if (error == null) {
                  confirmed.complete(this);
                } else {
                  deafen();
                  confirmed.completeExceptionally(trouble(error));
                }
              });
      return limited(confirmed, Limits.LATE_MS);
    }

    private CompletableFuture<? extends StatefulRedisPubSubConnection<byte[], byte[]>>
        subscriber() {
      mutex.lock();
      try {
        if (isClosed()) {
          return CompletableFuture.failedFuture(closed());
        }
        CompletableFuture<? extends StatefulRedisPubSubConnection<byte[], byte[]>> current =
            subscriber;
        if (current == null || current.isCompletedExceptionally()) {
          current = connectPubSub.get().toCompletableFuture();
          current.thenAccept(this::follow);
          subscriber = current;
        }
        return current;
      } finally {
        mutex.unlock();
      }
    }

    private void follow(StatefulRedisPubSubConnection<byte[], byte[]> redis) {
      redis.addListener(
          new RedisPubSubListener<byte[], byte[]>() {
            @Override
            public void message(byte[] channel, byte[] message) {
              inbox.deliver(message);
            }

            @Override
            public void message(byte[] pattern, byte[] channel, byte[] message) {}

            @Override
            public void smessage(byte[] channel, byte[] message) {
              inbox.deliver(message);
            }

            @Override
            public void sunsubscribed(byte[] channel, long count) {
              // The slot has moved to another node.
              channels.remove(Words.text(channel));
              inbox.interrupt();
            }

            @Override
            public void subscribed(byte[] channel, long count) {}

            @Override
            public void psubscribed(byte[] pattern, long count) {}

            @Override
            public void unsubscribed(byte[] channel, long count) {}

            @Override
            public void punsubscribed(byte[] pattern, long count) {}
          });
      redis.addListener(
          new RedisConnectionStateListener() {
            @Override
            public void onRedisDisconnected(RedisChannelHandler<?, ?> handler) {
              deafen();
            }
          });
      if (!redis.isOpen()) {
        deafen();
      }
    }

    /**
     * The subscriptions have ended, or lead to a replica, so all waiting requests are sent again.
     */
    void deafen() {
      CompletableFuture<? extends StatefulRedisPubSubConnection<byte[], byte[]>> ended;
      mutex.lock();
      try {
        ended = subscriber;
        subscriber = null;
      } finally {
        mutex.unlock();
      }
      channels.clear();
      if (ended != null) {
        ended.thenAccept(LettuceDriver::close);
        inbox.interrupt();
      }
    }

    void close() {
      CompletableFuture<Connection> last = connection;
      drop(last, each -> LettuceDriver.close(each.redis));
      if (last != null && !last.isDone()) {
        last.thenAccept(each -> LettuceDriver.close(each.redis));
      }
      deafen();
      inbox.interrupt();
    }
  }

  /** Finds the node that serves a key. */
  private sealed interface Nodes {
    /** The node, if it is known without a request. */
    @Nullable Node known(byte[] key);

    /** The node of {@link Trouble#asked()}, or that of the key. */
    void send(byte[] key, @Nullable String asked, Packet packet);

    /** Called with the failure of each packet. */
    void failed(Trouble trouble);

    CompletableFuture<Node> listen(byte[] key, String channel, long withinMs);

    /** A new connection to that node, or to that of the key, and what to close with it. */
    CompletionStage<StatefulRedisConnection<byte[], byte[]>> connect(
        byte[] key, @Nullable String asked, List<StatefulConnection<?, ?>> closed);

    void close();
  }

  private final class Single implements Nodes {
    private final RedisClient client;
    private final Node node;

    Single(RedisClient client) {
      this.client = client;
      this.node =
          new Node(
              () -> blocking(() -> client.connect(ByteArrayCodec.INSTANCE)),
              () -> blocking(() -> client.connectPubSub(ByteArrayCodec.INSTANCE)),
              false);
    }

    @Override
    public Node known(byte[] key) {
      return node;
    }

    @Override
    public void send(byte[] key, @Nullable String asked, Packet packet) {
      node.send(packet, false);
    }

    @Override
    public void failed(Trouble trouble) {}

    @Override
    public CompletableFuture<Node> listen(byte[] key, String channel, long withinMs) {
      return node.listen(channel, withinMs);
    }

    @Override
    public CompletionStage<StatefulRedisConnection<byte[], byte[]>> connect(
        byte[] key, @Nullable String asked, List<StatefulConnection<?, ?>> closed) {
      return blocking(
          () -> {
            StatefulRedisConnection<byte[], byte[]> redis = client.connect(ByteArrayCodec.INSTANCE);
            closed.add(redis);
            return redis;
          });
    }

    @Override
    public void close() {
      node.close();
    }
  }

  private final class Cluster implements Nodes {
    private final RedisClusterClient client;
    private final Map<String, Node> byAddress = new ConcurrentHashMap<>();

    private final ReentrantLock mutex = new ReentrantLock();
    private volatile @Nullable CompletableFuture<StatefulRedisClusterConnection<byte[], byte[]>>
        connection;

    private @Nullable CompletableFuture<StatefulRedisClusterPubSubConnection<byte[], byte[]>>
        subscriber;

    Cluster(RedisClusterClient client) {
      this.client = client;
    }

    private CompletableFuture<StatefulRedisClusterConnection<byte[], byte[]>> connection() {
      mutex.lock();
      try {
        if (isClosed()) {
          return CompletableFuture.failedFuture(closed());
        }
        if (connection == null || connection.isCompletedExceptionally()) {
          connection = blocking(() -> client.connect(ByteArrayCodec.INSTANCE));
        }
        return connection;
      } finally {
        mutex.unlock();
      }
    }

    private CompletableFuture<StatefulRedisClusterPubSubConnection<byte[], byte[]>> subscriber() {
      mutex.lock();
      try {
        if (isClosed()) {
          return CompletableFuture.failedFuture(closed());
        }
        if (subscriber == null || subscriber.isCompletedExceptionally()) {
          subscriber = blocking(() -> client.connectPubSub(ByteArrayCodec.INSTANCE));
        }
        return subscriber;
      } finally {
        mutex.unlock();
      }
    }

    private static @Nullable String address(
        StatefulRedisClusterConnection<byte[], byte[]> redis, int slot) {
      RedisClusterNode owner = redis.getPartitions().getPartitionBySlot(slot);
      return owner == null ? null : owner.getUri().getHost() + ":" + owner.getUri().getPort();
    }

    @Override
    public @Nullable Node known(byte[] key) {
      CompletableFuture<StatefulRedisClusterConnection<byte[], byte[]>> current = connection;
      if (current == null || !current.isDone() || current.isCompletedExceptionally()) {
        return null;
      }
      String address = address(current.join(), SlotHash.getSlot(key));
      return address == null ? null : byAddress.get(address);
    }

    private CompletableFuture<Node> node(byte[] key) {
      return connection()
          .thenApply(
              redis -> {
                String address = address(redis, SlotHash.getSlot(key));
                if (address == null) {
                  client.refreshPartitionsAsync();
                  throw new RedisConnectionException("no node serves the slot of the key");
                }
                return at(address);
              });
    }

    private Node at(String address) {
      return byAddress.computeIfAbsent(
          address,
          same -> {
            int colon = address.lastIndexOf(':');
            String host = address.substring(0, colon);
            int port = Integer.parseInt(address.substring(colon + 1));
            return new Node(
                () -> connection().thenCompose(redis -> redis.getConnectionAsync(host, port)),
                () -> subscriber().thenCompose(redis -> redis.getConnectionAsync(host, port)),
                true);
          });
    }

    @Override
    public void send(byte[] key, @Nullable String asked, Packet packet) {
      if (asked != null) {
        at(asked).send(packet, true);
        return;
      }
      node(key)
          .whenComplete(
              (node, error) -> {
                if (error == null) {
                  node.send(packet, false);
                } else {
                  packet.fail(trouble(error));
                }
              });
    }

    /** Refreshes the map of slots if this failure means that some may have moved. */
    @Override
    public void failed(Trouble trouble) {
      if (trouble.code().equals("MOVED") || trouble.stage != Trouble.Stage.REFUSED) {
        client.refreshPartitionsAsync();
      }
    }

    @Override
    public CompletableFuture<Node> listen(byte[] key, String channel, long withinMs) {
      return node(key)
          .thenCompose(node -> node.listen(channel, withinMs))
          .whenComplete(
              (node, error) -> {
                if (error != null) {
                  failed(trouble(error));
                }
              });
    }

    @Override
    public CompletionStage<StatefulRedisConnection<byte[], byte[]>> connect(
        byte[] key, @Nullable String asked, List<StatefulConnection<?, ?>> closed) {
      // All users of one cluster connection share its connections to a node, so a session needs a
      // separate cluster connection.
      return blocking(() -> client.connect(ByteArrayCodec.INSTANCE))
          .thenCompose(
              redis -> {
                closed.add(redis);
                String address = asked == null ? address(redis, SlotHash.getSlot(key)) : asked;
                if (address == null) {
                  throw new RedisConnectionException("no node serves the slot of the key");
                }
                int colon = address.lastIndexOf(':');
                return redis.getConnectionAsync(
                    address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)));
              });
    }

    @Override
    public void close() {
      byAddress.values().forEach(Node::close);
      mutex.lock();
      try {
        if (connection != null) {
          connection.thenAccept(LettuceDriver::close);
        }
        if (subscriber != null) {
          subscriber.thenAccept(LettuceDriver::close);
        }
      } finally {
        mutex.unlock();
      }
    }
  }

  /** A dedicated connection of one acquire. */
  private final class LettuceLine implements Line {
    private final byte[] key;
    private final ReentrantLock mutex = new ReentrantLock();

    /** The latest connection; null if there is none, or it has ended. */
    private volatile @Nullable Connecting latest;

    private volatile @Nullable String asked;
    private volatile boolean closed;
    private volatile @Nullable Runnable ended;

    LettuceLine(byte[] key) {
      this.key = key;
    }

    void send(Packet packet) {
      Connecting current = connecting();
      packet.sendOver(
          current.made,
          asked != null,
          trouble -> {
            drop(current);
            asked = trouble.asked();
          });
    }

    /**
     * An attempt to connect, with the connection that it opened, which is closed with it. If
     * another attempt was faster and is now the session's connection, this one closes itself.
     */
    private final class Connecting {
      final CompletableFuture<Connection> made = new CompletableFuture<>();
      private final List<StatefulConnection<?, ?>> opened = new CopyOnWriteArrayList<>();

      void begin() {
        nodes
            .connect(key, asked, opened)
            .whenComplete(
                (redis, error) -> {
                  if (error != null) {
                    made.completeExceptionally(unsent(error));
                  } else if (isOver() || !made.complete(new Connection(redis, () -> drop(this)))) {
                    made.completeExceptionally(closed());
                    close();
                  }
                });
      }

      void close() {
        made.cancel(false);
        for (StatefulConnection<?, ?> each : opened) {
          // Remove it first, because closing it calls this method again.
          if (opened.remove(each)) {
            LettuceDriver.close(each);
          }
        }
      }
    }

    private Connecting connecting() {
      mutex.lock();
      try {
        Connecting current = latest;
        if (current == null) {
          current = new Connecting();
          if (isOver()) {
            current.made.completeExceptionally(closed());
            return current;
          }
          latest = current;
          current.begin();
        }
        return current;
      } finally {
        mutex.unlock();
      }
    }

    private boolean isOver() {
      return closed || isClosed();
    }

    /** The next request opens another connection, unless the session is bound to this one. */
    private void drop(Connecting ended) {
      mutex.lock();
      try {
        if (latest != ended) {
          return;
        }
        latest = null;
      } finally {
        mutex.unlock();
      }
      ended.close();
      Runnable callback = this.ended;
      if (callback != null && !closed) {
        callback.run();
      }
    }

    @Override
    public void keep(Runnable ended) {
      this.ended = ended;
      mutex.lock();
      try {
        if (latest != null) {
          return;
        }
      } finally {
        mutex.unlock();
      }
      ended.run();
    }

    @Override
    public CompletableFuture<@Nullable Object> check(List<byte[]> words, long withinMs) {
      CompletableFuture<@Nullable Object> reply = new CompletableFuture<>();
      send(new Packet(new Step.Send(words, withinMs), replies -> reply.complete(replies.get(0))));
      return reply;
    }

    @Override
    public void cut() {
      Connecting current = latest;
      if (current != null) {
        current.close();
      }
    }

    @Override
    public void close() {
      closed = true;
      forget(this);
      Connecting current = latest;
      if (current != null) {
        current.made.thenAccept(
            each -> each.sent.forEach(sent -> sent.lost("the request was cancelled")));
        current.close();
      }
    }
  }
}
