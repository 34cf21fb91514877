package redislock;

/** At most so many permits at once, for several owners. Immutable. */
public final class Semaphore extends RedisLock<Semaphore> {
  private final int limit;
  private final int permits;

  Semaphore(
      Context context, String name, Family family, Settings settings, int limit, int permits) {
    super(context, name, family, settings);
    this.limit = limit;
    this.permits = permits;
  }

  @Override
  Semaphore with(Settings settings) {
    return new Semaphore(context, name, family, settings, limit, permits);
  }

  @Override
  int perHold() {
    return permits;
  }

  /**
   * Each acquire takes so many permits, all or none.
   *
   * @param count 1 to the limit
   * @return a semaphore
   */
  public Semaphore permits(int count) {
    if (count < 1 || count > limit || family.hasSlots) {
      throw new IllegalArgumentException("permits are 1 to the limit, and one with a slot");
    }
    return new Semaphore(context, name, family, settings, limit, count);
  }

  /**
   * Each acquire takes one permit, and is told which: {@link Hold#slot()}.
   *
   * @return a semaphore
   */
  public Semaphore slots() {
    return new Semaphore(
        context, name, Family.semaphore(family.key(), limit, true), settings, limit, 1);
  }
}
