package redislock

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client makes locks on one server, the primary behind sentinels, or a cluster. It is safe for use by many goroutines.
//
// It takes the options of a go-redis client, and makes connections of its own by them: one for all requests and one for
// the messages of the server, to each server with locks; one more for each hold of a session, and each wait with
// [WithReplicas], [WithToken] or [AsOwnerOf]. So a pool of one connection is enough, and a lock never waits for a
// connection of the pool. The hooks of the go-redis client are not called, and its retries are not used.
type Client struct {
	servers *servers
	options []Option
	timeout time.Duration // of the caller's sockets; 0: none
	err     error

	ctx   context.Context // ends with Close
	close context.CancelFunc

	mu       sync.Mutex
	cleanups map[chan struct{}]owner // what runs in the background, until it closes the channel
}

var _ io.Closer = (*Client)(nil)

// owner is a token and the first key that it has to do with.
type owner struct{ key, token string }

// New makes a client over a *redis.Client (also of NewFailoverClient) or a *redis.ClusterClient, which stays open and
// the caller's. The options are the defaults of all its locks. Nothing is sent yet.
func New(client redis.UniversalClient, options ...Option) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{options: options, ctx: ctx, close: cancel, cleanups: map[chan struct{}]owner{}}
	c.servers, c.timeout, c.err = serversOf(ctx, client)
	return c
}

// Mutex is held by one owner at a time.
func (c *Client) Mutex(name string, options ...Option) *Lock {
	return c.lock(family{kind: kindMutex, keys: []string{name}}, options)
}

// Reentrant is a mutex that its owner may take again: a further Lock with [AsOwnerOf] a hold of it. It is free after as
// many Unlocks. Without AsOwnerOf each Lock is another owner: nothing is reentrant by accident.
func (c *Client) Reentrant(name string, options ...Option) *Lock {
	return c.lock(family{kind: kindReentrant, keys: []string{name}}, options)
}

// RW is a read/write lock: many readers or one writer. The server serves them in the order of arrival, so that no
// writer starves. With [AsOwnerOf] the writer may take the read side too and keep it, and the only reader may take the
// write side.
func (c *Client) RW(name string, options ...Option) RW { return RW{c, name, options} }

// RW has two sides, each a lock: see [Client.RW].
type RW struct {
	client  *Client
	name    string
	options []Option
}

// Read is the side of the many readers.
func (rw RW) Read(options ...Option) *Lock { return rw.side(kindRead, options) }

// Write is the side of the only writer.
func (rw RW) Write(options ...Option) *Lock { return rw.side(kindWrite, options) }

func (rw RW) side(kind string, options []Option) *Lock {
	return rw.client.lock(family{kind: kind, keys: []string{rw.name}}, append(rw.options[:len(rw.options):len(rw.options)],
		options...))
}

// Semaphore lets out at most limit permits at once, 1 to 1,000,000; each hold has one, or as many as [WithPermits]
// says. The limit of the newest request counts. With [WithSlot] a hold has a number that no other has.
func (c *Client) Semaphore(name string, limit int, options ...Option) *Lock {
	return c.lock(family{kind: kindSemaphore, keys: []string{name}, limit: limit, permits: 1}, options)
}

// Multi is several mutexes, all or none, with one fence: 1 to 128 names, each once. In a cluster they share one slot.
func (c *Client) Multi(names []string, options ...Option) *Lock {
	return c.lock(family{kind: kindMulti, keys: append([]string(nil), names...)}, options)
}

func (c *Client) lock(family family, options []Option) *Lock {
	l := &Lock{client: c, family: family, config: config{lease: defaultLease, isWaiting: true}}
	for _, option := range c.options {
		option(l)
	}
	if family.kind != kindSemaphore { // Permits and slots are defaults of its semaphores.
		l.family.permits, l.family.slots = 0, false
	}
	for _, option := range options {
		option(l)
	}
	return l
}

// Settled returns when no cleanup runs any more: withdrawals of requests whose caller has gone, and releases that go on
// in the background. A program calls it before it ends, or the leases end what is left. Its error is the context's.
func (c *Client) Settled(ctx context.Context) error {
	if c.settled(ctx, func(owner) bool { return true }) != nil {
		return ctx.Err()
	}
	return nil
}

// settled returns when no cleanup of these owners runs.
func (c *Client) settled(ctx context.Context, isOf func(owner) bool) error {
	for {
		var done chan struct{}
		c.mu.Lock()
		for each, of := range c.cleanups {
			if isOf(of) {
				done = each
				break
			}
		}
		c.mu.Unlock()
		if done == nil {
			return nil
		}
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the connections and all that goes on in the background, at once; a dialer that does not hear that its
// context ends has until its DialTimeout. Locks that are held end with their leases, those of a session now. The
// go-redis client stays open. The error is nil: it makes the client an [io.Closer].
func (c *Client) Close() error {
	c.close()
	return nil
}

func (c *Client) usable() error {
	switch {
	case c.err != nil:
		return c.err
	case c.ctx.Err() != nil:
		return ErrClosed
	}
	return nil
}

// limit is how long a reply may take: no longer than the caller's sockets wait.
func (c *Client) limit(limit time.Duration) time.Duration {
	if c.timeout > 0 {
		return min(limit, c.timeout)
	}
	return limit
}

// beside runs work in the background, which the owner's next request waits for.
func (c *Client) beside(of owner, work func()) (done chan struct{}) {
	done = make(chan struct{})
	c.mu.Lock()
	c.cleanups[done] = of
	c.mu.Unlock()
	go func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.cleanups, done)
			close(done)
		}()
		work()
	}()
	return done
}
