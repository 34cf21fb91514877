package redislock;

import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.jspecify.annotations.Nullable;

/** Waits for futures, and throws their failures as exceptions of the caller. */
final class Futures {
  private Futures() {}

  /** Waits for a limited time, whatever the outcome. An interrupt is kept for later. */
  static void await(CompletableFuture<?> future, long ms) {
    boolean interrupted = false;
    long ends = Clock.after(Clock.now(), ms);
    while (!future.isDone()) {
      try {
        future.get(Math.max(0, ends - Clock.now()), TimeUnit.MILLISECONDS);
      } catch (InterruptedException e) {
        interrupted = true;
      } catch (ExecutionException | TimeoutException | CancellationException e) {
        break;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Waits for the result; an interrupt is kept for later. */
  static <T extends @Nullable Object> T result(CompletableFuture<T> future) {
    await(future, Clock.NEVER);
    try {
      return future.join();
    } catch (CompletionException e) {
      throw rethrown(cause(e));
    }
  }

  /** The failure itself, without the exceptions that futures wrap around it. */
  static Throwable cause(Throwable error) {
    return error instanceof CompletionException && error.getCause() != null
        ? error.getCause()
        : error;
  }

  static RuntimeException unchecked(Throwable error) {
    return error instanceof RuntimeException unchecked
        ? unchecked
        : new IllegalStateException(error);
  }

  /** Throws an Error. Returns an exception to throw, which has the stack of this caller as well. */
  static RuntimeException rethrown(Throwable error) {
    if (error instanceof Error fatal) {
      throw fatal;
    }
    RuntimeException unchecked = unchecked(error);
    unchecked.addSuppressed(new Throwable("asked here"));
    return unchecked;
  }
}
