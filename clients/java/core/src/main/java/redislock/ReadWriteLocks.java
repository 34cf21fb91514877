package redislock;

/**
 * The two views of a read/write lock. A hold of one view may be kept while the other is acquired
 * {@link ReentrantMutex#within} it: the writer may read, and a reader that asks to write waits for
 * the other readers.
 *
 * @param read for many readers
 * @param write for one writer
 */
public record ReadWriteLocks(ReentrantMutex read, ReentrantMutex write) {}
