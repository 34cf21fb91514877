package redislock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// line is the connection to a node that all requests share which are answered at once. While replies are under way,
// further requests gather, and go out together.
type line struct {
	options *redis.Options
	// interrupted is told of each end of the connection: requests that were queued over it have left the queue.
	interrupted func()

	mu       sync.Mutex
	link     *link
	pending  []*call
	isBusy   bool
	isClosed bool
}

// call is a packet: commands that go out one behind the other.
type call struct {
	commands []redis.Cmder
	limit    time.Duration
	isSent   bool
	unsent   *failure // there was no connection
	done     chan struct{}
}

// mostTogether limits how many packets go out together.
const mostTogether = 1000

// send returns when each command has its reply or error. The failure is one without any: there was no connection; or no
// reply came within the limit, after which the connection counts as dead, and while the context lasts, after which the
// replies are read and thrown away, and the commands are not the caller's any more.
func (l *line) send(ctx context.Context, limit time.Duration, commands []redis.Cmder) *failure {
	c := &call{commands: commands, limit: limit, done: make(chan struct{})}
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
		l.drop(nil)
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
		limit, commands := late, []redis.Cmder(nil)
		l.mu.Lock()
		batch := l.pending[:min(len(l.pending), mostTogether)]
		l.pending = l.pending[len(batch):]
		for _, c := range batch {
			c.isSent, limit, commands = link != nil, min(limit, c.limit), append(commands, c.commands...)
		}
		l.mu.Unlock()
		if link != nil && len(commands) > 0 {
			link.exchange(context.Background(), limit, commands...)
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

// connected is the link, made anew where there is none.
func (l *line) connected() (*link, *failure) {
	l.mu.Lock()
	current, isClosed := l.link, l.isClosed
	l.mu.Unlock()
	switch {
	case isClosed:
		return nil, &failure{err: ErrClosed}
	case current != nil && !current.isEnded():
		return current, nil
	}
	l.drop(current)
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
		l.drop(made)
	}()
	return made, nil
}

// drop closes the link, or whichever there is.
func (l *line) drop(ended *link) {
	l.mu.Lock()
	if ended == nil {
		ended = l.link
	}
	isCurrent := ended != nil && l.link == ended
	if isCurrent {
		l.link = nil
	}
	l.mu.Unlock()
	if isCurrent {
		ended.close()
		l.interrupted()
	}
}

func (l *line) close() {
	l.mu.Lock()
	l.isClosed = true
	l.mu.Unlock()
	l.drop(nil)
}
