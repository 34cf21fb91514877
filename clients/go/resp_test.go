package redislock

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// answering is a server that gives PING and PROBE the next reply, and refuses everything else of the handshake. It
// returns what it got.
func answering(t *testing.T, replies ...string) (options *redis.Options, got chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	got = make(chan string, len(replies))
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		buffer := make([]byte, 64*1024)
		for len(replies) > 0 {
			length, err := conn.Read(buffer)
			if err != nil {
				return
			}
			reply, request := "-ERR unknown command\r\n", string(buffer[:length])
			if strings.Contains(request, "PROBE") || strings.Contains(request, "PING") {
				got <- request
				reply, replies = replies[0], replies[1:]
			}
			_, _ = io.WriteString(conn, reply)
		}
		_, _ = conn.Read(buffer) // Until the client closes it.
	}()
	return &redis.Options{Addr: listener.Addr().String(), DisableIdentity: true, MaxRetries: -1}, got
}

func isSame(a, b any) bool {
	if one, isBig := a.(*big.Int); isBig {
		other, isBig := b.(*big.Int)
		return isBig && one.Cmp(other) == 0
	}
	return fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b) || reflect.DeepEqual(a, b)
}

func TestRepliesAreReadAsByGoRedis(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, text := range []string{"+OK\r\n", ":-7\r\n", "$2\r\na\n\r\n", "$0\r\n\r\n", "$-1\r\n", "*-1\r\n", "_\r\n",
		"*0\r\n", "$100000\r\n" + long + "\r\n", "-ERR " + long + "\r\n", "-MOVED 1 a:1\r\n", "!5\r\nERR x\r\n",
		"*2\r\n$-1\r\n-ERR x\r\n",
		"*3\r\n:1\r\n*1\r\n+a\r\n_\r\n", ",1.5\r\n", ",inf\r\n", ",-inf\r\n", ",nan\r\n", ",-nan\r\n", "#t\r\n", "#f\r\n",
		"(12345678901234567890\r\n", "=5\r\ntxt:a\r\n", "~2\r\n:1\r\n:2\r\n", "%2\r\n+a\r\n:1\r\n:2\r\n_\r\n", "%0\r\n",
		"|1\r\n+ttl\r\n:1\r\n:2\r\n", "*1\r\n|1\r\n+ttl\r\n:1\r\n:2\r\n"} {
		options, _ := answering(t, text)
		rdb := redis.NewClient(options)
		theirs, expected := rdb.Do(context.Background(), "PROBE").Result()
		_ = rdb.Close()
		ours, err := replies{bufio.NewReader(strings.NewReader(text))}.read()
		if !isSame(ours, theirs) || fmt.Sprint(err) != fmt.Sprint(expected) ||
			errors.Is(err, redis.Nil) != (expected == redis.Nil) {
			t.Errorf("%.40q: %.60v, %.60v; go-redis: %.60v, %.60v", text, ours, err, theirs, expected)
		}
		if isReply(err) != isReply(expected) {
			t.Errorf("%.40q: %.60v is an error of the server or not", text, err)
		}
		// Every part of it is only the start of a reply.
		for _, end := range []int{1, len(text) / 2, len(text) - 1} {
			if _, err := (replies{bufio.NewReader(strings.NewReader(text[:end]))}).read(); err == nil || isReply(err) {
				t.Errorf("%.40q: %v", text[:end], err)
			}
		}
	}
	value, err := replies{bufio.NewReader(strings.NewReader(">2\r\n+invalidate\r\n*1\r\n+k\r\n+OK\r\n"))}.read()
	if value != "OK" || err != nil {
		t.Error("a push message counts as a reply:", value, err)
	}
}

func TestArgumentsAreSentAsByGoRedis(t *testing.T) {
	text, number, at, none := "text", uint16(7), time.Unix(1, 5), (*float64)(nil)
	length := 3 * time.Second
	for _, value := range []any{nil, "text", []byte{0, '\r', '\n'}, 1, int8(-2), int16(3), int32(4), int64(-5),
		uint(6), uint8(7), uint16(8), uint32(9), uint64(1 << 63), float32(1.5), 1e21, 0.1, true, false, at, &at, length,
		&length, &text, &number, none,
		net.IPv4(127, 0, 0, 1), new(big.Float).SetInt64(3), struct{}{}, []string{"a"}} {
		options, got := answering(t, "+OK\r\n")
		rdb := redis.NewClient(options)
		_, expected := rdb.Do(context.Background(), "PROBE", value).Result()
		_ = rdb.Close()
		words, err := arguments([]any{"PROBE", value})
		if expected != nil || err != nil {
			if expected == nil || !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "marshal") {
				t.Errorf("%T: %v; go-redis: %v", value, err, expected)
			}
			continue
		}
		if sent := <-got; string(appendCommand(nil, words)) != sent {
			t.Errorf("%T: %q; go-redis: %q", value, appendCommand(nil, words), sent)
		}
	}
}

// What follows the last reply of the handshake belongs to the requests.
func TestGoRedisReadsNoFurtherThanItsHandshake(t *testing.T) {
	const push = ">2\r\n+invalidate\r\n*1\r\n+k\r\n"
	options, _ := answering(t, "+PONG\r\n"+push+push[:12], push[12:]+"+first\r\n", "+second\r\n")
	ctx, end := context.WithCancel(context.Background())
	defer end()
	l := newLine(ctx, redis.NewClient(options).Options(), false)
	for _, expected := range []string{"first", "second"} {
		if value, failed := l.ask(ctx, time.Minute, "PROBE"); failed != nil || value != expected {
			t.Fatal(value, failed)
		}
	}
}

// A broken server must end its connection, not this process: no length that it announces is allocated, and no depth
// exhausts the stack.
func TestARepliesLengthsAreNotTrusted(t *testing.T) {
	endless := func(text string) io.Reader { return &repeated{text: text} }
	huge := fmt.Sprint(longest + 1)
	for name, reply := range map[string]io.Reader{
		"a string that never comes":  strings.NewReader("$536870912\r\nabc"),
		"a string":                   strings.NewReader("$" + huge + "\r\nabc"),
		"a string of 2^63-1 bytes":   strings.NewReader("$9223372036854775807\r\nabc"),
		"a verbatim string":          strings.NewReader("=9223372036854775806\r\ntxt:"),
		"a short verbatim string":    strings.NewReader("=2\r\nab\r\n"),
		"an error":                   strings.NewReader("!9223372036854775806\r\nERR"),
		"a string without its end":   strings.NewReader("$1\r\nabc"),
		"a long one without it":      strings.NewReader("$8192\r\n" + strings.Repeat("a", 9000)),
		"a negative length":          strings.NewReader("$-2\r\n"),
		"a length beyond 64 bits":    strings.NewReader("*9223372036854775808\r\n"),
		"an array":                   strings.NewReader("*" + huge + "\r\n:1\r\n"),
		"a map of 2^62 entries":      strings.NewReader("%4611686018427387904\r\n+a\r\n:1\r\n"),
		"a map of 2^62+1 entries":    strings.NewReader("%4611686018427387905\r\n+a\r\n:1\r\n+OK\r\n"),
		"a map that never comes":     strings.NewReader("%536870912\r\n+a\r\n:1\r\n"),
		"an attribute":               strings.NewReader("|4611686018427387904\r\n+OK\r\n"),
		"a nil attribute":            strings.NewReader("|-1\r\n+OK\r\n"),
		"a push message":             strings.NewReader(">9223372036854775807\r\n+a\r\n"),
		"a nil push message":         strings.NewReader(">-1\r\n+OK\r\n"),
		"a map with an array as key": strings.NewReader("%1\r\n*0\r\n:1\r\n"),
		"nested arrays":              endless("*1\r\n"),
		"nested maps":                endless("%1\r\n+a\r\n"),
		"nested attributes":          endless("|1\r\n"),
		"nested push messages":       endless(">1\r\n"),
		"an endless line":            endless("-ERR "),
		"a big number":               strings.NewReader("(" + strings.Repeat("7", 1<<24-2) + "\r\n"),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		value, err := replies{bufio.NewReader(reply)}.read()
		runtime.ReadMemStats(&after)
		if err == nil || err == redis.Nil || isReply(err) {
			t.Errorf("%s: %.60v, %v", name, value, err)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8*longestLine {
			t.Errorf("%s: %d bytes allocated", name, allocated)
		}
	}
}

// repeated is a reader of a text without end.
type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = r.text[(r.at+i)%len(r.text)]
	}
	r.at += len(b)
	return len(b), nil
}

// After a reply that exceeds the limits, the connection is closed and the request fails with the error of the reply.
func TestABrokenReplyEndsItsConnection(t *testing.T) {
	options, _ := answering(t, "+PONG\r\n", "%4611686018427387905\r\n")
	ctx, end := context.WithCancel(context.Background())
	defer end()
	l := newLine(ctx, redis.NewClient(options).Options(), true)
	_, failed := l.ask(ctx, time.Minute, "PROBE")
	if failed == nil || !failed.isSent || !strings.Contains(failed.err.Error(), "can't parse") {
		t.Fatal(failed)
	}
	select {
	case <-l.ctx.Done():
	case <-time.After(10 * time.Second):
		t.Error("the connection is open")
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("*2\r\n%1\r\n+a\r\n:1\r\n$1\r\nx\r\n"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		reader := replies{bufio.NewReader(bytes.NewReader(text))}
		for {
			if _, err := reader.read(); err != nil && err != redis.Nil && !isReply(err) {
				return
			}
		}
	})
}
