package redislock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// inbox receives what a node publishes about queued requests (NOTIFY), over one subscribed connection.
//
// Delivery is at most once: a waiter that may have missed a message is told that it was interrupted, and asks again.
type inbox struct {
	options   *redis.Options
	isSharded bool

	mu       sync.Mutex
	sub      *subscription
	waiters  map[string][]*waiter // by token
	isClosed bool
}

// subscription is one connection, and the channels on it.
type subscription struct {
	connecting, receiving sync.Once

	err      error // of connecting
	link     *link
	pubsub   *redis.PubSub
	channels map[string]*channelState
}

type channelState struct {
	isConfirmed bool
	confirmed   chan struct{} // closed when it is, or when it ends without
	failed      *failure
}

// notice is what a message says about a request.
type notice struct {
	outcome string
	fence   uint64
	slot    int
}

const interrupted = "interrupted"

// waiter is one caller's view of the messages about its request.
type waiter struct {
	keys    []string
	token   string
	notices chan notice
}

// tell never waits: who has missed a notice asks again.
func (w *waiter) tell(n notice) {
	select {
	case w.notices <- n:
	default:
	}
}

// add registers a waiter, before its request is sent: the message may come before the reply.
func (i *inbox) add(keys []string, token string) *waiter {
	w := &waiter{keys: keys, token: token, notices: make(chan notice, 4)}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.waiters == nil {
		i.waiters = map[string][]*waiter{}
	}
	i.waiters[token] = append(i.waiters[token], w)
	return w
}

func (i *inbox) remove(w *waiter) {
	i.mu.Lock()
	defer i.mu.Unlock()
	others := slices.DeleteFunc(i.waiters[w.token], func(other *waiter) bool { return other == w })
	if len(others) == 0 {
		delete(i.waiters, w.token)
	} else {
		i.waiters[w.token] = others
	}
}

// listen returns when messages on the channel arrive here.
func (i *inbox) listen(ctx context.Context, channel string) *failure {
	i.mu.Lock()
	if i.isClosed {
		i.mu.Unlock()
		return &failure{err: ErrClosed}
	}
	sub := i.sub
	if sub == nil {
		sub = &subscription{channels: map[string]*channelState{}}
		i.sub = sub
	}
	state := sub.channels[channel]
	if state == nil {
		state = &channelState{confirmed: make(chan struct{})}
		sub.channels[channel] = state
		// Whoever waits for it may leave, and others come.
		go i.subscribe(sub, channel, state)
	}
	i.mu.Unlock()
	select {
	case <-state.confirmed:
		return state.failed
	case <-ctx.Done():
		return &failure{err: context.Cause(ctx)}
	}
}

// subscribe has a limit as a whole: connecting, the handshake, the confirmation.
func (i *inbox) subscribe(sub *subscription, channel string, state *channelState) {
	ctx, cancel := context.WithTimeout(context.Background(), undoFor)
	defer cancel()
	defer context.AfterFunc(ctx, func() { i.end(sub, &failure{err: errNoReply}) })()
	if err := i.ask(ctx, sub, channel); err != nil {
		i.end(sub, &failure{err: err})
	}
	<-state.confirmed
}

// ask connects where nothing is connected yet.
func (i *inbox) ask(ctx context.Context, sub *subscription, channel string) error {
	sub.connecting.Do(func() {
		link, err := dial(ctx, i.options)
		if err != nil {
			sub.err = err
			return
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.sub != sub {
			sub.err = ErrClosed
			link.close()
			return
		}
		sub.link, sub.pubsub = link, link.rdb.Subscribe(context.Background())
	})
	if sub.err != nil {
		return sub.err
	}
	subscribe := sub.pubsub.Subscribe
	if i.isSharded {
		subscribe = sub.pubsub.SSubscribe
	}
	if err := subscribe(context.Background(), channel); err != nil {
		return err
	}
	sub.receiving.Do(func() { go i.receive(sub) })
	return nil
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
	state := sub.channels[change.Channel]
	isEnd := change.Kind == "sunsubscribe" || change.Kind == "unsubscribe"
	if state != nil && isEnd {
		// The slot has moved to another node, which ends the subscription.
		delete(sub.channels, change.Channel)
	}
	if state != nil && !isEnd && !state.isConfirmed {
		state.isConfirmed = true
		close(state.confirmed)
	}
	i.mu.Unlock()
	if isEnd {
		i.interrupt()
	}
}

// end closes the subscription: every waiter asks again, since a message may be lost.
func (i *inbox) end(sub *subscription, why *failure) {
	i.mu.Lock()
	if i.sub == sub {
		i.sub = nil
	}
	for name, state := range sub.channels {
		if !state.isConfirmed {
			state.isConfirmed, state.failed = true, why
			close(state.confirmed)
		}
		delete(sub.channels, name)
	}
	link, pubsub := sub.link, sub.pubsub
	i.mu.Unlock()
	if link != nil {
		link.close()
	}
	if pubsub != nil {
		_ = pubsub.Close()
	}
	i.interrupt()
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

func (i *inbox) interrupt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, waiters := range i.waiters {
		for _, w := range waiters {
			w.tell(notice{outcome: interrupted})
		}
	}
}

// word is a key or token in a message: a string, or {"base64":…} if it is not UTF-8.
type word string

func (w *word) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*w = word(text)
		return nil
	}
	var coded struct{ Base64 string }
	if err := json.Unmarshal(b, &coded); err != nil {
		return err
	}
	bytes, err := base64.StdEncoding.DecodeString(coded.Base64)
	*w = word(bytes)
	return err
}

func (i *inbox) deliver(payload string) {
	message := struct {
		Key, Token word
		Outcome    string
		Fence      uint64
		Slot       *int
	}{}
	if json.Unmarshal([]byte(payload), &message) != nil {
		return // Another program publishes on our channel.
	}
	n := notice{message.Outcome, message.Fence, -1}
	if message.Slot != nil {
		n.slot = *message.Slot
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var meant []*waiter
	for _, w := range i.waiters[string(message.Token)] {
		if slices.Contains(w.keys, string(message.Key)) {
			meant = append(meant, w)
		}
	}
	if len(meant) > 1 {
		// One owner waits twice for one key, and the message does not say for which request.
		n = notice{outcome: interrupted}
	}
	for _, w := range meant {
		w.tell(n)
	}
}

// lateMessage is how long after the end of its BLOCK a message is waited for.
const lateMessage = time.Second
