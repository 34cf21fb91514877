package redislock;

/**
 * A lock, or one view of a read/write lock, that its owner may acquire again while it holds it.
 * Immutable.
 */
public final class ReentrantMutex extends RedisLock<ReentrantMutex> {
  ReentrantMutex(Context context, String name, Family family, Settings settings) {
    super(context, name, family, settings);
  }

  @Override
  ReentrantMutex with(Settings settings) {
    return new ReentrantMutex(context, name, family, settings);
  }

  /**
   * The same lock for the owner of this hold: it acquires again what it holds. One owner is one
   * line of execution. Replaces {@link #token(String)}.
   *
   * @param hold of this lock, or of the other view of the same read/write lock
   * @return a lock whose acquires add holds to that owner's
   * @throws IllegalArgumentException if the hold is of another lock
   */
  public ReentrantMutex within(Hold hold) {
    if (!hold.family.nests(family)) {
      throw new IllegalArgumentException("within: the hold is of another lock");
    }
    return with(settings.with(copy -> copy.within(hold.owner)));
  }
}
