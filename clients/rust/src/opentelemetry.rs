//! OpenTelemetry spans and histograms (feature `opentelemetry`): an [`Observer`](crate::Observer).

use std::time::{Duration, SystemTime};

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::metrics::{Histogram, Meter};
use opentelemetry::trace::{Span, SpanBuilder, Status, Tracer};
use opentelemetry::KeyValue;

use crate::observer::{Event, EventKind, Observer};

const NAME: &str = "redislock";

/// Bucket bounds, from an uncontended grant to the longest waits and holds. The default bounds are for milliseconds.
const SECONDS: [f64; 18] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0];

/// An observer that records the spans `redislock.acquire` and `redislock.hold`, and the histograms
/// `redislock.wait.duration` and `redislock.hold.duration` in seconds, with the attributes `redislock.kind` and
/// `redislock.outcome` (`granted`, `not_granted`; `released`, `lost`). Key, owner and fence are attributes of the spans
/// only.
///
/// ```
/// # use redis_lock_client::{Client, OpenTelemetry, Result};
/// # fn client() -> Result<Client> {
/// // The program has set the providers with `opentelemetry::global`.
/// let client = Client::open("redis://127.0.0.1/")?.observer(OpenTelemetry::global());
/// # Ok(client)
/// # }
/// ```
pub struct OpenTelemetry<T: Tracer = BoxedTracer> {
    tracer: T,
    wait: Histogram<f64>,
    hold: Histogram<f64>,
}

impl OpenTelemetry {
    /// Uses the global providers, which the program must set first.
    pub fn global() -> OpenTelemetry {
        OpenTelemetry::new(global::tracer(NAME), &global::meter(NAME))
    }
}

impl<T: Tracer> OpenTelemetry<T> {
    /// Uses the given tracer and meter.
    pub fn new(tracer: T, meter: &Meter) -> OpenTelemetry<T> {
        let histogram = |name, description| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(description);
            histogram.with_boundaries(SECONDS.to_vec()).build()
        };
        OpenTelemetry {
            tracer,
            wait: histogram("redislock.wait.duration", "From the call of an acquire to its end"),
            hold: histogram("redislock.hold.duration", "From a grant to its end"),
        }
    }

    fn record(&self, event: &Event, span: &'static str, outcome: &'static str, time: Duration) {
        let attributes =
            [KeyValue::new("redislock.kind", event.family.kind()), KeyValue::new("redislock.outcome", outcome)];
        let histogram = if span == ACQUIRE { &self.wait } else { &self.hold };
        histogram.record(time.as_secs_f64(), &attributes);

        let (now, keys) = (SystemTime::now(), event.family.name());
        let mut attributes = attributes.to_vec();
        attributes.push(KeyValue::new("redislock.key", keys));
        attributes.push(KeyValue::new("redislock.owner", event.owner.to_string()));
        attributes.extend(event.fence.map(|fence| KeyValue::new("redislock.fence", fence.cast_signed())));
        // The parent is the current span of the task that acquires or releases.
        let builder = SpanBuilder::from_name(span).with_start_time(now - time).with_attributes(attributes);
        let mut span = self.tracer.build(builder);
        if outcome == "lost" {
            span.set_status(Status::error("the lock was lost"));
        }
        span.end_with_timestamp(now);
    }
}

const ACQUIRE: &str = "redislock.acquire";
const HOLD: &str = "redislock.hold";

impl<T: Tracer + Send + Sync> Observer for OpenTelemetry<T> {
    fn observe(&self, event: &Event) {
        match event.kind {
            EventKind::Granted { wait } => self.record(event, ACQUIRE, "granted", wait),
            EventKind::NotGranted { wait } => self.record(event, ACQUIRE, "not_granted", wait),
            EventKind::Released { hold } => self.record(event, HOLD, "released", hold),
            EventKind::Lost { hold } => self.record(event, HOLD, "lost", hold),
            EventKind::Queued | EventKind::Renewed => {}
        }
    }
}
