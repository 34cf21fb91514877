package redislock

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// watched is a network connection that notices its end also while nobody reads: a goroutine reads on it.
type watched struct {
	net.Conn
	reads net.Conn
	ended chan struct{}
}

func watch(conn net.Conn) *watched {
	reads, fill := net.Pipe()
	w := &watched{Conn: conn, reads: reads, ended: make(chan struct{})}
	go func() {
		_, _ = io.Copy(fill, conn) // Its error is its end, whatever it says.
		close(w.ended)
		_ = fill.Close()
		_ = conn.Close()
	}()
	return w
}

func (w *watched) Read(b []byte) (int, error)        { return w.reads.Read(b) }
func (w *watched) SetReadDeadline(t time.Time) error { return w.reads.SetReadDeadline(t) }

func (w *watched) SetDeadline(t time.Time) error {
	return errors.Join(w.reads.SetReadDeadline(t), w.SetWriteDeadline(t))
}

func (w *watched) Close() error {
	_ = w.reads.Close()
	return w.Conn.Close()
}

// link is one connection to a server: made once, by the caller's options, and never replaced. A session ends with it.
type link struct {
	rdb                *redis.Client
	conn               *redis.Conn
	net                *watched
	mu                 sync.Mutex // one exchange at a time
	isClosed, isDialed atomic.Bool
}

// part is a command of a packet. Where the connection ends inside of the replies, go-redis fails all commands: this one
// keeps a reply that was read before.
type part struct {
	*redis.Cmd
	isRead bool
}

// SetErr is called with nil or the server's error when the reply was read.
func (p *part) SetErr(err error) {
	if !p.isRead {
		p.isRead = err == nil || isReply(err)
		p.Cmd.SetErr(err)
	}
}

// within calls what may not hear that the context ends; unused is given its result then.
func within[T any](ctx context.Context, call func() (T, error), unused func(T)) (T, error) {
	type end struct {
		value T
		err   error
	}
	done := make(chan end, 1)
	go func() {
		value, err := call()
		done <- end{value, err}
	}()
	select {
	case end := <-done:
		return end.value, end.err
	case <-ctx.Done():
		go func() {
			if end := <-done; end.err == nil {
				unused(end.value)
			}
		}()
		var none T
		return none, context.Cause(ctx)
	}
}

// dial connects within the context's time. go-redis retries nothing on a link: its retries add up to many seconds, and
// a release that it sent again would look like a loss.
func dial(ctx context.Context, options *redis.Options) (*link, error) {
	conn, err := within(ctx, func() (net.Conn, error) {
		return options.Dialer(ctx, options.Network, options.Addr)
	}, func(conn net.Conn) { _ = conn.Close() })
	if err != nil {
		return nil, err
	}
	l := &link{net: watch(conn)}
	own := *options
	own.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if l.isDialed.Swap(true) {
			return nil, net.ErrClosed
		}
		return l.net, nil
	}
	own.MaxRetries, own.DialerRetries, own.PoolSize = -1, 1, 1
	own.MinIdleConns, own.MaxIdleConns, own.MaxActiveConns = 0, 0, 0
	own.ConnMaxIdleTime, own.ConnMaxLifetime, own.ConnMaxLifetimeJitter = -1, 0, 0
	own.ReadTimeout, own.WriteTimeout, own.ContextTimeoutEnabled = -1, -1, false
	own.Limiter = nil
	own.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	l.rdb = redis.NewClient(&own)
	l.conn = l.rdb.Conn()
	return l, nil
}

// connect also authenticates and selects the database: what fails here was not sent.
func connect(ctx context.Context, options *redis.Options) (*link, error) {
	l, err := dial(ctx, options)
	if err != nil {
		return nil, err
	}
	ping := redis.NewStatusCmd(ctx, "PING")
	l.exchange(ctx, ping)
	if err := ping.Err(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// exchange sends commands and reads their replies, while the context lasts: after that the link is closed. Then each
// command has its reply or its error.
func (l *link) exchange(until context.Context, commands ...redis.Cmder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer context.AfterFunc(until, l.close)()
	ctx := context.Background()
	if len(commands) == 1 {
		_ = l.conn.Process(ctx, commands[0])
	} else {
		pipe := l.conn.Pipeline()
		for _, command := range commands {
			_ = pipe.Process(ctx, command)
		}
		_, _ = pipe.Exec(ctx)
	}
	for _, command := range commands {
		if f := failureOf(command.Err()); f != nil && f.isSent {
			l.close()
			if until.Err() != nil {
				command.SetErr(context.Cause(until))
			}
		}
	}
}

// ask is exchange of one command, whose reply comes within the limit.
func (l *link) ask(ctx context.Context, limit time.Duration, words ...any) (any, *failure) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoReply)
	defer cancel()
	command := redis.NewCmd(ctx, words...)
	l.exchange(ctx, command)
	return command.Val(), failureOf(command.Err())
}

// close also ends what waits for a reply.
func (l *link) close() {
	if l.isClosed.Swap(true) {
		return
	}
	_ = l.net.Close()
	// Not beside a command that is under way: go-redis is about to return it.
	go func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		_ = l.conn.Close()
		_ = l.rdb.Close()
	}()
}

func (l *link) isEnded() bool {
	select {
	case <-l.net.ended:
		return true
	default:
		return l.isClosed.Load()
	}
}
