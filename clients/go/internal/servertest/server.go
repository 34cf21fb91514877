// Package servertest starts real servers for the tests: single, with replicas, with Sentinel, as a cluster; and a proxy
// that loses replies.
package servertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// T is a *testing.T, or the process of a test ([Process]).
type T interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// Process is for examples, which have no *testing.T: End ends its servers.
type Process struct{ cleanups []func() }

// Helper implements T.
func (p *Process) Helper() {}

// Fatal implements T.
func (p *Process) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// Fatalf implements T.
func (p *Process) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Cleanup implements T.
func (p *Process) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

// TempDir implements T.
func (p *Process) TempDir() string {
	dir, err := os.MkdirTemp("", "redislock-")
	if err != nil {
		panic(err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// End stops what was started, the latest first.
func (p *Process) End() {
	for i := len(p.cleanups) - 1; i >= 0; i-- {
		p.cleanups[i]()
	}
}

// stateTimeout: no test depends on the machine's speed. It waits for a late state, and fails if the state never comes.
const stateTimeout = 60 * time.Second

// Eventually waits for a state.
func Eventually(t T, what string, state func() bool) {
	t.Helper()
	ends := time.Now().Add(stateTimeout)
	for !state() {
		if time.Now().After(ends) {
			t.Fatalf("never came: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../../..")
}

func module() string {
	if path := os.Getenv("REDIS_LOCK_MODULE"); path != "" {
		return path
	}
	return filepath.Join(root(), "target/release/libredis_lock.so")
}

// FreePort returns a free port, for which the port of the cluster bus, 10,000 above, is free too. Outgoing connections
// have higher ports.
func FreePort() int {
	for {
		port := 2_000 + rand.IntN(10_000)
		if isFree(port) && isFree(port+10_000) {
			return port
		}
	}
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		_ = listener.Close()
	}
	return err == nil
}

// Server is a redis-server with its own port and directory.
type Server struct {
	t       T
	Port    int
	Admin   *redis.Client
	dir     string
	words   []string
	process *exec.Cmd
}

// Start starts a server with the module.
func Start(t T, options ...string) *Server {
	t.Helper()
	return start(t, append([]string{"--loadmodule", module()}, options...)...)
}

// Bare starts a server without the module.
func Bare(t T) *Server {
	t.Helper()
	return start(t)
}

func start(t T, options ...string) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir()}
	config := filepath.Join(s.dir, "redis.conf")
	s.words = append([]string{config}, options...)
	if !isSentinel(options) {
		s.words = append(s.words, "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")
	}
	t.Cleanup(s.Stop)
	for {
		s.Port = FreePort()
		text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\n", s.Port, s.dir)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Admin = redis.NewClient(&redis.Options{Addr: s.Addr(), Protocol: 2})
		if s.run() {
			return s
		}
		s.Stop()
	}
}

func isSentinel(options []string) bool { return len(options) > 0 && options[0] == "--sentinel" }

// Run starts the process again, on the same port.
func (s *Server) Run() {
	s.t.Helper()
	if !s.run() {
		s.t.Fatalf("another process has taken port %d", s.Port)
	}
}

// run starts the process and waits until it replies. It returns false if another process has taken the port meanwhile.
func (s *Server) run() bool {
	s.t.Helper()
	program := os.Getenv("REDIS_SERVER")
	if program == "" {
		program = "redis-server"
	}
	s.process = exec.Command(program, s.words...)
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	ends := time.Now().Add(stateTimeout)
	for !s.answers() {
		words, _ := os.ReadFile(log.Name())
		if strings.Contains(string(words), "Address already in use") {
			return false
		}
		if time.Now().After(ends) {
			s.t.Fatalf("no server on port %d: %s", s.Port, words)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}

// answers returns true if this server answers, and not another one on the same port.
func (s *Server) answers() bool {
	info, err := s.Admin.Info(context.Background(), "server").Result()
	return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r", s.process.Process.Pid)) &&
		s.Admin.Ping(context.Background()).Err() == nil
}

// Kill ends the process.
func (s *Server) Kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
		s.process = nil
	}
}

// Stop ends the process and its client.
func (s *Server) Stop() {
	s.Kill()
	_ = s.Admin.Close()
}

// Addr returns host and port.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.Port) }

// Ask sends a command, and fails the test on an error.
func (s *Server) Ask(words ...any) any {
	s.t.Helper()
	reply, err := s.Admin.Do(context.Background(), words...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", words, err)
	}
	return reply
}

// Fields reads a flat array of names and values.
func Fields(reply any) map[string]any {
	flat, _ := reply.([]any)
	fields := map[string]any{}
	for i := 0; i+1 < len(flat); i += 2 {
		fields[flat[i].(string)] = flat[i+1]
	}
	return fields
}

// Waiters returns the waiting owners, in queue order.
func (s *Server) Waiters(key string) []string {
	reply, err := s.Admin.Do(context.Background(), "LOCK.WAITERS", key, "COUNT", 0).Result()
	if err != nil {
		return nil // Not its slot, or no lock.
	}
	var owners []string
	for _, waiter := range reply.([]any) {
		owners = append(owners, Fields(waiter)["owner"].(string))
	}
	return owners
}

// Holders returns the holders of LOCK.INFO as maps.
func (s *Server) Holders(key string) []map[string]any {
	var holders []map[string]any
	found, _ := Fields(s.Ask("LOCK.INFO", key))["holders"].([]any)
	for _, holder := range found {
		holders = append(holders, Fields(holder))
	}
	return holders
}

// Holds returns the number of holds of the first holder, or 0 without one.
func (s *Server) Holds(key string) int64 {
	for _, holder := range s.Holders(key) {
		return holder["holds"].(int64)
	}
	return 0
}

// IsFree returns true if the key has no holder and no waiter.
func (s *Server) IsFree(key string) bool { return s.Ask("LOCK.INFO", key) == nil }

// Break sends LOCK.BREAK, which must find a holder.
func (s *Server) Break(key string) {
	s.t.Helper()
	if s.Ask("LOCK.BREAK", key).(int64) == 0 {
		s.t.Fatalf("nobody holds %s", key)
	}
}

// Calls returns how often a command has run.
func (s *Server) Calls(command string) int {
	pattern := regexp.MustCompile(`cmdstat_` + regexp.QuoteMeta(strings.ToLower(command)) + `:calls=(\d+)`)
	found := pattern.FindStringSubmatch(s.Ask("INFO", "commandstats").(string))
	if found == nil {
		return 0
	}
	calls, _ := strconv.Atoi(found[1])
	return calls
}

// Replica starts a replica that is in sync.
func (s *Server) Replica() *Server {
	s.t.Helper()
	replica := Start(s.t, "--replicaof", "127.0.0.1", strconv.Itoa(s.Port))
	Eventually(s.t, "a replica in sync", func() bool {
		return strings.Contains(s.Ask("INFO", "replication").(string), "state=online") &&
			strings.Contains(replica.Ask("INFO", "replication").(string), "master_link_status:up")
	})
	return replica
}

// Sentinel starts a Sentinel that monitors a primary with replicas as "main".
func Sentinel(t T, primary *Server) *Server {
	t.Helper()
	sentinel := start(t, "--sentinel")
	sentinel.Ask("SENTINEL", "MONITOR", "main", "127.0.0.1", primary.Port, 1)
	for _, setting := range []string{"info-period", "publish-period", "ask-period"} {
		sentinel.Ask("SENTINEL", "DEBUG", setting, 250)
	}
	sentinel.Ask("SENTINEL", "SET", "main", "down-after-milliseconds", 5000)
	sentinel.Ask("SENTINEL", "SET", "main", "failover-timeout", 30000)
	Eventually(t, "sentinel knows the replica", func() bool {
		return len(sentinel.Ask("SENTINEL", "REPLICAS", "main").([]any)) > 0
	})
	return sentinel
}

// Cluster starts two primaries that share the slots.
func Cluster(t T) [2]*Server {
	t.Helper()
	var nodes [2]*Server
	for i := range nodes {
		// A node that loses its last slot remains a primary.
		nodes[i] = Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "60000",
			"--cluster-allow-replica-migration", "no")
	}
	nodes[0].Ask("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
	nodes[1].Ask("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
	nodes[1].Ask("CLUSTER", "SET-CONFIG-EPOCH", 2)
	nodes[0].Ask("CLUSTER", "MEET", "127.0.0.1", nodes[1].Port)
	for _, node := range nodes {
		Eventually(t, "a cluster", func() bool {
			info := node.Ask("CLUSTER", "INFO").(string)
			return strings.Contains(info, "cluster_known_nodes:2") && strings.Contains(info, "cluster_state:ok")
		})
	}
	return nodes
}
