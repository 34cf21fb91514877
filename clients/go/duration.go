package redislock

import (
	"math"
	"math/rand/v2"
	"time"
)

// greatest is the maximum time.Duration. Arithmetic on durations of the caller saturates there and never overflows.
const greatest = time.Duration(math.MaxInt64)

// refused marks a duration that was zero or negative. [Lock.check] reports it when the lock is used.
const refused = time.Duration(-1)

func positive(d time.Duration) time.Duration {
	if d <= 0 {
		return refused
	}
	return d
}

// milliseconds rounds up to at least 1, because the server accepts no shorter time. It divides first, because rounding
// up by an addition would overflow and turn a lease of 292 years into 1 ms.
func milliseconds(d time.Duration) int64 {
	whole := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		whole++
	}
	return max(1, whole)
}

// durationOf converts milliseconds from the server, where the TTL of a key may exceed the range of a time.Duration.
func durationOf(milliseconds int64) time.Duration {
	return time.Duration(min(max(milliseconds, 0), greatest.Milliseconds())) * time.Millisecond
}

// plus adds durations that are not negative.
func plus(one, other time.Duration) time.Duration {
	if one > greatest-other {
		return greatest
	}
	return one + other
}

// jittered multiplies by a random number from low to high.
func jittered(d time.Duration, low, high float64) time.Duration {
	product := float64(d) * (low + (high-low)*rand.Float64())
	if product >= float64(greatest) {
		return greatest
	}
	return time.Duration(product)
}
