package redislock;

/** A semaphore, of which a limited number of permits is held at once. Immutable. */
public final class Semaphore extends RedisLock<Semaphore> {
  Semaphore(Context context, String name, LockType lockType, Settings settings) {
    super(context, name, lockType, settings);
  }

  @Override
  Semaphore with(Settings settings) {
    return new Semaphore(context, name, lockType, settings);
  }

  /**
   * Sets how many permits each acquire takes, all or none. The default is 1.
   *
   * @param count 1 to the limit
   * @return a semaphore whose acquires take this many permits
   * @throws IllegalArgumentException if the count is out of range, or with {@link #slots()}
   */
  public Semaphore permits(int count) {
    if (count < 1 || count > lockType.limit() || lockType.hasSlots()) {
      throw new IllegalArgumentException("permits must be from 1 to the limit, and 1 with a slot");
    }
    return with(settings.with(copy -> copy.permits = count));
  }

  /**
   * Numbers the permits: each acquire takes one, and {@link Hold#slot()} is its number, which no
   * other holder has.
   *
   * @return a semaphore with slots
   */
  public Semaphore slots() {
    LockType slots = new LockType(lockType.kind(), lockType.keys(), lockType.limit(), true);
    return new Semaphore(context, name, slots, settings.with(copy -> copy.permits = 1));
  }
}
