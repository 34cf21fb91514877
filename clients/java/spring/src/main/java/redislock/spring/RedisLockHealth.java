package redislock.spring;

import redislock.RedisLocks;

/**
 * Checks that locks can be acquired: the server replies, has the module, and lets this user ask.
 */
final class RedisLockHealth {
  /** The lock that is queried, after the prefix of the application. */
  static final String NAME = "redislock-health";

  private RedisLockHealth() {}

  /** Throws if locks cannot be acquired. Acquires nothing. */
  static void check(RedisLocks locks) throws InterruptedException {
    locks.mutex(NAME).info();
  }
}
