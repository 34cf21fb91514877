// One client of a Go library, unchanged: `worker LIBRARY turns|hold PORT KEY TURNS` (see `run` for the modes).
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

const lease = 2 * time.Second

var ctx = context.Background()

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	library, mode, port, key := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	turns, err := strconv.Atoi(os.Args[5])
	must(err)
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	var acquire func() func()
	switch library {
	case "redsync":
		sync := redsync.New(goredis.NewPool(client))
		acquire = func() func() {
			mutex := sync.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(5000),
				redsync.WithRetryDelay(5*time.Millisecond))
			must(mutex.Lock())
			return func() { _, err := mutex.Unlock(); must(err) }
		}
	case "bsm/redislock":
		locker := redislock.New(client)
		strategy := redislock.LinearBackoff(5 * time.Millisecond)
		acquire = func() func() {
			within, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			options := &redislock.Options{RetryStrategy: strategy}
			lock, err := locker.Obtain(within, key, lease, options)
			must(err)
			return func() { must(lock.Release(ctx)) }
		}
	case "rueidislock":
		// One key for each lock instead of three. It waits for an invalidation by client tracking.
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{"127.0.0.1:" + port}},
			KeyMajority:  1,
			KeyValidity:  lease,
		})
		must(err)
		acquire = func() func() {
			within, stop := context.WithTimeout(ctx, time.Minute)
			_, cancel, err := locker.WithContext(within, key)
			must(err)
			return func() { cancel(); stop() }
		}
	default:
		must(fmt.Errorf("no library %s", library))
	}
	if mode == "hold" {
		acquire()
		fmt.Println("held")
		time.Sleep(10 * time.Minute)
	}
	for turn := 0; turn < turns; turn++ {
		release := acquire()
		entered, err := client.Incr(ctx, "inside").Result()
		must(err)
		left, err := client.Decr(ctx, "inside").Result()
		must(err)
		if entered != 1 || left != 0 {
			must(fmt.Errorf("not alone"))
		}
		release()
	}
	fmt.Println("done")
}
