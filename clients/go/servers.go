package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// node is one server, with its shared connection and its inbox.
type node struct {
	line  *line
	inbox inbox
}

func newNode(ctx context.Context, options *redis.Options, isSharded bool) *node {
	return &node{newLine(ctx, options, false),
		inbox{ctx: ctx, options: options, isSharded: isSharded, waiters: map[string]chan notice{}}}
}

// servers routes the commands of a key to the single server, to the primary that the sentinels name, or to the node
// that has the key's slot.
type servers struct {
	ctx     context.Context // ends all connections
	single  *node
	cluster *redis.ClusterClient
	channel string // prefix of the channels for messages

	mu    sync.Mutex
	nodes map[string]*node
}

// serversOf also returns the ReadTimeout of the caller's client.
func serversOf(ctx context.Context, client redis.UniversalClient) (*servers, time.Duration, error) {
	s := &servers{ctx: ctx, channel: "redislock:" + randomHex(), nodes: map[string]*node{}}
	switch client := client.(type) {
	case *redis.Client:
		s.single = newNode(ctx, client.Options(), false)
		return s, client.Options().ReadTimeout, nil
	case *redis.ClusterClient:
		s.cluster = client
		return s, client.Options().ReadTimeout, nil
	}
	return s, 0, usage("a %T is neither a *redis.Client nor a *redis.ClusterClient", client)
}

// nodeOf returns the node for a key, or that at the address to which a node has redirected.
func (s *servers) nodeOf(ctx context.Context, key, address string) (*node, error) {
	if s.single != nil {
		return s.single, nil
	}
	ctx, cancel := context.WithTimeout(ctx, undoFor)
	defer cancel()
	found, failed := make(chan *redis.Client, 1), make(chan error, 1)
	go func() { // go-redis asks the nodes one after another, and ignores the end of the context.
		if client, err := s.cluster.MasterForKey(ctx, key); err == nil {
			found <- client
		} else {
			failed <- err
		}
	}()
	select {
	case client := <-found:
		return s.named(address, *client.Options()), nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, errNoNode
	}
}

var errNoNode = errors.New("redislock: no node of the cluster has replied yet")

// named returns the node at an address; without one, at that of the options.
func (s *servers) named(address string, own redis.Options) *node {
	own.Addr = cmp.Or(address, own.Addr)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[own.Addr] == nil {
		s.nodes[own.Addr] = newNode(s.ctx, &own, true)
	}
	return s.nodes[own.Addr]
}

// note updates the routing after a failure. address is where to send the next request only; it may be empty. over is
// the connection on which the error came, nil if there was none.
func (s *servers) note(n *node, over *link, f *failure) (address string, isAsking bool) {
	code, rest := f.words()
	switch code {
	case "MOVED", "ASK":
		_, address, _ = strings.Cut(rest, " ")
		if strings.HasPrefix(address, ":") {
			// An empty host stands for that of the node which replied.
			host, _, _ := strings.Cut(n.line.options.Addr, ":")
			address = host + address
		}
		if code == "ASK" {
			return address, true
		}
	case "READONLY", "MASTERDOWN", "UNBLOCKED":
		if s.cluster == nil && f.isTransient() {
			// Each new connection asks the sentinels for the primary.
			n.line.retire(over)
			// Not wrapped, because the reply was to another request.
			n.inbox.suspect(fmt.Errorf("redislock: the subscription at %s was closed: %v", n.line.options.Addr, f.err))
		}
	case "CLUSTERDOWN", "": // The node may be gone.
	default:
		return "", false
	}
	if s.cluster != nil {
		s.cluster.ReloadState(context.Background())
	}
	return address, false
}

// channelOf returns the channel for messages about a key.
func (s *servers) channelOf(key string) string {
	if s.cluster == nil {
		return s.channel
	}
	return s.channel + ":{" + strconv.Itoa(int(tags()[slotOf(key)])) + "}"
}

const slots = 16384

// tags maps each slot to a number that hashes to it, for the tag of a channel. Finding all of them takes about ten
// milliseconds, once; searching for one takes one or two.
var tags = sync.OnceValue(func() *[slots]uint32 {
	numbers, found := new([slots]uint32), 0
	for number := uint32(1); found < slots; number++ {
		if slot := slotOf(strconv.Itoa(int(number))); numbers[slot] == 0 {
			numbers[slot] = number
			found++
		}
	}
	return numbers
})

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
	return int(crc % slots)
}

// route sends the requests of one key.
type route struct {
	client *Client
	key    string
	// next is the node for the next request only, from a redirection. isAsking: the slot is moving there.
	next     string
	isAsking bool
	// isOwn: use own, a dedicated connection to this node.
	isOwn bool
	own   *line
	to    *node
	// over is the connection of the last packet, nil if that was not sent. A request that was queued over it leaves the
	// queue when it ends.
	over *link
}

func (r *route) send(ctx context.Context, limit time.Duration, words []any) (any, *failure) {
	got, failed := r.packet(ctx, r.client.limit(limit), words)
	if failed != nil {
		return nil, failed
	}
	return got[0].value, nil
}

// packet sends commands together. It returns the failure of the first one; if there is none, the others have their
// replies or errors.
func (r *route) packet(ctx context.Context, limit time.Duration, commands ...[]any) ([]reply, *failure) {
	r.over = nil
	n, failed := r.node(ctx)
	if failed != nil {
		return nil, failed
	}
	isAsking := r.isAsking
	if isAsking {
		var all [][]any
		for _, words := range commands {
			all = append(all, []any{"ASKING"}, words)
		}
		commands = all
	}
	r.next, r.isAsking = "", false
	l := n.line
	if r.isOwn {
		if r.own == nil || r.to != n {
			r.close()
			r.own, r.to = newLine(r.client.ctx, n.line.options, true), n
		}
		l = r.own
	}
	var got []reply
	if got, r.over, failed = l.send(ctx, limit, commands...); failed == nil {
		if isAsking {
			for i := range len(got) / 2 {
				got[i] = got[2*i+1]
			}
		}
		failed = failureOf(got[0].err)
	}
	if failed != nil && r.client.servers.single != nil {
		failed = failed.ofClusterNode()
	}
	if failed != nil && ctx.Err() == nil {
		r.next, r.isAsking = r.client.servers.note(n, r.over, failed)
	}
	if failed != nil && failed.isTransient() {
		r.close()
	}
	return got, failed
}

// close closes the dedicated connection, if there is one.
func (r *route) close() {
	if r.own != nil {
		r.own.end()
		r.own = nil
	}
}

func (r *route) node(ctx context.Context) (*node, *failure) {
	if err := r.client.usable(); err != nil {
		return nil, &failure{err: err}
	}
	n, err := r.client.servers.nodeOf(ctx, r.key, r.next)
	if err != nil {
		return nil, &failure{err: err}
	}
	return n, nil
}
