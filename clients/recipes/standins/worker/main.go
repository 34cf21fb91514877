// Worker does all that a worker of docs/acl.md may do with the client for Go: `worker PORT PROTOCOL`. With PROTOCOL
// cluster the port is that of a node.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func main() {
	addr, user, password := "127.0.0.1:"+os.Args[1], "worker", "worker-secret"
	if os.Args[2] == "cluster" {
		inCluster(redislock.New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, Username: user,
			Password: password})))
	} else {
		protocol, _ := strconv.Atoi(os.Args[2])
		rdb := redis.NewClient(&redis.Options{Addr: addr, Username: user, Password: password, Protocol: protocol})
		alone(rdb, redislock.New(rdb))
	}
	fmt.Println("all done")
}

func alone(rdb *redis.Client, locks *redislock.Client) {
	hold, err := locks.Mutex("lock:1").Lock(ctx)
	check(err)
	isHeld, err := hold.IsHeld(ctx)
	check(err)
	assert(isHeld)
	check(hold.Extend(ctx, 5*time.Second))
	check(hold.Exec(ctx, "SET", "account:1", "100").Err())
	waiting := make(chan error, 1)
	go func() { waiting <- locks.Mutex("lock:1").Do(ctx, func(context.Context) error { return nil }) }()
	fmt.Println("waits")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	check(hold.Unlock(ctx))
	check(<-waiting)
	for _, lock := range []*redislock.Lock{locks.Reentrant("lock:2"), locks.RW("lock:3").Write(),
		locks.RW("lock:4").Read(),
		locks.Semaphore("lock:5", 2, redislock.WithSlot()), locks.Multi([]string{"lock:6", "lock:7"}),
		locks.Mutex("lock:8", redislock.WithSession()), locks.Mutex("lock:9", redislock.WithMixed(time.Second)),
		locks.Mutex("lock:10", redislock.WithLease(300*time.Millisecond), redislock.WithAutoRenew())} {
		check(lock.Do(ctx, func(ctx context.Context) error {
			_, err := lock.Info(ctx)
			return err
		}))
	}
	_, err = redislock.Once(ctx, locks.Mutex("lock:11"), func(ctx context.Context) (string, bool, error) {
		found, err := rdb.Get(ctx, "account:2").Result()
		if errors.Is(err, redis.Nil) {
			return "", false, nil
		}
		return found, err == nil, err
	}, func(ctx context.Context) (string, error) { return "1", rdb.Set(ctx, "account:2", "1", 0).Err() })
	check(err)
	_, err = locks.Mutex("lock:string").Lock(ctx)
	assert(errors.Is(err, redislock.ErrWrongType))
	_, err = locks.Mutex("lock:12", redislock.WithReplicas(1, time.Millisecond)).Lock(ctx)
	assert(errors.Is(err, redislock.ErrNotReplicated))
}

func inCluster(locks *redislock.Client) {
	for _, key := range []string{"lock:1", "lock:2", "lock:{3}", "lock:held"} {
		check(locks.Mutex(key).Do(ctx, func(context.Context) error { return nil }))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func assert(what bool) {
	if !what {
		panic("not so")
	}
}
