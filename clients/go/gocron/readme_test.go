package gocron_test

import (
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
)

// process is one of several processes that run a program of the README.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	ended  chan struct{}
	mu     sync.Mutex
	output bytes.Buffer
}

func begin(t *testing.T, binary string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.ended })
	return p
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(text)
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

func (p *process) isStopped() bool {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
	return p.cmd.ProcessState.Success()
}

func program(t *testing.T, server *servertest.Server, words string, replace ...string) string {
	t.Helper()
	found := servertest.Programs(t, "../README.md", words)
	if len(found) != 1 {
		t.Fatal(words, len(found))
	}
	return servertest.Built(t, found[0], server, replace...)
}

func TestTheLockerOfTheReadme(t *testing.T) {
	server := servertest.Start(t)
	// Every second, instead of at the next minute for the first time.
	binary := program(t, server, "NewLocker", `CronJob("* * * * *", false)`, `CronJob("* * * * * *", true)`)
	first, second := begin(t, binary), begin(t, binary)
	runs := func() int { return strings.Count(first.printed()+second.printed(), "the report of this minute\n") }
	asked := func() int { return server.Calls("lock.acquire") }
	servertest.Eventually(t, "both have asked for some runs", func() bool { return runs() > 0 && asked() >= 4 })
	if runs() != 1 || server.Ask("PTTL", "report").(int64) < 10_000 {
		t.Fatal(first.printed(), second.printed())
	}
	if !first.isStopped() || !second.isStopped() {
		t.Fatal(first.printed(), second.printed())
	}
}

func TestTheElectorOfTheReadme(t *testing.T) {
	server := servertest.Start(t)
	binary := program(t, server, "NewElector")
	leads := func(p *process) func() bool { return func() bool { return p.printed() != "" } }
	first := begin(t, binary)
	servertest.Eventually(t, "it leads", leads(first))
	second := begin(t, binary)
	servertest.Eventually(t, "a standby", func() bool { return len(server.Waiters("scheduler")) == 1 })
	if second.printed() != "" || !first.isStopped() {
		t.Fatal(first.printed(), second.printed())
	}
	servertest.Eventually(t, "the next one leads", leads(second))
	if !second.isStopped() || strings.ReplaceAll(first.printed()+second.printed(), "leading\n", "") != "" {
		t.Fatal(first.printed(), second.printed())
	}
	servertest.Eventually(t, "the lock is free", func() bool { return server.IsFree("scheduler") })
}
