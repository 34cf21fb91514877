package redislock

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// link is one connection to a server: made once, by the caller's options, and never replaced. It notices its end also
// while no request waits for a reply, since a goroutine reads on it.
type link struct {
	ctx context.Context // ends with the connection
	end context.CancelFunc
	rdb *redis.Client
	// conn has the connection of rdb to itself: newer versions of go-redis would take another one for a pipeline, and
	// hide why the handshake of the first one has failed.
	conn *redis.Conn
	mu   sync.Mutex // held while commands are under way
}

// watched is what go-redis has of the connection.
type watched struct {
	net.Conn
	reads net.Conn
}

func (w watched) Read(b []byte) (int, error)        { return w.reads.Read(b) }
func (w watched) SetReadDeadline(t time.Time) error { return w.reads.SetReadDeadline(t) }

// dial connects, and no more than that: go-redis makes its handshake with the first command. It retries nothing on a
// link: its retries add up to many seconds, and a release that it sent again would look like a loss.
func dial(ctx context.Context, options *redis.Options) (*link, error) {
	limited, cancel := context.WithTimeoutCause(ctx, undoFor, errNoReply)
	defer cancel()
	conn, err := options.Dialer(limited, options.Network, options.Addr)
	if err != nil {
		return nil, err
	}
	l := &link{}
	l.ctx, l.end = context.WithCancel(ctx)
	reads, fill := net.Pipe()
	go func() {
		_, _ = io.Copy(fill, conn) // Its error is its end, whatever it says.
		l.end()
	}()
	own, isDialed := *options, atomic.Bool{}
	own.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if isDialed.Swap(true) {
			return nil, net.ErrClosed
		}
		return watched{conn, reads}, nil
	}
	own.MaxRetries, own.DialerRetries, own.PoolSize = -1, 1, 1
	own.MinIdleConns, own.MaxIdleConns, own.MaxActiveConns = 0, 0, 0
	own.ConnMaxIdleTime, own.ConnMaxLifetime, own.ConnMaxLifetimeJitter = -1, 0, 0
	own.ReadTimeout, own.WriteTimeout, own.ContextTimeoutEnabled = -1, -1, false
	own.Limiter = nil
	own.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	l.rdb = redis.NewClient(&own)
	l.conn = l.rdb.Conn()
	context.AfterFunc(l.ctx, func() {
		_, _ = conn.Close(), fill.Close()
		l.mu.Lock() // go-redis logs that a connection is closed beside its command.
		defer l.mu.Unlock()
		_ = l.rdb.Close()
	})
	return l, nil
}

// connect also authenticates and selects the database: what fails here was not sent.
func connect(ctx context.Context, options *redis.Options) (*link, error) {
	l, err := dial(ctx, options)
	if err != nil {
		return nil, err
	}
	limit := time.AfterFunc(undoFor, l.end)
	ping := redis.NewStatusCmd(ctx, "PING")
	l.exchange(ping)
	err = ping.Err()
	isLate := !limit.Stop()
	switch {
	case err == nil:
		return l, nil
	case isLate:
		err = fmt.Errorf("%w from %s, which has accepted the connection", errNoReply, options.Addr)
	}
	l.end()
	return nil, err
}

// exchange sends commands and reads their replies. Then each command has its reply or its error.
func (l *link) exchange(commands ...redis.Cmder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, pipe := context.Background(), l.conn.Pipeline()
	for _, command := range commands {
		_ = pipe.Process(ctx, command)
	}
	_, err := pipe.Exec(ctx)
	// Where it has no connection, and would try again, go-redis gives the commands no error.
	isLeft := err != nil && !slices.ContainsFunc(commands, func(each redis.Cmder) bool { return each.Err() != nil })
	for _, command := range commands {
		if isLeft {
			command.SetErr(err)
		}
		if failed := failureOf(command.Err()); failed != nil && failed.isSent {
			l.end()
			command.SetErr(fmt.Errorf("redislock: the connection to %s ended: %w", l.rdb.Options().Addr, failed.err))
		}
	}
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
