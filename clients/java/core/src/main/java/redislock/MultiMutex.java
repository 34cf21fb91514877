package redislock;

/** Multiple mutexes that are acquired together, all or none, with one fencing token. Immutable. */
public final class MultiMutex extends RedisLock<MultiMutex> {
  MultiMutex(Context context, String name, LockType lockType, Settings settings) {
    super(context, name, lockType, settings);
  }

  @Override
  MultiMutex with(Settings settings) {
    return new MultiMutex(context, name, lockType, settings);
  }
}
