package redislock

import (
	"context"
	"time"
)

// errNoHold is the error of a nil *Hold, for what would ask the server about it.
var errNoHold = usage("there is no hold: FromContext finds one only inside Do and Once")

// noHold answers for a nil *Hold, so that code that runs with and without a lock can ask [FromContext] for its fence:
// it holds nothing, and its context has ended.
var noHold = func() *Hold {
	h := newHold(context.Background(), &Lock{family: family{keys: []string{""}}}, "")
	h.now.deadline = time.Now()
	h.over(wasLost)
	h.end(errNoHold)
	return &Hold{hold: h, slot: -1}
}()

func (h *Hold) orNone() *Hold {
	if h == nil {
		return noHold
	}
	return h
}
