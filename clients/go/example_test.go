package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

var (
	ctx = context.Background()
	rdb *redis.Client
)

func TestMain(m *testing.M) {
	process := &servertest.Process{}
	server := servertest.Start(process)
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr()})
	status := m.Run()
	_ = rdb.Close()
	process.End()
	os.Exit(status)
}

func Example() {
	locks := redislock.New(rdb)
	defer locks.Close()

	err := locks.Mutex("invoice:7", redislock.WithAutoRenew()).Do(ctx, func(ctx context.Context) error {
		fmt.Println("held")
		return ctx.Err() // The work's context ends when the lock is lost.
	})
	fmt.Println(err)
	// Output:
	// held
	// <nil>
}

func ExampleLock_Lock() {
	locks := redislock.New(rdb)
	defer locks.Close()

	waits, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	hold, err := locks.Mutex("invoice:7").Lock(waits)
	if err != nil {
		fmt.Println("not held:", err)
		return
	}
	defer func() { _ = hold.Unlock(ctx) }()
	left, _ := hold.Remaining()
	fmt.Println(hold.Fence() > 0, left > 29*time.Second)
	// Output: true true
}

func ExampleLock_TryLock() {
	locks := redislock.New(rdb, redislock.WithTellHolder())
	defer locks.Close()

	hold, _ := locks.Mutex("invoice:7", redislock.WithToken("worker-1")).Lock(ctx)
	defer func() { _ = hold.Unlock(ctx) }()
	_, err := locks.Mutex("invoice:7").TryLock(ctx)
	fmt.Println(errors.Is(err, redislock.ErrNotAcquired))
	fmt.Println(err)
	// Output:
	// true
	// redislock: not acquired: "invoice:7" is held by "worker-1"
}

func ExampleHold_Context() {
	locks := redislock.New(rdb)
	defer locks.Close()

	hold, _ := locks.Mutex("leader", redislock.WithLease(200*time.Millisecond)).Lock(ctx)
	<-hold.Context().Done() // Its lease ends, since nothing renews it.
	fmt.Println(context.Cause(hold.Context()))
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// redislock: the lock is no longer owned
	// redislock: the lock is no longer owned
}

func ExampleHold_Exec() {
	locks := redislock.New(rdb)
	defer locks.Close()

	hold, _ := locks.Mutex("report").Lock(ctx)
	defer func() { _ = hold.Unlock(ctx) }()
	fmt.Println(hold.Exec(ctx, "SET", "report:latest", "done").Text())
	// Output: OK <nil>
}

func ExampleLock_Exec() {
	locks := redislock.New(rdb)
	defer locks.Close()

	rdb.Set(ctx, "account:7", 100, 0)
	fmt.Println(locks.Mutex("account:7:lock").Exec(ctx, "INCRBY", "account:7", -30).Int())
	// Output: 70 <nil>
}

func ExampleOnce() {
	locks := redislock.New(rdb, redislock.WithAutoRenew())
	defer locks.Close()

	read := func(ctx context.Context) (string, bool, error) {
		page, err := rdb.Get(ctx, "page").Result()
		return page, err == nil, ignore(err, redis.Nil)
	}
	page, err := redislock.Once(ctx, locks.Mutex("making:page"), read, func(ctx context.Context) (string, error) {
		return "made once", rdb.Set(ctx, "page", "made once", time.Minute).Err()
	})
	fmt.Println(page, err)
	// Output: made once <nil>
}

func ignore(err, one error) error {
	if errors.Is(err, one) {
		return nil
	}
	return err
}

func ExampleClient_Reentrant() {
	locks := redislock.New(rdb)
	defer locks.Close()

	outer, _ := locks.Reentrant("config").Lock(ctx)
	inner, err := locks.Reentrant("config", redislock.AsOwnerOf(outer)).Lock(ctx)
	fmt.Println(inner.Fence() == outer.Fence(), err)
	_, err = locks.Reentrant("config").TryLock(ctx) // Another owner.
	fmt.Println(errors.Is(err, redislock.ErrNotAcquired))
	fmt.Println(inner.Unlock(ctx), outer.Unlock(ctx))
	// Output:
	// true <nil>
	// true
	// <nil> <nil>
}

func ExampleClient_RW() {
	locks := redislock.New(rdb)
	defer locks.Close()

	rw := locks.RW("settings")
	writer, _ := rw.Write().Lock(ctx)
	// A downgrade: the writer also acquires the read lock and keeps it.
	reader, _ := rw.Read(redislock.AsOwnerOf(writer)).Lock(ctx)
	_ = writer.Unlock(ctx)
	other, err := rw.Read().Lock(ctx)
	fmt.Println(err)
	fmt.Println(other.Unlock(ctx), reader.Unlock(ctx))
	// Output:
	// <nil>
	// <nil> <nil>
}

func ExampleClient_Semaphore() {
	locks := redislock.New(rdb)
	defer locks.Close()

	gpus := locks.Semaphore("gpus", 2, redislock.WithSlot())
	first, _ := gpus.Lock(ctx)
	second, _ := gpus.Lock(ctx)
	fmt.Println(first.Slot(), second.Slot())
	fmt.Println(first.Unlock(ctx), second.Unlock(ctx))
	// Output:
	// 0 1
	// <nil> <nil>
}

func ExampleClient_Multi() {
	locks := redislock.New(rdb)
	defer locks.Close()

	err := locks.Multi([]string{"{bank}:7", "{bank}:9"}).Do(ctx, func(context.Context) error {
		fmt.Println("both, or none")
		return nil
	})
	fmt.Println(err)
	// Output:
	// both, or none
	// <nil>
}
