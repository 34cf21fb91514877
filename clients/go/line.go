package redislock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// line is a connection to a node that is made anew after its end: the one that all requests share which are answered at
// once, or one of a request's own. While replies are under way, further requests gather, and go out together.
type line struct {
	options *redis.Options
	// ended is told of each end of the connection: requests that were queued over it have left the queue.
	ended func()

	mu       sync.Mutex
	link     *link
	pending  []*call
	isBusy   bool
	isClosed bool
}

// call is a packet: commands that go out one behind the other.
type call struct {
	commands []redis.Cmder
	isSent   bool
	unsent   *failure // there was no connection
	done     chan struct{}
}

// send returns when each command has its reply or error. The failure is one without any: there was no connection; or no
// reply came within the limit, after which the connection counts as dead, and while the context lasts, after which the
// replies are read and thrown away, and the commands are not the caller's any more.
func (l *line) send(ctx context.Context, limit time.Duration, commands []redis.Cmder) *failure {
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
		return c.unsent
	case <-ctx.Done():
		return &failure{err: context.Cause(ctx), isSent: l.leave(c)}
	case <-timer.C:
		isSent := l.leave(c)
		l.drop()
		return &failure{err: errNoReply, isSent: isSent}
	}
}

// leave is true if the packet was sent.
func (l *line) leave(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.DeleteFunc(l.pending, func(other *call) bool { return other == c })
	return c.isSent
}

// run sends what gathers, until there is nothing.
func (l *line) run() {
	for l.isNeeded() {
		link, unsent := l.connected()
		var commands []redis.Cmder
		l.mu.Lock()
		batch := l.pending
		l.pending = nil
		for _, c := range batch {
			c.isSent, commands = link != nil, append(commands, c.commands...)
		}
		l.mu.Unlock()
		if link != nil && len(commands) > 0 {
			link.exchange(context.Background(), commands...) // Each caller has its limit.
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
	return l.isBusy
}

// current is the latest link, which may have ended; nil: none was made.
func (l *line) current() *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.link
}

// connected is the link, made anew where there is none.
func (l *line) connected() (*link, *failure) {
	if current := l.current(); current != nil && !current.isEnded() {
		return current, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), undoFor)
	defer cancel()
	made, err := connect(ctx, l.options)
	if err != nil {
		return nil, &failure{err: err}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		made.close()
		return nil, &failure{err: ErrClosed}
	}
	l.link = made
	go func() {
		<-made.net.ended
		l.ended()
	}()
	return made, nil
}

// drop ends the connection that there is.
func (l *line) drop() {
	if current := l.current(); current != nil {
		current.close()
	}
}

func (l *line) close() {
	l.mu.Lock()
	l.isClosed = true
	l.mu.Unlock()
	l.drop()
}
