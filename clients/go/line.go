package redislock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// line is a connection to a node. Either all requests that get their reply at once share it, and it reconnects; or it
// is dedicated to one request and ends with its connection. Requests that arrive while replies are outstanding are sent
// together afterwards.
type line struct {
	ctx     context.Context
	end     context.CancelFunc
	options *redis.Options
	isOwn   bool

	mu      sync.Mutex
	link    *link // the latest one
	retired *link // not to be used for another packet
	pending []*call
	isBusy  bool
}

func newLine(ctx context.Context, options *redis.Options, isOwn bool) *line {
	l := &line{options: options, isOwn: isOwn}
	l.ctx, l.end = context.WithCancel(ctx)
	return l
}

// call is a packet: commands that are sent together.
type call struct {
	commands []redis.Cmder
	link     *link    // that it was sent over; nil if it was not sent
	unsent   *failure // there was no connection
	done     chan struct{}
}

// send waits until each command has its reply or error, and returns the connection. It fails if there was no
// connection, if no reply came within the limit, after which the connection counts as dead, or if the context ended,
// after which the replies are read and discarded. After a failure the caller must not use the commands any more.
func (l *line) send(ctx context.Context, limit time.Duration, commands []redis.Cmder) (*link, *failure) {
	c := &call{commands: commands, done: make(chan struct{})}
	l.mu.Lock()
	l.pending = append(l.pending, c)
	if !l.isBusy {
		l.isBusy = true
		go l.run()
	}
	l.mu.Unlock()

	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.link, c.unsent
	case <-ctx.Done():
		return nil, l.leave(c, context.Cause(ctx))
	case <-timer.C:
		failed := l.leave(c, fmt.Errorf("%w from %s", errNoReply, l.options.Addr))
		l.drop()
		return nil, failed
	}
}

// leave abandons the packet. The failure says why, or that there is no connection yet.
func (l *line) leave(c *call, why error) *failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.DeleteFunc(l.pending, func(other *call) bool { return other == c })
	if c.link == nil && (l.link == nil || l.link.ctx.Err() != nil) {
		why = fmt.Errorf("redislock: no connection to %s yet", l.options.Addr)
	}
	return &failure{err: why, isSent: c.link != nil}
}

// run sends pending packets until there are none.
func (l *line) run() {
	for l.isNeeded() {
		link, unsent := l.connected()
		var commands []redis.Cmder
		l.mu.Lock()
		batch := l.pending
		l.pending = nil
		for _, c := range batch {
			c.link, commands = link, append(commands, c.commands...)
		}
		l.mu.Unlock()
		if link != nil && len(commands) > 0 {
			link.exchange(commands...) // Without a timeout, because each caller has its own limit.
		}
		for _, c := range batch {
			c.unsent = unsent
			close(c.done)
		}
	}
}

func (l *line) isNeeded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isBusy = len(l.pending) > 0
	if !l.isBusy && l.link != nil && l.link == l.retired {
		l.link.end()
	}
	return l.isBusy
}

// connected returns the link, and connects if there is none.
func (l *line) connected() (*link, *failure) {
	l.mu.Lock()
	current, isRetired := l.link, l.link == l.retired
	l.mu.Unlock()
	switch {
	case current != nil && isRetired:
		current.end()
	case current != nil && current.ctx.Err() == nil:
		return current, nil
	}
	made, err := connect(l.ctx, l.options)
	if err != nil {
		return nil, &failure{err: err}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.link = made
	if l.isOwn {
		context.AfterFunc(made.ctx, l.end)
	}
	return made, nil
}

// retire closes the connection once all packets that were sent over it have their replies. Closing it earlier would
// leave their outcome unknown.
func (l *line) retire(over *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case over == nil || l.link != over:
	case l.isBusy:
		l.retired = over
	default:
		over.end()
	}
}

// drop closes the current connection.
func (l *line) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.link != nil {
		l.link.end()
	}
}

// ask sends one command.
func (l *line) ask(ctx context.Context, limit time.Duration, words ...any) (any, *failure) {
	command := redis.NewCmd(ctx, words...)
	if _, failed := l.send(ctx, limit, []redis.Cmder{command}); failed != nil {
		return nil, failed
	}
	return command.Val(), failureOf(command.Err())
}
