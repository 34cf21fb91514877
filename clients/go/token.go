package redislock

import (
	crand "crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
)

// The server stores tokens of up to 38 bytes without a second object.
const longestToken = 38

// makeToken returns a new owner ID that is readable in LOCK.INFO: host:pid:random.
func makeToken() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return tokenOf(host)
}

func tokenOf(host string) string {
	tail := ":" + strconv.Itoa(os.Getpid()) + ":" + randomHex()
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, host)
	return host[:min(len(host), longestToken-len(tail))] + tail
}

// randomHex returns 64 random bits.
func randomHex() string {
	var random [8]byte
	_, _ = crand.Read(random[:]) // Never fails: the runtime crashes the program instead.
	return hex.EncodeToString(random[:])
}
