package redislock.spring;

import java.util.concurrent.CompletableFuture;
import org.aopalliance.intercept.MethodInvocation;
import org.jspecify.annotations.Nullable;
import org.reactivestreams.Publisher;
import org.springframework.aop.ProxyMethodInvocation;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.publisher.MonoSink;
import reactor.core.scheduler.Schedulers;
import reactor.util.context.Context;
import reactor.util.context.ContextView;
import redislock.Hold;

/**
 * The publisher of a method with {@link Locked}: each subscription acquires the lock, calls the
 * method and subscribes to the returned publisher. Separate from {@link LockedCalls}, because
 * Reactor may be missing.
 */
final class LockedPublisher {
  private final LockedCalls.Call call;
  private final ProxyMethodInvocation invocation;
  private final Key key;

  /** The lock of an outer call, in Reactor's context. */
  private record Key(String name) {}

  private LockedPublisher(LockedCalls.Call call, ProxyMethodInvocation invocation) {
    this.call = call;
    this.invocation = invocation;
    this.key = new Key(call.name());
  }

  /** A Mono if the method returns one; otherwise a Flux, which is a Publisher as well. */
  static Publisher<?> of(LockedCalls.Call call, MethodInvocation invocation) {
    LockedPublisher locked = new LockedPublisher(call, (ProxyMethodInvocation) invocation);
    return call.returns(Mono.class)
        ? Mono.deferContextual(
                context ->
                    Mono.usingWhen(
                        locked.held(context),
                        held -> Mono.from(locked.work(held)).contextWrite(locked.within(held)),
                        LockedPublisher::left,
                        LockedPublisher::left,
                        LockedPublisher::left))
            .onErrorMap(LockedPublisher::unwrapped)
        : Flux.deferContextual(
                context ->
                    Flux.usingWhen(
                        locked.held(context),
                        held -> Flux.from(locked.work(held)).contextWrite(locked.within(held)),
                        LockedPublisher::left,
                        LockedPublisher::left,
                        LockedPublisher::left))
            .onErrorMap(LockedPublisher::unwrapped);
  }

  private Mono<Held> held(ContextView context) {
    Held outer = call.entered(context.getOrDefault(key, null));
    return outer == null ? Mono.create(this::acquire) : Mono.just(outer);
  }

  private void acquire(MonoSink<Held> sink) {
    CompletableFuture<Hold> asking = call.acquireAsync();
    // Not with an operator, because a cancelled one would drop the hold that it was given.
    sink.onCancel(
        () -> {
          asking.cancel(true);
          asking.thenAcceptAsync(Hold::close);
        });
    asking.whenCompleteAsync(
        (hold, error) -> {
          if (error == null) {
            sink.success(call.held(hold));
          } else {
            sink.error(error);
          }
        },
        task -> Schedulers.parallel().schedule(task));
  }

  private Context within(Held held) {
    return Context.of(key, held);
  }

  private Publisher<?> work(Held held) {
    return Flux.defer(
        () -> {
          try {
            // A clone, because an invocation proceeds only once, and there may be more
            // subscriptions.
            return (Publisher<?>) call.proceed(held, invocation.invocableClone());
          } catch (Throwable e) {
            return Mono.error(e);
          }
        });
  }

  private static Mono<?> left(Held held) {
    return left(held, null);
  }

  /** Releases on a thread that may block, because a release waits for the server. */
  private static Mono<?> left(Held held, @Nullable Throwable error) {
    return Mono.fromRunnable(() -> held.leave(error))
        .subscribeOn(Schedulers.boundedElastic())
        .onErrorMap(Loss::new);
  }

  /** Reactor wraps an exception that a cleanup throws. */
  private static final class Loss extends RuntimeException {
    private static final long serialVersionUID = 1;

    Loss(Throwable cause) {
      super(cause);
    }
  }

  private static Throwable unwrapped(Throwable error) {
    return error.getCause() instanceof Loss loss ? loss.getCause() : error;
  }
}
