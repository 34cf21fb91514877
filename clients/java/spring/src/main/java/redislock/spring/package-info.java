/**
 * Locks in Spring Boot: {@link redislock.spring.Locked}, a lock registry, ShedLock's provider,
 * metrics, health.
 */
@NullMarked
package redislock.spring;

import org.jspecify.annotations.NullMarked;
