/**
 * Locks for Spring Boot: {@link redislock.spring.Locked}, a lock registry, ShedLock's provider,
 * metrics and health.
 */
@NullMarked
package redislock.spring;

import org.jspecify.annotations.NullMarked;
