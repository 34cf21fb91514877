package redislock

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// inbox receives what a node publishes about queued requests (NOTIFY), over one subscribed connection. Their tokens are
// new ones: no message is about another request than that of the waiter.
//
// Delivery is at most once: a waiter that may have missed a message is told that it was interrupted, and asks again.
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
	pubsub    *redis.PubSub            // nil while it connects
	confirmed map[string]chan struct{} // by channel: closed when messages on it arrive
}

// notice is what a message says about a request.
type notice struct {
	Token, Outcome string
	Fence          uint64
	Slot           *int
}

const interrupted = "interrupted"

// tell never waits: a waiter that has missed a notice asks again.
func tell(w chan notice, n notice) {
	select {
	case w <- n:
	default:
	}
}

// add registers a waiter, before its request is sent: the message may come before the reply.
func (i *inbox) add(token string) <-chan notice {
	w := make(chan notice, 4)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.waiters == nil {
		i.waiters = map[string]chan notice{}
	}
	i.waiters[token] = w
	return w
}

func (i *inbox) remove(token string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.waiters, token)
}

// listen returns when messages on the channel arrive here.
func (i *inbox) listen(ctx context.Context, channel string) *failure {
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
	limit := time.NewTimer(undoFor)
	defer limit.Stop()
	select {
	case <-confirmed:
		return nil
	case <-ctx.Done():
		return &failure{err: context.Cause(ctx)}
	case <-limit.C:
		i.end(sub, errNoReply)
	case <-sub.ctx.Done():
	}
	return &failure{err: context.Cause(sub.ctx)}
}

func (i *inbox) subscribe(sub *subscription, channel string) {
	subscribe := sub.pubsub.Subscribe
	if i.isSharded {
		subscribe = sub.pubsub.SSubscribe
	}
	if err := subscribe(context.Background(), channel); err != nil {
		i.end(sub, err)
	}
}

// receive connects, subscribes, and reads until the connection ends.
func (i *inbox) receive(sub *subscription) {
	link, err := dial(sub.ctx, i.options)
	if err != nil {
		i.end(sub, err)
		return
	}
	i.mu.Lock()
	sub.pubsub = link.rdb.Subscribe(context.Background())
	channels := slices.Collect(maps.Keys(sub.confirmed))
	i.mu.Unlock()
	for _, channel := range channels {
		i.subscribe(sub, channel)
	}
	for {
		message, err := sub.pubsub.Receive(context.Background())
		if err != nil {
			i.end(sub, err)
			return
		}
		switch message := message.(type) {
		case *redis.Message:
			i.deliver(message.Payload)
		case *redis.Subscription:
			i.changed(sub, message)
		}
	}
}

func (i *inbox) changed(sub *subscription, change *redis.Subscription) {
	i.mu.Lock()
	defer i.mu.Unlock()
	confirmed := sub.confirmed[change.Channel]
	switch {
	case confirmed == nil:
	case change.Kind == "subscribe" || change.Kind == "ssubscribe":
		select {
		case <-confirmed:
		default:
			close(confirmed)
		}
	default:
		// The slot has moved to another node, which ends the subscription.
		delete(sub.confirmed, change.Channel)
		i.interruptAll()
	}
}

// end closes the subscription: every waiter asks again, since a message may be lost.
func (i *inbox) end(sub *subscription, why error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.sub == sub && sub != nil {
		i.sub = nil
		sub.end(why)
		i.interruptAll()
	}
}

// suspect ends the subscription over which a message did not come in time.
func (i *inbox) suspect() {
	i.mu.Lock()
	sub := i.sub
	i.mu.Unlock()
	i.end(sub, errNoReply)
}

// interrupt makes all that wait ask again.
func (i *inbox) interrupt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.interruptAll()
}

func (i *inbox) interruptAll() {
	for _, w := range i.waiters {
		tell(w, notice{Outcome: interrupted})
	}
}

func (i *inbox) deliver(payload string) {
	var n notice
	if json.Unmarshal([]byte(payload), &n) != nil {
		return // Another program publishes on our channel.
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if w := i.waiters[n.Token]; w != nil {
		tell(w, n)
	}
}

// lateMessage is how long after the end of its BLOCK a message is waited for.
const lateMessage = time.Second
