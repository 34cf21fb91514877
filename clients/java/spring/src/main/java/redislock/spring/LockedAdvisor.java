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
 * Puts the lock of {@link Locked} around a bean's method: around a transaction of the same method
 * and all other advice, whatever its order, but inside of {@code @Async}, whose caller goes on.
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
            // Methods of interfaces and of parents too.
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
   * An advisor of {@code @Async} that comes later goes to the front by itself; behind one that was
   * there already, this one has to be moved.
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

  /** An application whose calls would all fail does not start. */
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

  /** Before the locks are closed, the calls that are under way end. */
  @Override
  public void postProcessBeforeDestruction(Object bean, String name) {
    calls.inUse.awaitEnd();
  }
}
