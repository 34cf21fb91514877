package redislock.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Runs a method of a bean under a lock, so that only one call runs at a time over all instances.
 * The lock is acquired before a transaction of the method begins and released after it has ended,
 * so the next holder reads what was committed. The lease is renewed while the method runs.
 *
 * <p><b>Errors.</b> The call throws {@link redislock.NotAcquiredException} if the lock was not
 * granted within {@link #waitFor}, and {@link redislock.LockLostException} if the lock was lost
 * before the method ended. It is thrown after the method has returned and its transaction has
 * committed: another holder may have run meanwhile, and the work is not undone. Work that must not
 * commit without the lock should write its fencing token, or use {@link redislock.Hold#exec}.
 *
 * <p><b>Nested calls.</b> A call within a call with the same lock name, in the same thread, does
 * not ask the server. It runs under the outer call's lock, which is released when both have ended.
 * Its own {@code waitFor} and {@code lease} do not apply. It throws {@code LockLostException} if
 * the outer lock has been lost already. A call that the method makes in another thread waits like
 * any other.
 *
 * <p><b>Asynchronous work.</b> If the method returns before its work has ended, the lock is held
 * until the work ends, for these types:
 *
 * <ul>
 *   <li>{@code CompletionStage} and {@code CompletableFuture}: until the stage completes. The
 *       caller gets a stage that completes after the release; cancelling that stage ends neither
 *       the work nor the lock.
 *   <li>{@code Mono}, {@code Flux} and {@code Publisher}, with Reactor: each subscription acquires
 *       the lock, without blocking a thread, and holds it until the publisher completes, fails or
 *       is cancelled. Inner subscriptions that have its Reactor context are nested calls.
 *   <li>{@code @Async}: the lock is acquired and released in the executor's thread.
 * </ul>
 *
 * <p>The application fails to start if {@code @Locked} is on a method that returns another type of
 * asynchronous work, such as {@code Future}, {@code Callable}, {@code DeferredResult}, {@code
 * Stream}, a type of RxJava, or a Kotlin {@code suspend} function, or on a private or static
 * method, which no proxy can intercept. As with {@code @Transactional}, a call within the bean
 * itself does not go through the proxy and acquires no lock.
 */
@Documented
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
public @interface Locked {
  /**
   * Returns the name of the lock. Parts in {@code #{…}} are evaluated with the arguments, as in
   * {@code order:#{#id}}.
   *
   * @return the name
   */
  String name();

  /**
   * Returns how long to wait for the lock: {@code 5s}, {@code 500ms}, or ISO-8601. Empty: no limit;
   * {@code 0s}: do not wait. (Java does not allow {@code wait} as a member of an annotation.)
   *
   * @return a duration
   */
  String waitFor() default "";

  /**
   * Returns how long the lock stays held after this process has died. Empty: the application
   * property {@code redislock.lease}, which is 30 s by default.
   *
   * @return a duration
   */
  String lease() default "";
}
