package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// line is a connection to a node. Either all requests that get their reply at once share it, and it reconnects; or it
// is dedicated to one request and ends with its connection.
//
// One packet is in flight at a time. Requests that arrive before its last reply are sent together afterwards, by the
// goroutine that reads. Otherwise the caller itself sends its request. A goroutine always reads, so the end of the
// connection is noticed even while no request waits for a reply.
type line struct {
	ctx     context.Context
	end     context.CancelFunc
	options *redis.Options
	isOwn   bool

	mu      sync.Mutex
	link    *link // the latest one
	retired *link // not to be used for another packet
	pending []*call
	isBusy  bool // connecting, or replies are outstanding
	timer   *time.Timer
	fires   time.Time // when the timer looks for requests without a reply; zero: never
}

func newLine(ctx context.Context, options *redis.Options, isOwn bool) *line {
	l := &line{options: options, isOwn: isOwn}
	l.ctx, l.end = context.WithCancel(ctx)
	return l
}

// call is a request: commands that are sent together.
type call struct {
	packet   []byte
	commands int
	limit    time.Duration // for the reply
	ends     time.Time     // without a reply by then, the connection counts as dead
	link     *link         // that it was sent over; nil if it was not sent
	done     chan struct{} // closed once the fields below are set
	replies  []reply
	one      [1]reply // their memory, for most requests
	unsent   *failure // there was no connection
}

// result waits for the reply to the first command.
func (c *call) result() (any, *failure) {
	<-c.done
	if c.unsent != nil {
		return nil, c.unsent
	}
	return c.replies[0].value, failureOf(c.replies[0].err)
}

// send waits until each command has its reply or error, and returns the connection. It fails if there was no
// connection, if no reply came within the limit, after which the connection counts as dead, or if the context ended,
// after which the replies are read and discarded.
func (l *line) send(ctx context.Context, limit time.Duration, commands ...[]any) ([]reply, *link, *failure) {
	c := &call{packet: make([]byte, 0, 128*len(commands)), commands: len(commands), limit: limit,
		ends: time.Now().Add(limit), done: make(chan struct{})}
	if c.replies = c.one[:0]; len(commands) > len(c.one) {
		c.replies = make([]reply, 0, len(commands))
	}
	for _, words := range commands {
		c.packet = appendCommand(c.packet, words)
	}
	if ctx.Err() != nil { // It would be sent before the end is noticed, and then its outcome would be unknown.
		return nil, nil, l.leave(c, context.Cause(ctx))
	}
	l.begin(c)
	select {
	case <-c.done:
		return c.replies, c.link, c.unsent
	case <-ctx.Done():
		return nil, nil, l.leave(c, context.Cause(ctx))
	}
}

// mostAtOnce is how many bytes a caller writes itself. They fit into the empty buffer of a socket, so the caller cannot
// miss the end of its context.
const mostAtOnce = 4096

// begin sends the request, or has it sent.
func (l *line) begin(c *call) {
	l.mu.Lock()
	l.pending = append(l.pending, c)
	if l.isOwn && l.link == nil {
		c.ends = c.ends.Add(2 * undoFor) // The limits of connecting, which would begin again with the next attempt.
	}
	l.watch(c)
	if l.isBusy {
		l.mu.Unlock()
		return
	}
	link, packet := l.next()
	l.mu.Unlock()
	switch {
	case len(packet) > mostAtOnce:
		go link.write(packet)
	case link != nil:
		link.write(packet)
	}
}

// leave abandons the request. The failure says why, or that there is no connection yet.
func (l *line) leave(c *call, why error) *failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.link != nil {
		return &failure{err: why, isSent: true, left: c}
	}
	l.pending = slices.DeleteFunc(l.pending, func(other *call) bool { return other == c })
	return l.unsent(why)
}

// unsent is the failure of a request that was not sent. The caller holds mu.
func (l *line) unsent(why error) *failure {
	if l.link == nil || l.link.ctx.Err() != nil {
		why = fmt.Errorf("redislock: no connection to %s yet", l.options.Addr)
	}
	return &failure{err: why}
}

// watch arms the timer, of which all requests share one. It is not reset when a reply comes, so it rarely fires, and a
// request costs no timer. The caller holds mu.
func (l *line) watch(c *call) {
	switch {
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Until(c.ends), l.expire)
	case l.fires.IsZero() || c.ends.Before(l.fires):
		l.timer.Reset(time.Until(c.ends))
	default:
		return
	}
	l.fires = c.ends
}

// expire ends the connection if a request has had no reply within its limit.
func (l *line) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	why := fmt.Errorf("%w from %s", errNoReply, l.options.Addr)
	now, isDead := time.Now(), false
	isLate := func(c *call) bool {
		if c.ends.After(now) {
			l.watch(c)
			return false
		}
		isDead = true
		return true
	}
	l.fires = time.Time{}
	if l.link != nil {
		for _, c := range l.link.outstanding {
			isLate(c)
		}
	}
	l.pending = slices.DeleteFunc(l.pending, func(c *call) bool {
		if !isLate(c) {
			return false
		}
		c.unsent = l.unsent(why)
		close(c.done)
		return true
	})
	if isDead && l.link != nil {
		l.link.end(why)
	}
}

// next returns the packet of all pending requests, or connects first. No reply is outstanding, and the caller holds mu.
func (l *line) next() (over *link, packet []byte) {
	isUsable := l.link != nil && l.link.ctx.Err() == nil && l.link != l.retired
	if !isUsable && l.link != nil {
		l.link.end(net.ErrClosed)
	}
	l.isBusy = len(l.pending) > 0
	switch {
	case !l.isBusy:
		return nil, nil
	case !isUsable:
		go l.connect()
		return nil, nil
	}
	l.link.outstanding, l.pending = l.pending, nil
	for _, c := range l.link.outstanding {
		c.link = l.link
	}
	if len(l.link.outstanding) == 1 {
		return l.link, l.link.outstanding[0].packet
	}
	for _, c := range l.link.outstanding {
		packet = append(packet, c.packet...)
	}
	return l.link, packet
}

// connect makes a connection for the pending requests, and then reads from it.
func (l *line) connect() {
	made, err := connect(l.ctx, l.options)
	l.mu.Lock()
	if err != nil {
		for _, c := range l.pending {
			c.unsent = &failure{err: err}
			close(c.done)
		}
		l.pending, l.isBusy = nil, false
		l.mu.Unlock()
		return
	}
	l.link = made
	if l.isOwn {
		context.AfterFunc(made.ctx, l.end)
		for _, c := range l.pending {
			c.ends = time.Now().Add(c.limit)
			l.watch(c)
		}
	}
	_, packet := l.next()
	l.mu.Unlock()
	l.read(made, packet)
}

// read reads the replies of each packet, and sends the next one, until the connection ends.
func (l *line) read(from *link, packet []byte) {
	for {
		if len(packet) > 0 {
			from.write(packet)
		}
		value, err := from.read()
		if err != nil && err != redis.Nil && !isReply(err) {
			l.failed(from, err)
			return
		}
		packet = l.received(from, reply{value, err})
	}
}

// received returns the next packet after the last outstanding reply.
func (l *line) received(from *link, got reply) (packet []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(from.outstanding) == 0 {
		from.end(errors.New("redislock: a reply to no request"))
		return nil
	}
	c := from.outstanding[0]
	if c.replies = append(c.replies, got); len(c.replies) < c.commands {
		return nil
	}
	close(c.done)
	if from.outstanding = from.outstanding[1:]; len(from.outstanding) > 0 {
		return nil
	}
	from.outstanding = nil // Not to keep the request in memory.
	_, packet = l.next()
	return packet
}

// failed gives each command without a reply an error, and connects again if requests are pending.
func (l *line) failed(from *link, why error) {
	from.end(why)
	if cause := context.Cause(from.ctx); cause != context.Canceled { // The reason to close it, if there was one.
		why = cause
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	left := from.outstanding
	from.outstanding = nil
	for _, c := range left {
		for len(c.replies) < c.commands {
			c.replies = append(c.replies, reply{err: ended(l.options.Addr, why)})
		}
		close(c.done)
	}
	if len(left) > 0 {
		l.next()
	}
}

// retire closes the connection once all requests that were sent over it have their replies. Closing it earlier would
// leave their outcome unknown.
func (l *line) retire(over *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case over == nil || l.link != over:
	case l.isBusy:
		l.retired = over
	default:
		over.end(net.ErrClosed)
	}
}

// ask sends one command.
func (l *line) ask(ctx context.Context, limit time.Duration, words ...any) (any, *failure) {
	got, _, failed := l.send(ctx, limit, words)
	if failed != nil {
		return nil, failed
	}
	return got[0].value, failureOf(got[0].err)
}
