package redislock

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestAKeysSlotIsThatOfTheServer(t *testing.T) {
	// From CLUSTER KEYSLOT.
	for key, slot := range map[string]int{"k": 7629, "foo": 12182, "{k}1": 7629, "a{}b": 13694, "{": 4092,
		"123456789": 12739} {
		if found := slotOf(key); found != slot {
			t.Errorf("%q: %d", key, found)
		}
	}
}

func TestEachSlotHasATagForItsChannel(t *testing.T) {
	for slot, number := range tags() {
		if slotOf(strconv.Itoa(int(number))) != slot {
			t.Fatal(slot, number)
		}
	}
}

func TestATokenIsShortReadableAndNew(t *testing.T) {
	token := prefixOf("a-host-with-a-name-that-is-far-too-long.example.org") + randomHex()
	parts := strings.Split(token, ":")
	if len(token) > longestToken || len(parts) != 3 || len(parts[2]) != 16 || !strings.HasPrefix(token, "a-host-w") {
		t.Error(token)
	}
	if first, second := makeToken(), makeToken(); first == second {
		t.Error("twice the same")
	}
	if host := prefixOf("zürich"); !strings.HasPrefix(host, "z?rich:") {
		t.Error(host)
	}
}

func TestDurationsRoundUpAndSaturate(t *testing.T) {
	for given, expected := range map[time.Duration]int64{1: 1, time.Millisecond - 1: 1, time.Millisecond: 1,
		time.Millisecond + 1: 2, 1500 * time.Microsecond: 2, greatest: 9_223_372_036_855, greatest - 1: 9_223_372_036_855} {
		if found := milliseconds(given); found != expected {
			t.Errorf("%v: %d ms", given, found)
		}
	}
	for given, expected := range map[int64]time.Duration{-1: 0, 0: 0, 7: 7 * time.Millisecond,
		math.MaxInt64: greatest.Truncate(time.Millisecond)} {
		if found := durationOf(given); found != expected {
			t.Errorf("%d ms: %v", given, found)
		}
	}
	if plus(greatest, 1) != greatest || plus(1, greatest) != greatest || plus(2, 3) != 5 {
		t.Error("a sum wraps")
	}
	for range 100 {
		if found := jittered(greatest, 0.5, 1.5); found < greatest/2 {
			t.Error(found)
		}
	}
}

func TestPausesGrowAndStayBelowKeepPlace(t *testing.T) {
	var again resend
	if first := again.pause(); first > firstPause {
		t.Error(first)
	}
	for range 20 {
		again.pause()
	}
	if last := again.pause(); last < longestPause/2 || last > longestPause {
		t.Error(last)
	}
	if again.isOver(1) || !again.isOver(1) {
		t.Error("there is a second try, and no third")
	}
	if again.isOver(0) {
		t.Error("a lease that has no end has ended")
	}
}

func TestAForgottenHoldWithoutADeadlineHasNoTimer(t *testing.T) {
	h := newHold(context.Background(), &Lock{}, "t")
	if h.keep(); h.timer != nil {
		t.Error("it fires at once, again and again")
	}
}

func TestWhatAnErrorReplyMeans(t *testing.T) {
	for words, isTransient := range map[string]bool{
		"LOADING Redis is loading": true, "MOVED 1 a:1": true, "ASK 1 a:1": true, "TRYAGAIN x": true, "READONLY x": true,
		"CLUSTERDOWN x": true, "MASTERDOWN x": true, "NOREPLICAS x": true, "MISCONF x": true, "BUSY x": true, "GRACE x": true,
		"ERR max number of clients reached": true,
		"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)": true,
		"UNBLOCKED cancelled": false, "UNBLOCKED client unblocked via CLIENT UNBLOCK": false, "DEADLOCK x": false,
		"MAXWAITERS x": false, "WRONGTYPE x": false, "WRONGKIND x": false, "NOPERM x": false, "NOAUTH x": false,
		"OOM x": false, "CROSSSLOT x": false, "ERR syntax error": false,
	} {
		if f := failureOf(errorReply(words)); f.isTransient() != isTransient || f.isSent {
			t.Error(words)
		}
	}
	for words, expected := range map[string]error{"DEADLOCK x": ErrDeadlock, "WRONGTYPE x": ErrWrongType,
		"WRONGKIND x": ErrWrongKind, "MAXWAITERS x": ErrTooManyWaiters, "UNBLOCKED cancelled": ErrCancelled,
		"NOTHELD x": ErrLost, "ERR unknown command 'SEM.ACQUIRE', with": ErrNoModule,
		"ERR unknown command `LOCK.ACQUIRE`, with": ErrNoModule} {
		if err := failureOf(errorReply(words)).error(); !errors.Is(err, expected) {
			t.Error(words, err)
		}
	}
	if err := failureOf(errorReply("ERR unknown command 'NOSUCH', with")).error(); errors.Is(err, ErrNoModule) {
		t.Error(err)
	}
	if f := failureOf(errors.New("reset by peer")); !f.isSent || !f.isTransient() {
		t.Error("a broken connection may have run it")
	}
}

func FuzzReplies(f *testing.F) {
	f.Add("granted", int64(1), int64(0))
	f.Fuzz(func(_ *testing.T, text string, one, two int64) {
		// No reply ends the program.
		for _, reply := range []any{nil, text, one, []any{}, []any{text}, []any{text, one}, []any{nil, one},
			[]any{text, one, two}, []any{text, one, two, two}, []any{one, two, text}, []any{text, []any{text, one}},
			map[any]any{text: one, one: text}} {
			_, _ = answerOf(reply)
			_, _ = heldOf(reply)
			_, _ = infoOf(reply)
		}
		(&inbox{}).deliver(text)
	})
}
