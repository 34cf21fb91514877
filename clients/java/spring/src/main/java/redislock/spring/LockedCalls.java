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
 * Runs the calls of methods with {@link Locked}. A call acquires the lock of its name, or enters
 * that of an outer call; the last of them to end releases it.
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

  /** The locks that calls in this thread are running under, by name. */
  private final ThreadLocal<Map<String, Held>> ofThread = ThreadLocal.withInitial(HashMap::new);

  final InUse inUse = new InUse();

  /**
   * Calls under these locks.
   *
   * @param lease of a method that has none
   * @param observations gives an ObservationRegistry; null: there is none
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
   * Looks for the locks.
   *
   * @throws IllegalStateException if there are none
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
            // Of an interface's method: the bean's own has the annotation, or inherits it.
            key -> LockedMethod.of(AopUtils.getMostSpecificMethod(called, type), type));
    Call call = new Call(method, method.name(target, invocation.getArguments()));
    return method.end() == LockedMethod.End.PUBLISHER
        ? LockedPublisher.of(call, invocation)
        : call.run(invocation);
  }

  /** One call; of a publisher, each subscription is one. */
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

    /** Runs it in this thread. */
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
     * The lock of an outer call, which this one has entered.
     *
     * @param known of the outer call, where it is not of this thread
     * @return null: there is none
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

    /** Acquires it without a thread. */
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

    /** Runs the method; calls in this thread meanwhile find the lock. */
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

  /** A stage that completes as this one does, after the lock was released. */
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
      // The thread that completes it may be an event loop, which must not wait for a release.
      stage.whenCompleteAsync(ending);
    }
    return covered;
  }
}
