package redislock

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// node is one server: its shared connection, and its messages.
type node struct {
	options *redis.Options
	line    line
	inbox   inbox
}

func newNode(options *redis.Options, isSharded bool) *node {
	n := &node{options: options}
	n.inbox.options, n.inbox.isSharded = options, isSharded
	n.line.options, n.line.interrupted = options, n.inbox.interrupt
	return n
}

func (n *node) close() {
	n.line.close()
	n.inbox.close()
}

// servers routes the commands of a key: to the only server, the primary that the sentinels name, or the node that has
// the key's slot.
type servers struct {
	single  *node
	cluster *redis.ClusterClient
	channel string // of messages, its beginning

	mu    sync.Mutex
	nodes map[string]*node
	moved map[int]string // by slot: what a node said, and the map of go-redis may not have yet
	tags  map[int]string
}

func serversOf(client redis.UniversalClient) (*servers, error) {
	s := &servers{channel: "redislock:" + randomHex(), nodes: map[string]*node{}, moved: map[int]string{},
		tags: map[int]string{}}
	switch client := client.(type) {
	case *redis.Client:
		s.single = newNode(client.Options(), false)
	case *redis.ClusterClient:
		s.cluster = client
	default:
		return nil, usage("a %T is neither a *redis.Client nor a *redis.ClusterClient", client)
	}
	return s, nil
}

// nodeOf is the node for a key; address, where a node has named another one (ASK).
func (s *servers) nodeOf(ctx context.Context, key, address string) (*node, error) {
	if s.single != nil {
		return s.single, nil
	}
	s.mu.Lock()
	if address == "" {
		address = s.moved[slotOf(key)]
	}
	found := s.nodes[address]
	s.mu.Unlock()
	if found != nil {
		return found, nil
	}
	ctx, cancel := context.WithTimeout(ctx, undoFor)
	defer cancel()
	type end struct {
		client *redis.Client
		err    error
	}
	done := make(chan end, 1)
	// go-redis asks the nodes one after another, and does not hear that the context ends.
	go func() {
		client, err := s.cluster.MasterForKey(ctx, key)
		done <- end{client, err}
	}()
	select {
	case end := <-done:
		if end.err != nil {
			return nil, end.err
		}
		return s.named(address, end.client.Options()), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// named is the node at an address; without one, at that of the options.
func (s *servers) named(address string, options *redis.Options) *node {
	if address == "" {
		address = options.Addr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.nodes[address]; found != nil {
		return found
	}
	own := *options
	own.Addr = address
	s.nodes[address] = newNode(&own, true)
	return s.nodes[address]
}

// note learns from a failure where to send the next request: the address for that one alone (ASK), or nothing.
func (s *servers) note(n *node, key string, f *failure) (address string) {
	if s.cluster == nil {
		if code := f.code(); f.isTransient() && (code == "READONLY" || code == "MASTERDOWN" || code == "UNBLOCKED") {
			// The sentinels are asked for the primary at each new connection.
			n.line.drop(nil)
			n.inbox.suspect()
		}
		return ""
	}
	code, rest := f.words()
	switch code {
	case "MOVED", "ASK":
		slot, address, _ := strings.Cut(rest, " ")
		if strings.HasPrefix(address, ":") {
			// An empty host is that of the node which answered.
			host, _, _ := strings.Cut(n.options.Addr, ":")
			address = host + address
		}
		if code == "ASK" {
			return address
		}
		s.cluster.ReloadState(context.Background())
		if number, err := strconv.Atoi(slot); err == nil {
			s.mu.Lock()
			s.moved[number] = address
			s.mu.Unlock()
		}
	case "READONLY", "MASTERDOWN", "UNBLOCKED", "CLUSTERDOWN", "":
		// The node may be gone, or be a replica by now.
		s.cluster.ReloadState(context.Background())
		s.mu.Lock()
		for slot, address := range s.moved {
			if address == n.options.Addr {
				delete(s.moved, slot)
			}
		}
		s.mu.Unlock()
	}
	return ""
}

// channelOf is the channel for messages about a key.
func (s *servers) channelOf(key string) string {
	if s.cluster == nil {
		return s.channel
	}
	slot := slotOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	tag, found := s.tags[slot]
	for number := 0; !found; number++ {
		tag = strconv.Itoa(number)
		found = slotOf(tag) == slot
	}
	s.tags[slot] = tag
	return s.channel + ":{" + tag + "}"
}

func (s *servers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.single != nil {
		s.single.close()
	}
	for _, n := range s.nodes {
		n.close()
	}
}

// slotOf is a key's slot in a cluster: CRC16 (XMODEM) of its tag, modulo 16,384.
func slotOf(key string) int {
	if _, behind, found := strings.Cut(key, "{"); found {
		if tag, _, found := strings.Cut(behind, "}"); found && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}

// route sends the commands of one key.
type route struct {
	client *Client
	key    string
	asked  string // the node for the next request only: the slot is on its way there
	// isOwn: over a connection of its own, which is made anew after a failure.
	isOwn  bool
	link   *link
	linked *node
}

func (r *route) send(ctx context.Context, limit time.Duration, words []any) (any, *failure) {
	command := redis.NewCmd(ctx, words...)
	failed := r.process(ctx, limit, command)
	if failed != nil {
		return nil, failed
	}
	return command.Val(), nil
}

func (r *route) process(ctx context.Context, limit time.Duration, command *redis.Cmd) *failure {
	n, asked, failed := r.node(ctx)
	if failed != nil {
		return failed
	}
	limit = r.client.limit(limit)
	if r.isOwn {
		failed = r.sendOwn(ctx, n, limit, command, asked != "")
	} else {
		failed = n.line.send(ctx, limit, command, asked != "")
	}
	if failed != nil && ctx.Err() == nil {
		r.asked = r.client.servers.note(n, r.key, failed)
	}
	return failed
}

func (r *route) sendOwn(ctx context.Context, n *node, limit time.Duration, command *redis.Cmd, isAsking bool) *failure {
	if r.link == nil || r.link.isEnded() || r.linked != n {
		r.close()
		connecting, cancel := context.WithTimeout(ctx, undoFor)
		defer cancel()
		made, err := connect(connecting, n.options)
		if err != nil {
			return &failure{err: err}
		}
		r.link, r.linked = made, n
	}
	commands := []redis.Cmder{command}
	if isAsking {
		commands = []redis.Cmder{redis.NewCmd(ctx, "ASKING"), command}
	}
	failed := r.link.exchange(ctx, limit, commands...)
	if failed == nil {
		failed = failureOf(command.Err())
	}
	if failed != nil && failed.isTransient() {
		r.close()
	}
	return failed
}

// close ends the connection of its own.
func (r *route) close() {
	if r.link != nil {
		r.link.close()
		r.link = nil
	}
}

func (r *route) node(ctx context.Context) (*node, string, *failure) {
	if err := r.client.usable(); err != nil {
		return nil, "", &failure{err: err}
	}
	asked := r.asked
	r.asked = ""
	n, err := r.client.servers.nodeOf(ctx, r.key, asked)
	if err != nil {
		return nil, "", &failure{err: err}
	}
	return n, asked, nil
}
