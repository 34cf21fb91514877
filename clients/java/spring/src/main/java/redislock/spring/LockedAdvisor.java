package redislock.spring;

import org.springframework.aop.Advisor;
import org.springframework.aop.framework.Advised;
import org.springframework.aop.framework.autoproxy.AbstractBeanFactoryAwareAdvisingPostProcessor;
import org.springframework.aop.interceptor.AsyncExecutionAspectSupport;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.beans.factory.config.DestructionAwareBeanPostProcessor;
import redislock.RedisLocks;

/**
 * Wraps a bean's method in the lock of {@link Locked}: outside a transaction of the same method and
 * all other advice, whatever its order, but inside {@code @Async}, whose caller continues at once.
 */
final class LockedAdvisor extends AbstractBeanFactoryAwareAdvisingPostProcessor
    implements DestructionAwareBeanPostProcessor, SmartInitializingSingleton {
  private static final long serialVersionUID = 1;

  private final transient LockedCalls calls;
  private volatile boolean isUsed;

  LockedAdvisor(LockedCalls calls, boolean isSubclassing) {
    this.calls = calls;
    setBeforeExistingAdvisors(true);
    setProxyTargetClass(isSubclassing);
    advisor =
        new DefaultPointcutAdvisor(
            // Includes methods of interfaces and superclasses.
            new AnnotationMatchingPointcut(null, Locked.class, true), calls);
  }

  @Override
  protected boolean isEligible(Class<?> type) {
    boolean isLocked = super.isEligible(type);
    if (isLocked) {
      LockedMethod.check(type, isProxyTargetClass());
      isUsed = true;
    }
    return isLocked;
  }

  @Override
  public Object postProcessAfterInitialization(Object bean, String name) {
    Object proxy = super.postProcessAfterInitialization(bean, name);
    if (proxy == bean && bean instanceof Advised advised && advised.getAdvisorCount() > 1) {
      behindAsync(advised);
    }
    return proxy;
  }

  /**
   * An advisor of {@code @Async} that is added later moves itself to the front. If one is there
   * already, this one must be moved behind it.
   */
  private void behindAsync(Advised advised) {
    Advisor[] all = advised.getAdvisors();
    int last = all.length - 1;
    while (last > 0 && !(all[last].getAdvice() instanceof AsyncExecutionAspectSupport)) {
      last--;
    }
    if (all[0] == advisor && last > 0) {
      advised.removeAdvisor(0);
      advised.addAdvisor(last, all[0]);
    }
  }

  /** Fails at startup if all calls would fail. */
  @Override
  public void afterSingletonsInstantiated() {
    if (isUsed) {
      calls.checkLocks();
    }
  }

  @Override
  public boolean requiresDestruction(Object bean) {
    return bean instanceof RedisLocks;
  }

  /** Lets running calls end before the locks are closed. */
  @Override
  public void postProcessBeforeDestruction(Object bean, String name) {
    calls.inUse.awaitEnd();
  }
}
