// Package redislock takes distributed locks on a Redis or Valkey server that has the redis-lock module, over go-redis.
//
// The server queues the waiters of a lock, first come, first served, and hands the lock over when it is released, when
// its lease ends, or when its holder's connection does. No client polls. Every grant has a fence, a number that grows
// with each grant, for the resource that the lock protects.
//
//	locks := redislock.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}))
//	err := locks.Mutex("invoice:7").Do(ctx, func(ctx context.Context) error {
//		return send(ctx) // ctx ends with the cause ErrLost if the lock is lost
//	})
//
// A context that ends while a lock is waited for ends the wait with the context's error, and leaves neither a queued
// request nor a hold behind. Unlock works with a context that has ended.
package redislock
