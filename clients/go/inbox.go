package redislock

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// inbox receives what a node publishes about queued requests (NOTIFY), over one subscribed connection. Their tokens are
// new ones: no message is about another request than that of the waiter.
//
// Delivery is at most once: a waiter that may have missed a message is told that it was interrupted, and asks again.
type inbox struct {
	options   *redis.Options
	isSharded bool

	mu       sync.Mutex
	sub      *subscription
	waiters  map[string]chan notice // by token
	isClosed bool
}

// subscription is one connection, and the channels on it.
type subscription struct {
	connecting sync.Once
	link       *link
	pubsub     *redis.PubSub
	confirmed  map[string]chan struct{} // by channel: closed when messages on it arrive
	ended      chan struct{}
	why        *failure // behind ended
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
	if i.isClosed {
		i.mu.Unlock()
		return &failure{err: ErrClosed}
	}
	if i.sub == nil {
		i.sub = &subscription{confirmed: map[string]chan struct{}{}, ended: make(chan struct{})}
	}
	sub := i.sub
	confirmed := sub.confirmed[channel]
	if confirmed == nil {
		confirmed = make(chan struct{})
		sub.confirmed[channel] = confirmed
		// The callers that wait for it may leave, and others come.
		go i.subscribe(sub, channel, confirmed)
	}
	i.mu.Unlock()
	select {
	case <-confirmed:
		return nil
	case <-sub.ended:
		return sub.why
	case <-ctx.Done():
		return &failure{err: context.Cause(ctx)}
	}
}

// subscribe has a limit as a whole: connecting, the handshake, the confirmation.
func (i *inbox) subscribe(sub *subscription, channel string, confirmed chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), undoFor)
	defer cancel()
	defer context.AfterFunc(ctx, func() { i.end(sub, &failure{err: errNoReply}) })()
	sub.connecting.Do(func() { i.connect(ctx, sub) })
	if sub.pubsub == nil {
		return // It has ended.
	}
	subscribe := sub.pubsub.Subscribe
	if i.isSharded {
		subscribe = sub.pubsub.SSubscribe
	}
	if err := subscribe(context.Background(), channel); err != nil {
		i.end(sub, &failure{err: err})
	}
	select {
	case <-confirmed:
	case <-sub.ended:
	}
}

func (i *inbox) connect(ctx context.Context, sub *subscription) {
	link, err := dial(ctx, i.options)
	if err != nil {
		i.end(sub, &failure{err: err})
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.sub != sub {
		link.close()
		return
	}
	sub.link, sub.pubsub = link, link.rdb.Subscribe(context.Background())
	go i.receive(sub)
}

// receive reads until the connection ends.
func (i *inbox) receive(sub *subscription) {
	for {
		message, err := sub.pubsub.Receive(context.Background())
		if err != nil {
			i.end(sub, &failure{err: err})
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
func (i *inbox) end(sub *subscription, why *failure) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.sub != sub {
		return // It was ended before.
	}
	i.sub, sub.why = nil, why
	close(sub.ended)
	if sub.link != nil {
		sub.link.close()
		go func() { _ = sub.pubsub.Close() }() // It waits for a subscribe that is under way.
	}
	i.interruptAll()
}

// suspect ends the subscription over which a message did not come in time.
func (i *inbox) suspect() {
	i.mu.Lock()
	sub := i.sub
	i.mu.Unlock()
	if sub != nil {
		i.end(sub, &failure{err: errNoReply})
	}
}

func (i *inbox) close() {
	i.mu.Lock()
	i.isClosed = true
	i.mu.Unlock()
	i.suspect()
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
