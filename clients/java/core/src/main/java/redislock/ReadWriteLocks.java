package redislock;

/**
 * The two views of a read/write lock. An owner that holds one view may acquire the other {@link
 * ReentrantMutex#within} it: the writer may read as well, and a reader that asks to write waits for
 * the other readers.
 *
 * @param read the lock of the readers, which any number of owners hold at once
 * @param write the lock of the writer, which excludes all other owners
 */
public record ReadWriteLocks(ReentrantMutex read, ReentrantMutex write) {}
