package redislock;

/**
 * A mutex, or one view of a read/write lock, that its owner may acquire again while it holds it.
 * Immutable.
 */
public final class ReentrantMutex extends RedisLock<ReentrantMutex> {
  ReentrantMutex(Context context, String name, LockType lockType, Settings settings) {
    super(context, name, lockType, settings);
  }

  @Override
  ReentrantMutex with(Settings settings) {
    return new ReentrantMutex(context, name, lockType, settings);
  }

  /**
   * Returns this lock for the owner of an existing hold, so that the same owner acquires it again.
   * One owner must be one thread, task or request. Removes {@link #token(String)}.
   *
   * @param hold a hold of this lock, or of the other view of the same read/write lock
   * @return a lock whose acquires add holds to that owner
   * @throws IllegalArgumentException if the hold belongs to another lock
   */
  public ReentrantMutex within(Hold hold) {
    if (!hold.lockType.nests(lockType)) {
      throw new IllegalArgumentException("within: the hold is of another lock");
    }
    return with(settings.with(copy -> copy.within(hold.owner)));
  }
}
