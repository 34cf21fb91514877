package redislock.spring;

import redislock.RedisLocks;

/** Whether locks can be acquired: the server answers, has the module, and lets this user ask. */
final class RedisLockHealth {
  /** The lock that is asked for, behind the prefix of the application. */
  static final String NAME = "redislock-health";

  private RedisLockHealth() {}

  /** Throws why they cannot. Nothing is acquired. */
  static void check(RedisLocks locks) throws InterruptedException {
    locks.mutex(NAME).info();
  }
}
