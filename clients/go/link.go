package redislock

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// link is one connection to a server, opened with the caller's options and never replaced.
type link struct {
	ctx  context.Context // ends with the connection
	end  context.CancelCauseFunc
	conn net.Conn
	replies
	outstanding []*call // whose replies have not all come, in their order; guarded by the line
}

// dial only connects. The returned client does the handshake with its first command, over what lend returns. Retries of
// go-redis are off, because they add up to many seconds.
func dial(
	ctx context.Context, options *redis.Options, lend func(conn net.Conn) net.Conn,
) (*link, *redis.Client, error) {
	limited, cancel := context.WithTimeoutCause(ctx, undoFor, errNoReply)
	defer cancel()
	conn, err := options.Dialer(limited, options.Network, options.Addr)
	if err != nil {
		return nil, nil, err
	}
	l := &link{conn: conn}
	l.ctx, l.end = context.WithCancelCause(ctx)
	context.AfterFunc(l.ctx, func() { _ = conn.Close() })
	own, isDialed := *options, atomic.Bool{}
	own.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if isDialed.Swap(true) {
			return nil, net.ErrClosed
		}
		return lend(conn), nil
	}
	own.MaxRetries, own.DialerRetries, own.PoolSize = -1, 1, 1
	own.MinIdleConns, own.MaxIdleConns, own.MaxActiveConns = 0, 0, 0
	own.ConnMaxIdleTime, own.ConnMaxLifetime, own.ConnMaxLifetimeJitter = -1, 0, 0
	own.ReadTimeout, own.WriteTimeout, own.ContextTimeoutEnabled = -1, -1, false
	own.Limiter = nil
	own.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return l, redis.NewClient(&own), nil
}

// lent is the connection as go-redis sees it during the handshake. It reads single bytes, so that go-redis buffers none
// that follow the last reply, and does not close the connection.
type lent struct {
	net.Conn
	reader *bufio.Reader
}

func (l lent) Read(b []byte) (int, error) { return l.reader.Read(b[:min(1, len(b))]) }
func (l lent) Close() error               { return nil }

// connect dials, authenticates and selects the database. If it fails, no request was sent.
func connect(ctx context.Context, options *redis.Options) (*link, error) {
	var buffer *bufio.Reader
	l, rdb, err := dial(ctx, options, func(conn net.Conn) net.Conn {
		buffer = bufio.NewReader(conn)
		return lent{conn, buffer}
	})
	if err != nil {
		return nil, err
	}
	limit := time.AfterFunc(undoFor, func() { l.end(errNoReply) })
	// With its connection. Newer versions of go-redis would otherwise open another one after a failed handshake, which
	// hides why the first one failed.
	err = rdb.Conn().Process(ctx, redis.NewStatusCmd(ctx, "PING"))
	_ = rdb.Close()
	isLate := !limit.Stop()
	switch {
	case err == nil:
		l.replies = replies{buffer}
		return l, nil
	case isLate:
		err = fmt.Errorf("%w from %s, which has accepted the connection", errNoReply, options.Addr)
	case !isReply(err):
		err = ended(options.Addr, err)
	}
	l.end(err)
	return nil, err
}

// write sends a packet. If that fails, reading fails as well.
func (l *link) write(packet []byte) {
	if _, err := l.conn.Write(packet); err != nil {
		l.end(err)
	}
}

func ended(address string, why error) error {
	return fmt.Errorf("redislock: the connection to %s ended: %w", address, why)
}
