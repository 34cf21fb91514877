package redislock

import "time"

// mostHolders is the number of holders to ask LOCK.INFO for.
const mostHolders = 100

// Info is the state of a lock, as [Lock.Info] returns it.
type Info struct {
	// Kind is mutex, reentrant, rw or semaphore. That of a Multi is mutex.
	Kind string
	// Limit is the limit of a semaphore, 0 for a read/write lock, and 1 for the other types.
	Limit int
	// Fence is the fencing token of the latest grant on this key.
	Fence uint64
	// TTL is the remaining time of the key; nil without a deadline, and 0 if the lock is free and only has waiters.
	TTL *time.Duration
	// Holders are the hundred oldest holders, the one with the smallest fence first.
	Holders []Holder
	// Waiters is the number of waiting requests.
	Waiters int
	// Holding is the number of owners that hold the lock.
	Holding int
}

// Holder is an owner that holds a lock.
type Holder struct {
	// Owner is the owner ID. It may contain arbitrary bytes, so print it with %q.
	Owner string
	// Mode is exclusive, read, write or permits.
	Mode string
	// Holds is how many times the owner holds the lock; for a semaphore, its permits.
	Holds int
	// Fence is the fencing token of its grant.
	Fence uint64
	// TTL is the remaining time of the lease, and Lease its length; nil without a deadline.
	TTL, Lease *time.Duration
	// Age is the time since the grant.
	Age time.Duration
	// Session is the client ID of the connection that its session is bound to; 0 without a session.
	Session int64
	// Slot is the number of its permit; nil if the lock has no slots.
	Slot *int
}

// fields are those of a map, which RESP2 sends as a flat array.
type fields struct {
	values map[string]any
	isBad  bool
}

func fieldsOf(reply any) fields {
	pairs, _ := reply.([]any)
	if found, isMap := reply.(map[any]any); isMap {
		for name, value := range found {
			pairs = append(pairs, name, value)
		}
	}
	f := fields{values: map[string]any{}, isBad: pairs == nil}
	for i := 0; i+1 < len(pairs); i += 2 {
		if name, isText := pairs[i].(string); isText {
			f.values[name] = pairs[i+1]
		}
	}
	return f
}

func (f *fields) text(name string) string {
	text, isText := f.values[name].(string)
	f.isBad = f.isBad || !isText
	return text
}

func (f *fields) number(name string) int64 {
	number, isNumber := f.values[name].(int64)
	f.isBad = f.isBad || !isNumber
	return number
}

// time reads a duration in milliseconds; a negative one means none.
func (f *fields) time(name string) *time.Duration {
	number := f.number(name)
	if number < 0 {
		return nil
	}
	value := durationOf(number)
	return &value
}

func infoOf(reply any) (*Info, *failure) {
	if reply == nil {
		return nil, nil
	}
	f := fieldsOf(reply)
	info := &Info{Kind: f.text("kind"), Limit: int(f.number("limit")), Fence: uint64(f.number("fence")),
		TTL:     f.time("ttl"),
		Waiters: int(f.number("waiters")), Holding: int(f.number("holding"))}
	if f.number("ttl") == -2 {
		info.TTL = new(time.Duration)
	}
	holders, isArray := f.values["holders"].([]any)
	for _, each := range holders {
		h := fieldsOf(each)
		holder := Holder{Owner: h.text("owner"), Mode: h.text("mode"), Holds: int(h.number("holds")),
			Fence: uint64(h.number("fence")), TTL: h.time("ttl"), Lease: h.time("lease"),
			Age: durationOf(h.number("age")), Session: h.number("session")}
		if slot, found := h.values["slot"].(int64); found && slot >= 0 {
			number := int(slot)
			holder.Slot = &number
		}
		f.isBad = f.isBad || h.isBad
		info.Holders = append(info.Holders, holder)
	}
	if f.isBad || !isArray {
		return nil, unexpected(reply)
	}
	return info, nil
}
