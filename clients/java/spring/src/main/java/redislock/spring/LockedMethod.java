package redislock.spring;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.TypeVariable;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.MethodIntrospector;
import org.springframework.core.ParameterNameDiscoverer;
import org.springframework.core.ReactiveAdapterRegistry;
import org.springframework.core.ResolvableType;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.expression.Expression;
import org.springframework.expression.common.TemplateParserContext;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import org.springframework.util.ClassUtils;

/**
 * A method with {@link Locked}, prepared for its calls. A method that cannot be locked is refused
 * when the application starts, because a lock that is released before the work has ended would
 * silently exclude nobody.
 *
 * @param returned the return type, as precisely as the bean's class declares it
 * @param waitFor how long to wait; null: no limit
 * @param lease the lease; null: that of the application's properties
 */
record LockedMethod(
    Method method,
    Class<?> returned,
    Expression name,
    @Nullable Duration waitFor,
    @Nullable Duration lease) {
  /** When the work of a call ends. */
  enum End {
    /** When the method returns. */
    RETURN,
    /** When the returned stage completes. */
    STAGE,
    /** For each subscription to the returned publisher, when that ends. */
    PUBLISHER
  }

  private static final ParameterNameDiscoverer NAMES = new DefaultParameterNameDiscoverer();
  private static final SpelExpressionParser PARSER = new SpelExpressionParser();

  private static final boolean HAS_REACTOR =
      ClassUtils.isPresent("reactor.core.publisher.Mono", LockedMethod.class.getClassLoader());

  private static final Set<String> PUBLISHERS =
      Set.of(
          "reactor.core.publisher.Mono",
          "reactor.core.publisher.Flux",
          "org.reactivestreams.Publisher");

  /** Including their subtypes. By name, because some of them may be missing. */
  private static final Set<String> GOING_ON =
      Set.of(
          "java.util.Iterator",
          "java.util.concurrent.Callable",
          "java.util.concurrent.CompletionStage",
          "java.util.concurrent.Flow$Publisher",
          "java.util.concurrent.Future",
          "java.util.stream.BaseStream",
          "kotlin.sequences.Sequence",
          "kotlinx.coroutines.Job",
          "kotlinx.coroutines.flow.Flow",
          "org.reactivestreams.Publisher",
          "org.springframework.web.context.request.async.DeferredResult",
          "org.springframework.web.context.request.async.WebAsyncTask",
          "org.springframework.web.servlet.mvc.method.annotation.ResponseBodyEmitter",
          "org.springframework.web.servlet.mvc.method.annotation.StreamingResponseBody");

  /**
   * The methods of a bean's class.
   *
   * @param isSubclassed whether its proxy is a subclass of the class
   * @throws IllegalStateException if one of them cannot be locked
   */
  static void check(Class<?> type, boolean isSubclassed) {
    Map<Method, Locked> methods =
        MethodIntrospector.selectMethods(
            type, (Method each) -> AnnotatedElementUtils.findMergedAnnotation(each, Locked.class));
    for (Method each : methods.keySet()) {
      int modifiers = each.getModifiers();
      if (Modifier.isPrivate(modifiers)
          || Modifier.isStatic(modifiers)
          || Modifier.isFinal(modifiers) && isSubclassed) {
        throw refusal(each, "no proxy can intercept a private, static or final method");
      }
      of(each, type);
    }
  }

  /**
   * A method of a bean of this class.
   *
   * @throws IllegalStateException if it cannot be locked
   */
  static LockedMethod of(Method method, Class<?> type) {
    Locked locked = AnnotatedElementUtils.findMergedAnnotation(method, Locked.class);
    if (locked == null) {
      throw refusal(method, "the annotation is missing");
    }
    Class<?>[] parameters = method.getParameterTypes();
    if (parameters.length > 0
        && parameters[parameters.length - 1].getName().equals("kotlin.coroutines.Continuation")) {
      throw refusal(
          method,
          "a suspend function continues after it returns, when the lock would already be released:"
              + " acquire the lock in its body with RedisLocks");
    }
    if (locked.name().contains("#{")
        && parameters.length > 0
        && NAMES.getParameterNames(method) == null) {
      // Without parameter names each part would be empty, and all calls would share one lock.
      throw refusal(
          method,
          "the name of the lock refers to the names of arguments: compile with -parameters");
    }
    ResolvableType returned = ResolvableType.forMethodReturnType(method, type);
    Class<?> goingOn = goingOn(returned);
    if (goingOn != null) {
      throw refusal(
          method,
          "it returns "
              + returned
              + ", and the work of a "
              + goingOn.getSimpleName()
              + " continues after the return, when the lock would already be released: return a"
              + " CompletableFuture, or with Reactor a Mono or a Flux, or put @Locked on the method"
              + " that does the work");
    }
    try {
      return new LockedMethod(
          method,
          returned.toClass(),
          PARSER.parseExpression(locked.name(), new TemplateParserContext()),
          duration(locked.waitFor()),
          lease(locked.lease()));
    } catch (RuntimeException e) {
      throw refusal(method, e.getMessage());
    }
  }

  private static IllegalStateException refusal(Method method, @Nullable String reason) {
    return new IllegalStateException(
        "@Locked on %s.%s: %s"
            .formatted(method.getDeclaringClass().getName(), method.getName(), reason));
  }

  private static @Nullable Duration duration(String attribute) {
    return attribute.isEmpty() ? null : DurationStyle.detectAndParse(attribute);
  }

  private static @Nullable Duration lease(String attribute) {
    Duration lease = duration(attribute);
    if (lease != null && (lease.isNegative() || lease.isZero())) {
      throw new IllegalArgumentException("a lease must be greater than zero, not " + lease);
    }
    return lease;
  }

  End end() {
    return end(returned);
  }

  private static End end(Class<?> returned) {
    if (returned == CompletableFuture.class || returned == CompletionStage.class) {
      return End.STAGE;
    }
    return HAS_REACTOR && PUBLISHERS.contains(returned.getName()) ? End.PUBLISHER : End.RETURN;
  }

  /** The type in it whose end cannot be observed; null if there is none. */
  private static @Nullable Class<?> goingOn(ResolvableType returned) {
    if (end(returned.toClass()) == End.RETURN && goesOn(returned.toClass())) {
      return returned.toClass();
    }
    for (ResolvableType each : returned.getGenerics()) {
      // A list of futures, or a future of a stream: the inner work ends later.
      if (goesOn(each.toClass())) {
        return each.toClass();
      }
      // A type variable may be bounded by itself.
      Class<?> inside = each.getType() instanceof TypeVariable ? null : goingOn(each);
      if (inside != null) {
        return inside;
      }
    }
    return null;
  }

  /**
   * Checks what a call returned, because a method that returns Object could not be checked at
   * startup.
   *
   * @throws IllegalStateException if its work goes on and its end cannot be observed
   */
  void check(@Nullable Object result) {
    if (returned == Object.class
        && result != null
        && !(result instanceof CompletionStage)
        && goesOn(result.getClass())) {
      throw refusal(
          method,
          "it returned a "
              + result.getClass().getName()
              + ", whose work continues without the lock: declare the type that it returns");
    }
  }

  /**
   * True if a value of this type stands for work that is still running, or that its consumer will
   * run.
   */
  private static boolean goesOn(Class<?> type) {
    // Spring's registry knows the types of RxJava, Mutiny and others.
    return isOneOf(GOING_ON, type)
        || type != Object.class
            && !type.isPrimitive()
            && ReactiveAdapterRegistry.getSharedInstance().getAdapter(type) != null;
  }

  private static boolean isOneOf(Set<String> names, @Nullable Class<?> type) {
    return type != null
        && (names.contains(type.getName())
            || isOneOf(names, type.getSuperclass())
            || Arrays.stream(type.getInterfaces()).anyMatch(each -> isOneOf(names, each)));
  }

  /** Evaluates the name of the lock for a call. */
  String name(@Nullable Object target, @Nullable Object[] arguments) {
    Object root = target == null ? method : target;
    String evaluated =
        name.getValue(
            new MethodBasedEvaluationContext(root, method, arguments, NAMES), String.class);
    if (evaluated == null) {
      throw new IllegalArgumentException(
          "the name of the lock is null: " + name.getExpressionString());
    }
    return evaluated;
  }
}
