package redislock.spring;

import io.micrometer.observation.Observation;
import io.micrometer.observation.ObservationRegistry;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.function.Supplier;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.jspecify.annotations.Nullable;
import org.springframework.aop.framework.autoproxy.AbstractBeanFactoryAwareAdvisingPostProcessor;
import org.springframework.aop.support.AopUtils;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.ParameterNameDiscoverer;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.expression.common.TemplateParserContext;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import redislock.Hold;
import redislock.Mutex;
import redislock.RedisLocks;

/**
 * Puts the lock of {@link Locked} around a bean's method: outermost, also around a transaction of
 * the same method, whatever the order of other advisors.
 */
final class LockedAdvisor extends AbstractBeanFactoryAwareAdvisingPostProcessor {
  private static final long serialVersionUID = 1;

  LockedAdvisor(Supplier<RedisLocks> locks, Supplier<@Nullable Object> observations) {
    setBeforeExistingAdvisors(true);
    advisor =
        new DefaultPointcutAdvisor(
            AnnotationMatchingPointcut.forMethodAnnotation(Locked.class),
            new Interceptor(locks, observations));
  }

  private static final class Interceptor implements MethodInterceptor {
    private final Supplier<RedisLocks> locks;
    private final Supplier<@Nullable Object> observations;
    private final SpelExpressionParser parser = new SpelExpressionParser();
    private final ParameterNameDiscoverer names = new DefaultParameterNameDiscoverer();

    Interceptor(Supplier<RedisLocks> locks, Supplier<@Nullable Object> observations) {
      this.locks = locks;
      this.observations = observations;
    }

    @Override
    public @Nullable Object invoke(MethodInvocation invocation) throws Throwable {
      Object target = invocation.getThis();
      Method method = invocation.getMethod();
      if (target != null) {
        // Of an interface's method: the bean's own has the annotation, or inherits it.
        method = AopUtils.getMostSpecificMethod(method, target.getClass());
      }
      Locked locked = AnnotatedElementUtils.findMergedAnnotation(method, Locked.class);
      if (locked == null) {
        return invocation.proceed();
      }
      if (locked.name().contains("#{")
          && method.getParameterCount() > 0
          && names.getParameterNames(method) == null) {
        // Without names each part would be empty, and all calls would share one lock.
        throw new IllegalStateException(
            "the name of the lock needs the names of arguments: compile with -parameters");
      }
      Object root = target == null ? method : target;
      String name =
          parser
              .parseExpression(locked.name(), new TemplateParserContext())
              .getValue(
                  new MethodBasedEvaluationContext(root, method, invocation.getArguments(), names),
                  String.class);
      if (name == null) {
        throw new IllegalArgumentException("the name of the lock is null: " + locked.name());
      }
      Mutex mutex =
          locks.get().mutex(name).lease(DurationStyle.detectAndParse(locked.lease())).autoRenew();
      Object registry = observations.get();
      Hold hold =
          registry == null
              ? acquire(mutex, locked)
              : Observing.acquire(registry, name, () -> acquire(mutex, locked));
      try (hold) {
        return registry == null ? invocation.proceed() : Observing.hold(registry, name, invocation);
      }
    }

    private static Hold acquire(Mutex mutex, Locked locked) throws InterruptedException {
      return locked.waitFor().isEmpty() ? mutex.acquire() : mutex.acquire(wait(locked));
    }

    private static Duration wait(Locked locked) {
      return DurationStyle.detectAndParse(locked.waitFor());
    }
  }

  /** Apart, because Micrometer may be missing. */
  private static final class Observing {
    private interface Acquiring {
      Hold acquire() throws InterruptedException;
    }

    static Hold acquire(Object registry, String name, Acquiring acquiring)
        throws InterruptedException {
      return observation(registry, "redislock.acquire", name).observeChecked(acquiring::acquire);
    }

    static @Nullable Object hold(Object registry, String name, MethodInvocation invocation)
        throws Throwable {
      return observation(registry, "redislock.hold", name).observeChecked(invocation::proceed);
    }

    private static Observation observation(Object registry, String kind, String name) {
      return Observation.createNotStarted(kind, (ObservationRegistry) registry)
          .highCardinalityKeyValue("redislock.key", name);
    }
  }
}
