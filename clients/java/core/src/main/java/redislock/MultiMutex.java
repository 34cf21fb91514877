package redislock;

/** Multiple mutexes that are acquired together, all or none, with one fencing token. Immutable. */
public final class MultiMutex extends RedisLock<MultiMutex> {
  MultiMutex(Context context, String name, Family family, Settings settings) {
    super(context, name, family, settings);
  }

  @Override
  MultiMutex with(Settings settings) {
    return new MultiMutex(context, name, family, settings);
  }
}
