package redislock

import (
	"context"
	"time"
)

// errNoHold is the error of methods that would ask the server about a nil *Hold.
var errNoHold = usage("there is no hold: FromContext finds one only inside Do and Once")

// noHold replaces a nil *Hold, so that code that may run without a lock can call the methods of what [FromContext]
// returns. It holds nothing, and its context has ended.
var noHold = func() *Hold {
	h := newHold(context.Background(), &Lock{lockType: lockType{keys: []string{""}}}, "")
	h.now.deadline = time.Now()
	h.finish(wasLost)
	h.end(errNoHold)
	return &Hold{hold: h, slot: -1}
}()

func (h *Hold) orNone() *Hold {
	if h == nil {
		return noHold
	}
	return h
}
