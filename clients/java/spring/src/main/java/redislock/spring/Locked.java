package redislock.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Runs a method of a bean while it holds a lock, one call at a time over all instances. The lock is
 * acquired before a transaction of the method begins and released after it has ended, so the next
 * holder reads what was committed. It is renewed while the method runs.
 *
 * <p><b>Errors.</b> The call throws {@link redislock.NotAcquiredException} if {@link #waitFor} ran
 * out, and {@link redislock.LockLostException} if the lock was lost before the method ended. The
 * loss is thrown after the method has returned and its transaction has committed: it says that
 * another holder may have run meanwhile, and does not undo the work. Work that must not commit
 * without the lock writes its fencing token, or uses {@link redislock.Hold#exec}.
 *
 * <p><b>Nested calls.</b> A call in the same thread, while a call with the same name is running
 * there, does not ask the server: it runs under the outer call's lock, which is released when both
 * have ended. Its {@code waitFor} and {@code lease} do not apply. It throws {@code
 * LockLostException} if the outer lock is lost already. A call that the method makes in another
 * thread waits like any other.
 *
 * <p><b>Work that goes on after the return</b> keeps the lock where its end can be seen:
 *
 * <ul>
 *   <li>{@code CompletionStage} and {@code CompletableFuture}: until the stage completes. The
 *       caller gets a stage that completes after the release, as a call returns after it;
 *       cancelling that one ends neither the work nor the lock.
 *   <li>{@code Mono}, {@code Flux} and {@code Publisher}, with Reactor: each subscription acquires
 *       the lock, without blocking a thread, and holds it until the publisher completes, fails or
 *       is cancelled. Subscriptions within it that have its Reactor context are nested calls.
 *   <li>{@code @Async}: the lock is acquired in the executor's thread, around the work.
 * </ul>
 *
 * <p>The application does not start with {@code @Locked} on a method that returns another type
 * whose work goes on, such as {@code Future}, {@code Callable}, {@code DeferredResult}, {@code
 * Stream}, a type of RxJava, or a Kotlin {@code suspend} function, nor on a private or static
 * method, which no proxy can intercept. As with {@code @Transactional}, a call within the bean
 * itself does not pass the proxy and takes no lock.
 */
@Documented
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
public @interface Locked {
  /**
   * The name of the lock, with parts in {@code #{…}} that are evaluated with the arguments: {@code
   * order:#{#id}}.
   *
   * @return the name
   */
  String name();

  /**
   * How long to wait for the lock: {@code 5s}, {@code 500ms}, or ISO-8601. Empty: without a limit;
   * {@code 0s}: not at all. (Java lets no annotation have a member {@code wait}.)
   *
   * @return a duration
   */
  String waitFor() default "";

  /**
   * How long the lock is held after this process has died. Empty: {@code redislock.lease} of the
   * application's properties, which is 30 s.
   *
   * @return a duration
   */
  String lease() default "";
}
