package tests

import (
	"context"
	"testing"

	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

// The client's CPU time follows what it allocates, which other work on the machine does not change. Not parallel: the
// count is that of the process.
func TestALockAllocatesLittle(t *testing.T) {
	ctx, client := context.Background(), over(t, servertest.Start(t).Addr())
	pair := testing.AllocsPerRun(500, func() { unlock(t, locked(t, client.Mutex("k"))) })
	exec := testing.AllocsPerRun(500, func() { ok(t, client.Mutex("k").Exec(ctx, "INCR", "n").Err()) })
	isTrue(t, pair <= 50 && exec <= 49, "a pair allocates %.0f times, Exec %.0f times", pair, exec)
}
