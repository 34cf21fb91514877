package redislock.spring;

import java.lang.reflect.Method;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiConsumer;
import java.util.function.Supplier;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.jspecify.annotations.Nullable;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.NoSuchBeanDefinitionException;
import org.springframework.beans.factory.NoUniqueBeanDefinitionException;
import org.springframework.context.expression.AnnotatedElementKey;
import redislock.Hold;
import redislock.Mutex;
import redislock.RedisLocks;

/**
 * Runs the calls of methods with {@link Locked}. A call acquires the lock with its name, or enters
 * the lock of an outer call. The last of them to end releases it.
 *
 * <pre>
 *   call ──an outer call has the name──▶ enter ──┐
 *     └──────────────none──────────▶ acquire ────┴─▶ work ──▶ leave ──the last──▶ release
 * </pre>
 */
final class LockedCalls implements MethodInterceptor {
  private static final Duration FOREVER = Duration.ofSeconds(Long.MAX_VALUE);

  private final Supplier<RedisLocks> locks;
  private final Supplier<Duration> lease;
  private final Supplier<@Nullable Object> observations;
  private final Map<AnnotatedElementKey, LockedMethod> methods = new ConcurrentHashMap<>();

  /** The locks under which calls in this thread are running, by name. */
  private final ThreadLocal<Map<String, Held>> ofThread = ThreadLocal.withInitial(HashMap::new);

  final InUse inUse = new InUse();

  /**
   * Creates an interceptor with these locks.
   *
   * @param lease the lease of methods that set none
   * @param observations returns an ObservationRegistry, or null if there is none
   */
  LockedCalls(
      Supplier<RedisLocks> locks,
      Supplier<Duration> lease,
      Supplier<@Nullable Object> observations) {
    this.locks = locks;
    this.lease = lease;
    this.observations = observations;
  }

  /**
   * Checks that there are locks.
   *
   * @throws IllegalStateException if there is no bean of RedisLocks
   */
  void checkLocks() {
    try {
      locks.get();
    } catch (NoUniqueBeanDefinitionException e) {
      throw e;
    } catch (NoSuchBeanDefinitionException e) {
      throw new IllegalStateException(
          "@Locked needs a RedisLocks bean: the starter creates one from spring.data.redis, or"
              + " from a RedisClient bean of Lettuce or Jedis, but found neither",
          e);
    }
  }

  @Override
  public @Nullable Object invoke(MethodInvocation invocation) throws Throwable {
    Object target = invocation.getThis();
    Method called = invocation.getMethod();
    Class<?> type = target == null ? called.getDeclaringClass() : target.getClass();
    LockedMethod method =
        methods.computeIfAbsent(
            new AnnotatedElementKey(called, type),
            // For a method of an interface: the bean's own method has the annotation, or inherits
            // it.
            key -> LockedMethod.of(AopUtils.getMostSpecificMethod(called, type), type));
    Call call = new Call(method, method.name(target, invocation.getArguments()));
    return method.end() == LockedMethod.End.PUBLISHER
        ? LockedPublisher.of(call, invocation)
        : call.run(invocation);
  }

  /** One call, or one subscription of a publisher. */
  final class Call {
    private final LockedMethod method;
    private final String name;

    private Call(LockedMethod method, String name) {
      this.method = method;
      this.name = name;
    }

    String name() {
      return name;
    }

    boolean returns(Class<?> type) {
      return method.returned() == type;
    }

    /** Runs the call in this thread. */
    private @Nullable Object run(MethodInvocation invocation) throws Throwable {
      Held outer = entered(null);
      Held held = outer == null ? acquire() : outer;
      Object result;
      try {
        result = proceed(held, invocation);
        method.check(result);
      } catch (Throwable e) {
        held.leave(e);
        throw e;
      }
      if (result instanceof CompletionStage<?> stage
          && method.returned().isAssignableFrom(CompletableFuture.class)) {
        return covered(stage, held);
      }
      held.leave(null);
      return result;
    }

    /**
     * Enters the lock of an outer call, and returns it.
     *
     * @param known the lock of the outer call, if that is not in this thread
     * @return the lock; null if there is none
     */
    @Nullable Held entered(@Nullable Held known) {
      Held outer = known == null ? ofThread.get().get(name) : known;
      return outer != null && outer.enter() ? outer : null;
    }

    @SuppressWarnings("try")
    private Held acquire() throws InterruptedException {
      Observed acquiring = observed("redislock.acquire");
      Hold hold;
      try (Observed.Scope scope = acquiring.open()) {
        Duration wait = method.waitFor();
        hold = wait == null ? mutex().acquire() : mutex().acquire(wait);
      } catch (Throwable e) {
        acquiring.end(e);
        throw e;
      }
      acquiring.end(null);
      return held(hold);
    }

    /** Acquires the lock without blocking a thread. */
    CompletableFuture<Hold> acquireAsync() {
      Observed acquiring = observed("redislock.acquire");
      Duration wait = method.waitFor();
      CompletableFuture<Hold> asking = mutex().acquireAsync(wait == null ? FOREVER : wait);
      asking.whenComplete((hold, error) -> acquiring.end(error));
      return asking;
    }

    Held held(Hold hold) {
      return new Held(name, hold, observed("redislock.hold"), inUse);
    }

    private Mutex mutex() {
      Duration own = method.lease();
      return locks.get().mutex(name).lease(own == null ? lease.get() : own).autoRenew();
    }

    private Observed observed(String kind) {
      return Observed.of(observations.get(), kind, name);
    }

    /** Runs the method. Nested calls in this thread find the lock. */
    @SuppressWarnings("try")
    @Nullable Object proceed(Held held, MethodInvocation invocation) throws Throwable {
      Held outer = ofThread.get().put(name, held);
      try (Observed.Scope scope = held.observed.open()) {
        return invocation.proceed();
      } finally {
        Map<String, Held> mine = ofThread.get();
        if (outer != null) {
          mine.put(name, outer);
        } else {
          mine.remove(name);
        }
        if (mine.isEmpty()) {
          ofThread.remove();
        }
      }
    }
  }

  /** A stage that completes like this one, but after the lock was released. */
  private static CompletableFuture<Object> covered(CompletionStage<?> stage, Held held) {
    CompletableFuture<Object> covered = new CompletableFuture<>();
    BiConsumer<@Nullable Object, @Nullable Throwable> ending =
        (result, error) -> {
          try {
            held.leave(error);
          } catch (RuntimeException lost) {
            covered.completeExceptionally(lost);
          }
          if (error == null) {
            covered.complete(result);
          } else {
            covered.completeExceptionally(error);
          }
        };
    if (stage instanceof CompletableFuture<?> future && future.isDone()) {
      stage.whenComplete(ending);
    } else {
      // It may complete in an event loop, which must not wait for a release.
      stage.whenCompleteAsync(ending);
    }
    return covered;
  }
}
