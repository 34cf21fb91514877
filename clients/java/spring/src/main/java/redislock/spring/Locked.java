package redislock.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Runs a method of a bean while it holds a lock, one call at a time over all instances. The lock is
 * taken before a transaction begins and released after it has ended, so that the next holder reads
 * what was committed. It is renewed for as long as the method runs.
 *
 * <p>The call throws {@link redislock.NotAcquiredException} if the time was over, and {@link
 * redislock.LockLostException} if the lock was lost before the method had ended.
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
   * How long to wait: {@code 5s}, {@code 500ms}, or ISO-8601. Empty: for ever; {@code 0s}: not at
   * all. (Java lets no annotation have a member {@code wait}.)
   *
   * @return a duration
   */
  String waitFor() default "";

  /**
   * How long the lock is held after this process has died.
   *
   * @return a duration
   */
  String lease() default "30s";
}
