package tests

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

func TestTheServerOfTheReadme(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	pages := servertest.Programs(t, "../README.md", "net/http")
	isTrue(t, len(pages) == 1 && strings.Count(pages[0], "\n") <= 40, "%d programs", len(pages))
	addr := fmt.Sprint("localhost:", servertest.FreePort())
	web := exec.Command(servertest.Built(t, pages[0], server, "localhost:8080", addr))
	ok(t, web.Start())
	t.Cleanup(func() { _ = web.Process.Kill(); _ = web.Wait() })
	browser := &http.Client{Transport: &http.Transport{}}
	get := func(ctx context.Context, user int) int {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint("http://", addr, "/pay?user=", user), nil)
		ok(t, err)
		reply, err := browser.Do(request)
		if err != nil {
			return 0
		}
		defer func() { _ = reply.Body.Close() }()
		return reply.StatusCode
	}
	servertest.Eventually(t, "an answer", func() bool { return get(context.Background(), 1) == http.StatusOK })
	// The lock of this user is held, and the requests are cancelled while they wait.
	server.Ask("LOCK.ACQUIRE", "user:7", "somebody", "PX", 60_000)
	var all sync.WaitGroup
	gone, goAway := context.WithCancel(context.Background())
	defer goAway()
	for number := range 200 {
		all.Add(1)
		go func() {
			defer all.Done()
			ctx, end := context.WithCancel(gone)
			defer end()
			if number%2 == 0 { // It may not even be queued yet.
				time.AfterFunc(time.Duration(number)*time.Millisecond, end)
			}
			if status := get(ctx, 7); status != 0 {
				t.Error(status)
			}
		}()
	}
	servertest.Eventually(t, "waiters", func() bool { return len(server.Waiters("user:7")) >= 100 })
	goAway()
	all.Wait()
	servertest.Eventually(t, "nobody waits", func() bool { return len(server.Waiters("user:7")) == 0 })
	server.Ask("LOCK.RELEASE", "user:7", "somebody")
	isTrue(t, server.IsFree("user:7"), "a request that had gone was granted it")
	isTrue(t, get(context.Background(), 7) == http.StatusOK, "not served")
	browser.CloseIdleConnections()
	servertest.Eventually(t, "nothing is left", func() bool { return server.Ask("DBSIZE") == int64(0) })
}

func TestTheProgramOfStart(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	pages := servertest.Programs(t, "../../../docs/start.md", "")
	isTrue(t, len(pages) == 1, "%d programs", len(pages))
	binary := servertest.Built(t, pages[0], server)
	server.Ask("LOCK.ACQUIRE", "report", "somebody", "PX", 60_000)
	program := exec.Command(binary)
	var printed strings.Builder
	program.Stdout, program.Stderr = &printed, &printed
	ok(t, program.Start())
	servertest.Eventually(t, "its turn is waited for", func() bool { return len(server.Waiters("report")) == 1 })
	server.Ask("LOCK.RELEASE", "report", "somebody")
	ok(t, program.Wait())
	isTrue(t, regexp.MustCompile(`^making the report under fence \d+\n$`).MatchString(printed.String()), "%s", &printed)
	isTrue(t, server.IsFree("report"), "held")
}
