package redislock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// inbox receives what a node publishes about queued requests (NOTIFY), over one subscribed connection. Each request has
// a new token, so a message can only be about the request of its waiter.
//
// Messages are delivered at most once, so each waiter asks again when the connection ends.
type inbox struct {
	ctx       context.Context
	options   *redis.Options
	isSharded bool

	mu      sync.Mutex
	sub     *subscription
	waiters map[string]chan notice // by token
}

// subscription is one connection, and the channels on it.
type subscription struct {
	ctx       context.Context // ends with the connection
	end       context.CancelCauseFunc
	pubsub    *redis.PubSub            // nil while connecting
	confirmed map[string]chan struct{} // by channel; closed once the subscription is confirmed
}

// errMoved means that the node has ended a channel, because its slot belongs to another node now.
var errMoved = errors.New("redislock: a slot has moved to another node")

// notice is a message about a request.
type notice struct {
	Token, Outcome string
	Fence          uint64
	Slot           *int
}

// add registers a waiter. Call it before the request is sent, because the message may come before the reply.
func (i *inbox) add(token string) <-chan notice {
	w := make(chan notice, 4)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waiters[token] = w
	return w
}

func (i *inbox) remove(token string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.waiters, token)
}

// listen waits until the subscription to the channel is confirmed. until ends with its connection.
func (i *inbox) listen(ctx context.Context, channel string) (until context.Context, failed *failure) {
	i.mu.Lock()
	if i.sub == nil {
		i.sub = &subscription{confirmed: map[string]chan struct{}{}}
		i.sub.ctx, i.sub.end = context.WithCancelCause(i.ctx)
		go i.receive(i.sub)
	}
	sub := i.sub
	confirmed := sub.confirmed[channel]
	if confirmed == nil {
		confirmed = make(chan struct{})
		sub.confirmed[channel] = confirmed
		if sub.pubsub != nil {
			go i.subscribe(sub, channel)
		}
	}
	i.mu.Unlock()
	select {
	case <-confirmed:
		return sub.ctx, nil
	default:
	}
	limit := time.NewTimer(undoFor)
	defer limit.Stop()
	select {
	case <-confirmed:
		return sub.ctx, nil
	case <-ctx.Done():
		return nil, &failure{err: fmt.Errorf("redislock: no subscription at %s yet", i.options.Addr)}
	case <-limit.C:
		i.end(sub, fmt.Errorf("%w from %s to a subscription", errNoReply, i.options.Addr))
	case <-sub.ctx.Done():
	}
	return nil, &failure{err: context.Cause(sub.ctx)}
}

func (i *inbox) subscribe(sub *subscription, channel string) {
	subscribe := sub.pubsub.Subscribe
	if i.isSharded {
		subscribe = sub.pubsub.SSubscribe
	}
	if err := subscribe(context.Background(), channel); err != nil {
		i.end(sub, i.broken(err))
	}
}

func (i *inbox) broken(err error) error {
	return fmt.Errorf("redislock: the subscription at %s ended: %w", i.options.Addr, err)
}

// receive connects, subscribes, and reads until the connection ends.
func (i *inbox) receive(sub *subscription) {
	_, rdb, err := dial(sub.ctx, i.options, func(conn net.Conn) net.Conn { return conn })
	if err != nil {
		i.end(sub, err)
		return
	}
	defer func() { _ = rdb.Close() }()
	i.mu.Lock()
	sub.pubsub = rdb.Subscribe(context.Background())
	channels := slices.Collect(maps.Keys(sub.confirmed))
	i.mu.Unlock()
	for _, channel := range channels {
		i.subscribe(sub, channel)
	}
	for {
		message, err := sub.pubsub.Receive(context.Background())
		if err != nil {
			i.end(sub, i.broken(err))
			return
		}
		switch message := message.(type) {
		case *redis.Message:
			i.deliver(message.Payload)
		case *redis.Subscription:
			if strings.HasSuffix(message.Kind, "unsubscribe") {
				i.end(sub, errMoved)
				return
			}
			i.confirm(sub, message.Channel)
		}
	}
}

func (i *inbox) confirm(sub *subscription, channel string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-sub.confirmed[channel]:
	default:
		close(sub.confirmed[channel])
	}
}

// end closes the subscription. Every waiter then asks again, because a message may be lost.
func (i *inbox) end(sub *subscription, why error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.sub == sub && sub != nil {
		i.sub = nil
		sub.end(why)
	}
}

// suspect ends a subscription that may be dead, or may be at a replica. Requests that wait for it report the reason.
func (i *inbox) suspect(why error) {
	i.mu.Lock()
	sub := i.sub
	i.mu.Unlock()
	i.end(sub, why)
}

func (i *inbox) deliver(payload string) {
	var n notice
	if json.Unmarshal([]byte(payload), &n) != nil {
		return // Not from the module: another program publishes on our channel.
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case i.waiters[n.Token] <- n:
	default: // There is no waiter, or its channel is full, and it will ask again.
	}
}

// lateMessage is how long to wait for a message after the end of its BLOCK.
const lateMessage = time.Second
