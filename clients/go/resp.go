package redislock

import (
	"bufio"
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
// script (bench --cost, on a core of its own).

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

// read returns the next reply. Its error is redis.Nil or one of the server, or one after which the connection cannot be
// used. Push messages are skipped: nothing subscribes on such a connection.
func (r replies) read() (any, error) {
	line, err := r.line()
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
		if number, isNumber := new(big.Int).SetString(string(line[1:]), 10); isNumber {
			return number, nil
		}
		return nil, badReply(line)
	}
	length, err := strconv.Atoi(string(line[1:]))
	switch {
	case err != nil || length < -1:
		return nil, badReply(line)
	case length == -1:
		return nil, redis.Nil
	}
	switch line[0] {
	case '$':
		return r.text(length)
	case '=':
		text, err := r.text(length)
		if err == nil && len(text) < len("txt:") {
			err = badReply(line)
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
		return r.elements(length)
	case '%':
		pairs, err := r.elements(2 * length)
		if err != nil {
			return nil, err
		}
		found := make(map[any]any, length)
		for i := 0; i < len(pairs); i += 2 {
			switch pairs[i].(type) {
			case []any, map[any]any: // Go has no map with such a key.
				return nil, badReply(line)
			}
			found[pairs[i]] = pairs[i+1]
		}
		return found, nil
	case '|':
		if _, err := r.elements(2 * length); err != nil {
			return nil, err
		}
		return r.read()
	case '>':
		if _, err := r.elements(length); err != nil {
			return nil, err
		}
		return r.read()
	}
	return nil, badReply(line)
}

func badReply(line []byte) error { return fmt.Errorf("redis: can't parse %.100q", line) }

// line returns the next line without its end, valid until the next read.
func (r replies) line() ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err == bufio.ErrBufferFull { // The text of an error may be longer than the buffer.
		start := append([]byte(nil), line...)
		line, err = r.ReadBytes('\n')
		line = append(start, line...)
	}
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
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
		copied := string(text[:length])
		_, err = r.Discard(length + 2)
		return copied, err
	}
	text := make([]byte, length+2)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", err
	}
	return string(text[:length]), nil
}

func (r replies) elements(count int) ([]any, error) {
	elements := make([]any, 0, min(count, 1024)) // The count is not trusted before the elements have come.
	for range count {
		element, err := r.read()
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
