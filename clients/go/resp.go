package redislock

import (
	"bufio"
	"bytes"
	"encoding"
	"fmt"
	"io"
	"math/big"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file replaces what go-redis does for each command: encoding and decoding. go-redis offers that only with its
// pipeline, which reads a connection only while it waits for replies. To notice the end of an idle connection, each
// packet then needs a goroutine, and a pipe that a further goroutine fills. Without them, the client CPU time of a pair
// of acquire and release fell from 1.30 to 1.15 of that of SET NX PX and a script, and of Exec from 1.31 to 1.13 of one
// script (November 2026, on a dedicated core).

// appendCommand appends a command in RESP. The arguments are those of the module's commands, and what argument returns.
func appendCommand(packet []byte, words []any) []byte {
	packet = appendLength(packet, '*', len(words))
	for _, word := range words {
		switch word := word.(type) {
		case string:
			packet = append(appendLength(packet, '$', len(word)), word...)
		case []byte:
			packet = append(appendLength(packet, '$', len(word)), word...)
		case int:
			packet = appendNumber(packet, int64(word))
		case int64:
			packet = appendNumber(packet, word)
		default:
			panic(fmt.Sprintf("redislock: an argument of type %T", word))
		}
		packet = append(packet, '\r', '\n')
	}
	return packet
}

func appendLength(packet []byte, kind byte, length int) []byte {
	return append(strconv.AppendInt(append(packet, kind), int64(length), 10), '\r', '\n')
}

func appendNumber(packet []byte, number int64) []byte {
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], number, 10)
	return append(appendLength(packet, '$', len(text)), text...)
}

// arguments converts those of a caller's command. An error means that nothing was sent.
func arguments(values []any) ([]any, error) {
	words := make([]any, len(values))
	for i, value := range values {
		word, err := argument(value)
		if err != nil {
			return nil, usage("%v", err)
		}
		words[i] = word
	}
	return words, nil
}

// argument converts an argument of a caller's command to one that appendCommand takes, as go-redis sends it.
func argument(value any) (any, error) {
	switch value := value.(type) {
	case nil:
		return "", nil
	case string, []byte, int, int64:
		return value, nil
	case int8:
		return int64(value), nil
	case int16:
		return int64(value), nil
	case int32:
		return int64(value), nil
	case uint, uint8, uint16, uint32, uint64, uintptr:
		return fmt.Sprint(value), nil
	case float32:
		return strconv.FormatFloat(float64(value), 'f', -1, 64), nil
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64), nil
	case bool:
		if value {
			return 1, nil
		}
		return 0, nil
	case time.Time:
		return value.Format(time.RFC3339Nano), nil
	case time.Duration:
		return value.Nanoseconds(), nil
	case *string:
		return pointedTo(value)
	case *int:
		return pointedTo(value)
	case *int8:
		return pointedTo(value)
	case *int16:
		return pointedTo(value)
	case *int32:
		return pointedTo(value)
	case *int64:
		return pointedTo(value)
	case *uint:
		return pointedTo(value)
	case *uint8:
		return pointedTo(value)
	case *uint16:
		return pointedTo(value)
	case *uint32:
		return pointedTo(value)
	case *uint64:
		return pointedTo(value)
	case *uintptr:
		return pointedTo(value)
	case *float32:
		return pointedTo(value)
	case *float64:
		return pointedTo(value)
	case *bool:
		return pointedTo(value)
	case *time.Time:
		return pointedTo(value)
	case *time.Duration:
		return pointedTo(value)
	case encoding.BinaryMarshaler:
		return value.MarshalBinary()
	case net.IP:
		return []byte(value), nil
	}
	return nil, fmt.Errorf("redis: can't marshal %T (implement encoding.BinaryMarshaler)", value)
}

// pointedTo converts what a pointer refers to; nil is the zero value.
func pointedTo[T any](pointer *T) (any, error) {
	var value T
	if pointer != nil {
		value = *pointer
	}
	return argument(value)
}

// reply is what a command returned: a value, or the server's error, or that of the connection.
type reply struct {
	value any
	err   error
}

// errorReply returns an error reply as go-redis does, of its type, whose name is internal.
func errorReply(text string) error { return likeNil(redis.Nil, text) }

func likeNil[E ~string](_ E, text string) E { return E(text) }

// replies reads RESP2 and RESP3. The values are those of go-redis's Cmd.
type replies struct{ *bufio.Reader }

// The limits of a reply. A server that exceeds one is broken, and so is its connection: the reply might not fit into
// memory or onto the stack, which would end the process.
const (
	longest     = 512 << 20 // bytes of a string, which is Redis's proto-max-bulk-len; elements of an aggregate
	longestLine = 16 << 20  // bytes of an error or a number
	longestBig  = 64 << 10  // digits of a big number, because parsing one takes quadratic time
	deepest     = 1024      // aggregates within each other
)

// Memory that is allocated for the announced length, before the contents have come.
const (
	bytesAhead    = 1 << 20
	elementsAhead = 256
)

// read returns the next reply. Its error is redis.Nil or one of the server, or one after which the connection cannot be
// used. Push messages are skipped: nothing subscribes on such a connection.
func (r replies) read() (any, error) { return r.within(deepest) }

// within reads a reply of at most this depth.
func (r replies) within(depth int) (any, error) {
	line, err := r.line()
	for err == nil && (line[0] == '>' || line[0] == '|') {
		if err = r.skip(line, depth); err == nil {
			line, err = r.line()
		}
	}
	if err != nil {
		return nil, err
	}
	switch line[0] {
	case '+':
		return string(line[1:]), nil
	case ':':
		return strconv.ParseInt(string(line[1:]), 10, 64)
	case '-':
		return nil, errorReply(string(line[1:]))
	case '_':
		return nil, redis.Nil
	case ',':
		return strconv.ParseFloat(strings.Replace(string(line[1:]), "-nan", "nan", 1), 64)
	case '#':
		return strconv.ParseBool(string(line[1:]))
	case '(':
		if len(line) <= longestBig {
			if number, isNumber := new(big.Int).SetString(string(line[1:]), 10); isNumber {
				return number, nil
			}
		}
		return nil, badReply(line)
	}
	kind := line[0]
	length, err := lengthOf(line)
	if err != nil {
		return nil, err
	}
	switch kind {
	case '$':
		return r.text(length)
	case '=':
		text, err := r.text(length)
		if err == nil && len(text) < len("txt:") {
			err = badReply([]byte("=" + text))
		}
		if err != nil {
			return nil, err
		}
		return text[len("txt:"):], nil
	case '!':
		text, err := r.text(length)
		if err != nil {
			return nil, err
		}
		return nil, errorReply(text)
	case '*', '~':
		return r.elements(length, depth)
	case '%':
		pairs, err := r.elements(2*length, depth)
		if err != nil {
			return nil, err
		}
		found := make(map[any]any, length)
		for i := 0; i < len(pairs); i += 2 {
			switch pairs[i].(type) {
			case []any, map[any]any: // Go has no map with such a key.
				return nil, badReply(fmt.Append(nil, "%", length))
			}
			found[pairs[i]] = pairs[i+1]
		}
		return found, nil
	}
	return nil, badReply(line)
}

// skip reads the elements of a push message or an attribute.
func (r replies) skip(line []byte, depth int) error {
	isAttribute := line[0] == '|'
	length, err := lengthOf(line)
	if err == redis.Nil {
		return badReply(line)
	}
	if err == nil && isAttribute {
		length *= 2
	}
	if err == nil {
		_, err = r.elements(length, depth)
	}
	return err
}

// lengthOf parses the length in a line. Its error is redis.Nil for that of nil.
func lengthOf(line []byte) (int, error) {
	length, err := strconv.Atoi(string(line[1:]))
	switch {
	case err != nil || length < -1 || length > longest:
		return 0, badReply(line)
	case length == -1:
		return 0, redis.Nil
	}
	return length, nil
}

func badReply(line []byte) error { return fmt.Errorf("redis: can't parse %.100q", line) }

// line returns the next line without its end, valid until the next read.
func (r replies) line() ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err == bufio.ErrBufferFull { // The text of an error may be longer than the buffer.
		var start []byte
		for err == bufio.ErrBufferFull && len(start) < longestLine {
			start = append(start, line...)
			line, err = r.ReadSlice('\n')
		}
		line = append(start, line...)
	}
	switch {
	case err == bufio.ErrBufferFull:
		return nil, badReply(line)
	case err != nil:
		return nil, err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return nil, badReply(line)
	}
	return line[:len(line)-2], nil
}

func (r replies) text(length int) (string, error) {
	if length+2 <= r.Size() {
		text, err := r.Peek(length + 2)
		if err != nil {
			return "", err
		}
		copied, err := withoutEnd(text)
		if err == nil {
			_, err = r.Discard(length + 2)
		}
		return copied, err
	}
	var text bytes.Buffer
	text.Grow(min(length+2, bytesAhead))
	if _, err := io.CopyN(&text, r, int64(length)+2); err != nil {
		return "", err
	}
	return withoutEnd(text.Bytes())
}

func withoutEnd(text []byte) (string, error) {
	contents, isWhole := bytes.CutSuffix(text, []byte("\r\n"))
	if !isWhole {
		return "", badReply(text)
	}
	return string(contents), nil
}

func (r replies) elements(count, depth int) ([]any, error) {
	if depth == 0 {
		return nil, badReply(fmt.Append(nil, "*", count))
	}
	elements := make([]any, 0, min(count, elementsAhead))
	for range count {
		element, err := r.within(depth - 1)
		switch {
		case err == nil:
		case err == redis.Nil:
			element = nil
		case isReply(err):
			element = err
		default:
			return nil, err
		}
		elements = append(elements, element)
	}
	return elements, nil
}
