package redislock;

/** Several mutexes at once, all or none of them, with one fence. Immutable. */
public final class MultiMutex extends RedisLock<MultiMutex> {
  MultiMutex(Context context, String name, Family family, Settings settings) {
    super(context, name, family, settings);
  }

  @Override
  MultiMutex with(Settings settings) {
    return new MultiMutex(context, name, family, settings);
  }
}
