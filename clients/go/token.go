package redislock

import (
	crand "crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"sync"
)

// The server stores tokens of up to 38 bytes without a second object.
const longestToken = 38

// makeToken returns a new owner ID that is readable in LOCK.INFO: host:pid:random.
func makeToken() string {
	token := make([]byte, 0, longestToken) // Stays on the stack, as its number does.
	return string(appendRandom(append(token, prefix()...)))
}

// prefix asks the system once: host and process do not change.
var prefix = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return prefixOf(host)
})

func prefixOf(host string) string {
	tail := ":" + strconv.Itoa(os.Getpid()) + ":"
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, host)
	return host[:min(len(host), longestToken-len(tail)-randomDigits)] + tail
}

const randomDigits = 16

// randomHex returns 64 random bits.
func randomHex() string { return string(appendRandom(nil)) }

func appendRandom(text []byte) []byte {
	var random [randomDigits / 2]byte
	_, _ = crand.Read(random[:]) // Never fails: the runtime crashes the program instead.
	return hex.AppendEncode(text, random[:])
}
