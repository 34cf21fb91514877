package tests

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
)

// logs keeps the client's log lines of level info and above, by the key of the lock. The tests share slog's default
// logger, so each uses its own keys.
type logs struct {
	slog.Handler
	mu    sync.Mutex
	lines map[string][]string
}

var all = &logs{Handler: slog.NewTextHandler(os.Stderr, nil), lines: map[string][]string{}}

func init() { slog.SetDefault(slog.New(all)) }

func (l *logs) Handle(ctx context.Context, record slog.Record) error {
	key, line := "", fmt.Sprint(record.Level, " ", record.Message)
	record.Attrs(func(each slog.Attr) bool {
		if each.Key == "key" {
			key = each.Value.String()
		}
		line += fmt.Sprint(" ", each)
		return true
	})
	l.mu.Lock()
	l.lines[key] = append(l.lines[key], line)
	l.mu.Unlock()
	return l.Handler.Handle(ctx, record)
}

// logged returns the lines about a key.
func logged(key string) []string {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.Clone(all.lines[key])
}
