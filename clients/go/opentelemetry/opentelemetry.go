// Package opentelemetry records OpenTelemetry spans and histograms for the locks of a client.
package opentelemetry

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	redislock "github.com/redis-lock/redis-lock/clients/go"
)

const name = "redislock"

// seconds are the bucket bounds, from an uncontended grant to the longest waits and holds. The default bounds are for
// milliseconds.
var seconds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1800}

// Observer returns an observer for [redislock.WithObserver]. It records the spans redislock.acquire and redislock.hold,
// and the histograms redislock.wait.duration and redislock.hold.duration in seconds, with the attributes redislock.kind
// and redislock.outcome (granted, not_granted; released, lost). Key, owner and fence are attributes of the spans only.
//
// A nil provider stands for the global one, as it is when Observer is called. The error is that of creating a
// histogram.
func Observer(tracers trace.TracerProvider, meters metric.MeterProvider) (func(redislock.Event), error) {
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	tracer, meter := tracers.Tracer(name), meters.Meter(name)
	wait, err := histogram(meter, "redislock.wait.duration", "From the call of an acquire to its end")
	if err != nil {
		return nil, err
	}
	hold, err := histogram(meter, "redislock.hold.duration", "From a grant to its end")
	if err != nil {
		return nil, err
	}
	record := func(e redislock.Event, span, outcome string, of metric.Float64Histogram) {
		ctx := context.WithoutCancel(e.Context)
		attributes := []attribute.KeyValue{attribute.String("redislock.kind", e.Lock),
			attribute.String("redislock.outcome", outcome)}
		of.Record(ctx, e.Time.Seconds(), metric.WithAttributes(attributes...))
		now := time.Now()
		attributes = append(attributes, attribute.String("redislock.key", strings.Join(e.Keys, ", ")),
			attribute.String("redislock.owner", e.Owner))
		if e.Fence != 0 {
			attributes = append(attributes, attribute.Int64("redislock.fence", int64(e.Fence)))
		}
		_, s := tracer.Start(ctx, span, trace.WithTimestamp(now.Add(-e.Time)), trace.WithAttributes(attributes...))
		if e.Kind == redislock.EventLost {
			s.SetStatus(codes.Error, "the lock was lost")
		}
		s.End(trace.WithTimestamp(now))
	}
	return func(e redislock.Event) {
		switch e.Kind {
		case redislock.EventGranted:
			record(e, "redislock.acquire", "granted", wait)
		case redislock.EventNotGranted:
			record(e, "redislock.acquire", "not_granted", wait)
		case redislock.EventReleased:
			record(e, "redislock.hold", "released", hold)
		case redislock.EventLost:
			record(e, "redislock.hold", "lost", hold)
		case redislock.EventQueued, redislock.EventRenewed:
		}
	}, nil
}

func histogram(meter metric.Meter, name, description string) (metric.Float64Histogram, error) {
	return meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(seconds...))
}
