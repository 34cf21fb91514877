package redislock

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client creates locks on a single server, on the primary behind sentinels, or on a cluster. It is safe for concurrent
// use by multiple goroutines.
//
// A Client opens separate connections with the options of the go-redis client: to each server with locks, one for all
// requests and one for the server's messages; one more for each hold with [WithSession], and for each wait with
// [WithReplicas], [WithToken] or [AsOwnerOf]. So a pool of one connection is enough, and a lock never waits for a
// connection of the pool. The hooks and retries of the go-redis client are not used.
type Client struct {
	servers *servers
	options []Option
	timeout time.Duration // of the caller's sockets; 0: none
	err     error

	ctx   context.Context // ends with Close
	close context.CancelFunc

	mu       sync.Mutex
	cleanups map[chan struct{}]owner // running in the background; each closes its channel at the end
}

var _ io.Closer = (*Client)(nil)

// owner is a token and the first key of its request or hold.
type owner struct{ key, token string }

// New creates a Client over a *redis.Client (including one of NewFailoverClient) or a *redis.ClusterClient, which the
// caller still owns and closes. The options are the defaults of all locks of the Client. New sends nothing.
func New(client redis.UniversalClient, options ...Option) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{options: options, ctx: ctx, close: cancel, cleanups: map[chan struct{}]owner{}}
	c.servers, c.timeout, c.err = serversOf(ctx, client)
	return c
}

// Mutex returns a lock that one owner holds at a time.
func (c *Client) Mutex(name string, options ...Option) *Lock {
	return c.lock(lockType{kind: kindMutex, keys: []string{name}}, options)
}

// Reentrant returns a mutex that its owner may acquire again, by a further Lock with [AsOwnerOf] one of its holds. It
// is free after as many Unlocks. Without AsOwnerOf each Lock is a new owner, so nothing is reentrant by accident.
func (c *Client) Reentrant(name string, options ...Option) *Lock {
	return c.lock(lockType{kind: kindReentrant, keys: []string{name}}, options)
}

// RW returns a read/write lock: many readers or one writer. The server serves them in order of arrival, so writers do
// not starve. With [AsOwnerOf] the writer may acquire the read side as well and keep it, and the only reader may
// acquire the write side.
func (c *Client) RW(name string, options ...Option) RW { return RW{c, name, options} }

// RW is a read/write lock, with one [Lock] for each side. See [Client.RW].
type RW struct {
	client  *Client
	name    string
	options []Option
}

// Read returns the lock of the readers, which any number of owners hold at once.
func (rw RW) Read(options ...Option) *Lock { return rw.side(kindRead, options) }

// Write returns the lock of the writer, which excludes all other owners.
func (rw RW) Write(options ...Option) *Lock { return rw.side(kindWrite, options) }

func (rw RW) side(kind string, options []Option) *Lock {
	all := append(rw.options[:len(rw.options):len(rw.options)], options...)
	return rw.client.lock(lockType{kind: kind, keys: []string{rw.name}}, all)
}

// Semaphore returns a lock of which at most limit permits, from 1 to 1,000,000, are held at once. Each hold has one
// permit, or as many as [WithPermits] says. The limit of the latest request applies. With [WithSlot] each hold has a
// number that no other hold has.
func (c *Client) Semaphore(name string, limit int, options ...Option) *Lock {
	return c.lock(lockType{kind: kindSemaphore, keys: []string{name}, limit: limit, permits: 1}, options)
}

// Multi returns a lock of multiple mutexes that are acquired together, all or none, with one fencing token. It takes 1
// to 128 different names. In a cluster all of them must hash to one slot.
func (c *Client) Multi(names []string, options ...Option) *Lock {
	return c.lock(lockType{kind: kindMulti, keys: append([]string(nil), names...)}, options)
}

func (c *Client) lock(lockType lockType, options []Option) *Lock {
	l := &Lock{client: c, lockType: lockType, config: config{lease: defaultLease, isWaiting: true}}
	for _, option := range c.options {
		option(l)
	}
	if lockType.kind != kindSemaphore { // The client's defaults for permits and slots only apply to semaphores.
		l.lockType.permits, l.lockType.slots = 0, false
	}
	for _, option := range options {
		option(l)
	}
	return l
}

// Settled waits until no cleanup is running: withdrawals of cancelled requests, and releases that go on in the
// background. Call it before the program exits; otherwise what is left stays until its lease expires. If the context
// ends first, Settled returns its error.
func (c *Client) Settled(ctx context.Context) error {
	if c.settled(ctx, func(owner) bool { return true }) != nil {
		return ctx.Err()
	}
	return nil
}

// settled waits until no cleanup of these owners is running.
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

// Close closes the connections and stops all background work at once, except a dialer that ignores its context, which
// has until its DialTimeout. Locks that are held stay held until their leases expire; those of a session are released
// now. The go-redis client stays open. The error is always nil; it makes the Client an [io.Closer].
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

// limit returns how long a reply may take: no longer than the ReadTimeout of the go-redis client.
func (c *Client) limit(limit time.Duration) time.Duration {
	if c.timeout > 0 {
		return min(limit, c.timeout)
	}
	return limit
}

// inBackground runs work in the background. The owner's next request waits for it, but not for ready, which runs
// before it and may itself wait for a request of the owner.
func (c *Client) inBackground(of owner, ready, work func()) (done chan struct{}) {
	done = make(chan struct{})
	set := func(of owner) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cleanups[done] = of
	}
	if ready == nil {
		set(of)
	} else {
		set(owner{})
	}
	go func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.cleanups, done)
			close(done)
		}()
		if ready != nil {
			ready()
			set(of)
		}
		work()
	}()
	return done
}
