// Package redislock provides distributed locks over go-redis, for a Redis or Valkey server with the redis-lock module.
//
// The server queues waiting requests first come, first served. It grants the lock to the next one as soon as the lock
// is released, its lease expires, or the connection of a session ends. Clients do not poll. Every grant has a fencing
// token, a number that increases with each grant, for the resource that the lock protects.
//
//	locks := redislock.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}))
//	err := locks.Mutex("invoice:7").Do(ctx, func(ctx context.Context) error {
//		return send(ctx) // ctx is canceled with the cause ErrLost if the lock is lost
//	})
//
// If the context ends while a request waits, the wait fails with the context's error and leaves neither a queued
// request nor a hold behind. Unlock works even with a context that has ended.
package redislock
