package redislock;

/** At most so many permits at once, for several owners. Immutable. */
public final class Semaphore extends RedisLock<Semaphore> {
  Semaphore(Context context, String name, Family family, Settings settings) {
    super(context, name, family, settings);
  }

  @Override
  Semaphore with(Settings settings) {
    return new Semaphore(context, name, family, settings);
  }

  /**
   * Each acquire takes so many permits, all or none.
   *
   * @param count 1 to the limit
   * @return a semaphore
   */
  public Semaphore permits(int count) {
    if (count < 1 || count > family.limit() || family.hasSlots()) {
      throw new IllegalArgumentException("permits must be from 1 to the limit, and 1 with a slot");
    }
    return with(settings.with(copy -> copy.permits = count));
  }

  /**
   * Each acquire takes one permit, and is told which: {@link Hold#slot()}.
   *
   * @return a semaphore
   */
  public Semaphore slots() {
    Family slots = new Family(family.kind(), family.keys(), family.limit(), true);
    return new Semaphore(context, name, slots, settings.with(copy -> copy.permits = 1));
  }
}
