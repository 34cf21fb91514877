package redislock;

import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.CompleteableCommand;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.netty.buffer.ByteBuf;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * A command that is written only once. When a connection ends, Lettuce keeps the commands without a
 * reply and writes them again on the next one: a LOCK.EXEC would run twice, and a release would
 * look like a loss. A command that was written before, or abandoned, is encoded as a PING instead.
 */
final class LettuceCommand extends Command<byte[], byte[], @Nullable Object>
    implements CompleteableCommand<Object> {
  private static final byte[] PING = Words.bytes("*1\r\n$4\r\nPING\r\n");

  /** The reply, or a {@link Trouble} if none comes. Never fails. */
  final CompletableFuture<@Nullable Object> reply = new CompletableFuture<>();

  private final Runnable answered;
  private volatile boolean sent;

  /** {@code answered} runs once, after {@link #reply} is complete. */
  LettuceCommand(List<byte[]> words, Runnable answered) {
    super(keyword(words.get(0)), new Reply(), arguments(words));
    this.answered = answered;
  }

  LettuceCommand(String name) {
    this(List.of(Words.bytes(name)), () -> {});
  }

  private static ProtocolKeyword keyword(byte[] name) {
    return new ProtocolKeyword() {
      @Override
      public byte[] getBytes() {
        return name;
      }

      @Override
      public String toString() {
        return Words.text(name);
      }
    };
  }

  private static CommandArgs<byte[], byte[]> arguments(List<byte[]> words) {
    CommandArgs<byte[], byte[]> arguments = new CommandArgs<>(ByteArrayCodec.INSTANCE);
    words.subList(1, words.size()).forEach(arguments::add);
    return arguments;
  }

  @Override
  public void encode(ByteBuf buffer) {
    if (sent || reply.isDone()) {
      buffer.writeBytes(PING);
      return;
    }
    sent = true;
    super.encode(buffer);
  }

  private Trouble.Stage stage() {
    return sent ? Trouble.Stage.UNANSWERED : Trouble.Stage.UNSENT;
  }

  /** No reply will come. */
  void lost(String message) {
    answer(new Trouble(new RedisConnectionException(message), stage()));
  }

  void answer(@Nullable Object result) {
    if (reply.complete(result)) {
      answered.run();
    }
  }

  @Override
  public void complete() {
    super.complete();
    if (getOutput().hasError()) {
      RuntimeException error = new RedisCommandExecutionException(getOutput().getError());
      answer(new Trouble(error, Trouble.Stage.REFUSED));
    } else {
      answer(getOutput().get());
    }
  }

  /**
   * Lettuce then cancels the timer of its timeout; otherwise it would keep each command until then.
   */
  @Override
  public void onComplete(BiConsumer<? super Object, Throwable> action) {
    reply.whenComplete((result, error) -> action.accept(result, error));
  }

  @Override
  public void onComplete(Consumer<? super Object> action) {
    reply.thenAccept(action);
  }

  @Override
  public void cancel() {
    super.cancel();
    lost("the command was cancelled");
  }

  @Override
  public boolean completeExceptionally(Throwable error) {
    answer(new Trouble(Futures.unchecked(error), stage()));
    return super.completeExceptionally(error);
  }

  /**
   * Any reply of RESP2 and RESP3: bytes, numbers, booleans, null, lists; a map is a list of keys
   * and values.
   */
  private static final class Reply extends CommandOutput<byte[], byte[], @Nullable Object> {
    private record Open(List<@Nullable Object> list, int size) {}

    private final Deque<Open> open = new ArrayDeque<>();

    Reply() {
      super(ByteArrayCodec.INSTANCE, null);
    }

    private void add(@Nullable Object value) {
      if (open.isEmpty()) {
        output = value;
        return;
      }
      open.peek().list.add(value);
      while (!open.isEmpty() && open.peek().list.size() == open.peek().size) {
        open.pop();
      }
    }

    private void begin(int size) {
      List<@Nullable Object> list = new ArrayList<>(Math.max(0, size));
      if (size < 0) {
        add(null);
      } else if (size == 0) {
        add(list);
      } else {
        if (open.isEmpty()) {
          output = list;
        } else {
          open.peek().list.add(list);
        }
        open.push(new Open(list, size));
      }
    }

    @Override
    public void set(@Nullable ByteBuffer bytes) {
      add(bytes == null ? null : ByteArrayCodec.INSTANCE.decodeValue(bytes));
    }

    @Override
    public void set(long number) {
      add(number);
    }

    @Override
    public void set(double number) {
      add(number);
    }

    @Override
    public void set(boolean flag) {
      add(flag);
    }

    @Override
    public void setBigNumber(ByteBuffer bytes) {
      set(bytes);
    }

    @Override
    public void setError(ByteBuffer bytes) {
      String text = StandardCharsets.UTF_8.decode(bytes).toString();
      if (open.isEmpty()) {
        error = text;
      } else {
        add(new RedisCommandExecutionException(text));
      }
    }

    @Override
    public void multiArray(int size) {
      begin(size);
    }

    @Override
    public void multiPush(int size) {
      begin(size);
    }

    @Override
    public void multiSet(int size) {
      begin(size);
    }

    @Override
    public void multiMap(int size) {
      begin(size < 0 ? size : size * 2);
    }

    @Override
    public void multi(int size) {
      begin(size);
    }
  }
}
