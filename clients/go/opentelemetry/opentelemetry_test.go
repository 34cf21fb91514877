package opentelemetry_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/servertest"
	"github.com/redis-lock/redis-lock/clients/go/opentelemetry"
)

func TestSpansAndHistograms(t *testing.T) {
	server := servertest.Start(t)
	spans := tracetest.NewSpanRecorder()
	reader := metric.NewManualReader()
	tracers := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	observer, err := opentelemetry.Observer(tracers, metric.NewMeterProvider(metric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locks := redislock.New(rdb, redislock.WithObserver(observer))
	defer func() { locks.Close(); _ = rdb.Close() }()

	ctx, request := tracers.Tracer("test").Start(context.Background(), "request")
	hold, err := locks.Mutex("k").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Mutex("k").TryLock(ctx); !errors.Is(err, redislock.ErrNotAcquired) {
		t.Fatal(err)
	}
	server.Break("k")
	if err := hold.Unlock(ctx); !errors.Is(err, redislock.ErrLost) {
		t.Fatal(err)
	}
	hold, _ = locks.Mutex("k").Lock(ctx)
	if err := hold.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	request.End()

	var found []string
	for _, span := range spans.Ended() {
		if span.Name() == "request" {
			continue
		}
		if span.Parent().SpanID() != request.SpanContext().SpanID() || span.EndTime().Before(span.StartTime()) {
			t.Fatal(span)
		}
		outcome := ""
		for _, attribute := range span.Attributes() {
			if attribute.Key == "redislock.outcome" {
				outcome = attribute.Value.AsString()
			}
		}
		if (span.Status().Code == codes.Error) != (outcome == "lost") {
			t.Fatal(span.Status())
		}
		found = append(found, span.Name()+" "+outcome)
	}
	expected := []string{"redislock.acquire granted", "redislock.acquire not_granted", "redislock.hold lost",
		"redislock.acquire granted", "redislock.hold released"}
	if len(found) != len(expected) {
		t.Fatal(found)
	}
	for i := range found {
		if found[i] != expected[i] {
			t.Fatal(found)
		}
	}
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, each := range collected.ScopeMetrics[0].Metrics {
		for _, point := range each.Data.(metricdata.Histogram[float64]).DataPoints {
			counts[each.Name] += point.Count
		}
	}
	if counts["redislock.wait.duration"] != 3 || counts["redislock.hold.duration"] != 2 {
		t.Fatal(counts)
	}
}
