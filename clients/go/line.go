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

// call is one request; with isAsking, behind ASKING.
type call struct {
	command  *redis.Cmd
	isAsking bool
	limit    time.Duration
	isSent   bool
	failure  *failure
	done     chan struct{}
}

// mostTogether limits how many requests go out together.
const mostTogether = 1000

// send returns the reply within the limit, after which the connection counts as dead, and while the context lasts,
// after which the reply is read and thrown away.
func (l *line) send(ctx context.Context, limit time.Duration, command *redis.Cmd, isAsking bool) *failure {
	c := &call{command: command, isAsking: isAsking, limit: limit, done: make(chan struct{})}
	l.mu.Lock()
	if l.isClosed {
		l.mu.Unlock()
		return &failure{err: ErrClosed}
	}
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
		return c.failure
	case <-ctx.Done():
		return &failure{err: context.Cause(ctx), isSent: l.leave(c)}
	case <-timer.C:
		isSent := l.leave(c)
		l.drop(nil)
		return &failure{err: errNoReply, isSent: isSent}
	}
}

// leave is true if the request was sent.
func (l *line) leave(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.DeleteFunc(l.pending, func(other *call) bool { return other == c })
	return c.isSent
}

// run sends what gathers, until there is nothing.
func (l *line) run() {
	for {
		link, failed := l.connected()
		l.mu.Lock()
		batch := l.pending[:min(len(l.pending), mostTogether)]
		l.pending = l.pending[len(batch):]
		if len(batch) == 0 {
			l.isBusy = false
			l.mu.Unlock()
			return
		}
		for _, c := range batch {
			c.isSent = link != nil
		}
		l.mu.Unlock()
		if link != nil {
			failed = exchangeAll(link, batch)
		}
		if failed != nil && link != nil {
			l.drop(link)
		}
		for _, c := range batch {
			if failed != nil {
				c.failure = failed
			} else {
				c.failure = failureOf(c.command.Err())
			}
			close(c.done)
		}
	}
}

func exchangeAll(link *link, batch []*call) *failure {
	limit := late
	commands := make([]redis.Cmder, 0, len(batch))
	for _, c := range batch {
		limit = min(limit, c.limit)
		if c.isAsking {
			commands = append(commands, redis.NewCmd(context.Background(), "ASKING"))
		}
		commands = append(commands, c.command)
	}
	return link.exchange(context.Background(), limit, commands...)
}

// connected is the link, made anew where there is none. It makes none for nothing.
func (l *line) connected() (*link, *failure) {
	l.mu.Lock()
	current, isNeeded := l.link, len(l.pending) > 0 && !l.isClosed
	l.mu.Unlock()
	if current != nil && !current.isEnded() {
		return current, nil
	}
	if !isNeeded {
		return nil, &failure{err: ErrClosed}
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
	if ended == nil {
		l.mu.Unlock()
		return
	}
	isCurrent := l.link == ended
	if isCurrent {
		l.link = nil
	}
	l.mu.Unlock()
	ended.close()
	if isCurrent {
		l.interrupted()
	}
}

func (l *line) close() {
	l.mu.Lock()
	l.isClosed = true
	l.mu.Unlock()
	l.drop(nil)
}
