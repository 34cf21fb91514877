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

// link is one connection to a server, opened with the caller's options and never replaced. A goroutine always reads on
// it, so it notices its end even while no request waits for a reply.
type link struct {
	ctx context.Context // ends with the connection
	end context.CancelFunc
	rdb *redis.Client
	// conn is the connection of rdb. Without it, newer versions of go-redis would open another one for a pipeline, which
	// hides why the handshake of the first one failed.
	conn *redis.Conn
	mu   sync.Mutex // held while commands are outstanding
}

// watched is the connection as go-redis sees it: it reads from a pipe.
type watched struct {
	net.Conn
	reads net.Conn
}

func (w watched) Read(b []byte) (int, error)        { return w.reads.Read(b) }
func (w watched) SetReadDeadline(t time.Time) error { return w.reads.SetReadDeadline(t) }

// dial only connects; go-redis does its handshake with the first command. Retries of go-redis are off, because they add
// up to many seconds, and a release that it resent would look like a loss.
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
		_, _ = io.Copy(fill, conn) // Any error means that the connection has ended.
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
		l.mu.Lock() // go-redis would log that a connection is closed during a command.
		defer l.mu.Unlock()
		_ = l.rdb.Close()
	})
	return l, nil
}

// connect dials, authenticates and selects the database. If it fails, no request was sent.
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

// exchange sends commands and reads their replies. Afterwards each command has its reply or error.
func (l *link) exchange(commands ...redis.Cmder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, pipe := context.Background(), l.conn.Pipeline()
	for _, command := range commands {
		_ = pipe.Process(ctx, command)
	}
	_, err := pipe.Exec(ctx)
	// If go-redis has no connection and would retry, it sets no error on the commands.
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

// part is a command of a packet. If the connection ends between the replies, go-redis sets the error on all commands,
// but a part keeps the reply that was read before.
type part struct {
	*redis.Cmd
	isRead bool
}

// SetErr is called by go-redis with nil or the server's error when the reply was read.
func (p *part) SetErr(err error) {
	if !p.isRead {
		p.isRead = err == nil || isReply(err)
		p.Cmd.SetErr(err)
	}
}
