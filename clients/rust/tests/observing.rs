//! The holders of a lock, and its events: `info`, `tell_holder`, observers, OpenTelemetry and the log.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::trace::{Status, TracerProvider};
use opentelemetry::{metrics::MeterProvider, Value};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use redis_lock_client::{Client, Error, Event, EventKind, HolderMode, Kind, OpenTelemetry};
use support::{Server, LIMIT};

use crate::servers::{client_of, eventually, until_lost, Observed, LONG};

#[tokio::test]
async fn info_returns_the_holders_of_every_lock_type() {
    let server = Server::start();
    for protocol in ["", "?protocol=resp3"] {
        let client = Client::open(format!("redis://127.0.0.1:{}/{protocol}", server.port())).unwrap();
        let several = client.multi_lock(["free", "several"]);
        let locks = [
            (client.mutex("mutex"), Kind::Mutex, HolderMode::Exclusive, 1, None),
            (client.reentrant("reentrant"), Kind::Reentrant, HolderMode::Exclusive, 1, None),
            (client.read_lock("read"), Kind::ReadWrite, HolderMode::Read, 0, None),
            (client.write_lock("write"), Kind::ReadWrite, HolderMode::Write, 0, None),
            (client.semaphore("semaphore", 3), Kind::Semaphore, HolderMode::Permits, 3, None),
            (client.semaphore_slot("slot", 4), Kind::Semaphore, HolderMode::Permits, 4, Some(0)),
            (several, Kind::Mutex, HolderMode::Exclusive, 1, None),
        ];
        for (lock, kind, mode, limit, slot) in locks {
            let lock = lock.lease(LONG);
            assert_eq!(lock.info().await.unwrap(), None);
            let guard = lock.acquire().await.unwrap();
            let info = lock.info().await.unwrap().expect("it is held");
            assert_eq!((info.kind, info.limit, info.waiters, info.holding), (kind, limit, 0, 1));
            let holder = &info.holders[0];
            assert_eq!((holder.mode, holder.holds, holder.slot, holder.session), (mode, 1, slot, None));
            assert_eq!(
                (holder.owner.as_bytes(), holder.fence, info.fence),
                (guard.token(), guard.fence(), guard.fence())
            );
            assert_eq!((holder.lease, info.ttl), (Some(LONG), holder.ttl));
            assert!(holder.ttl.unwrap() <= LONG && holder.age < LONG, "{holder:?}");
            guard.release().await.unwrap();
        }
        // Only the second of two keys.
        let second = client.mutex("several").lease(None).token(b"caf\xc3\xa9\xff".to_vec()).acquire().await.unwrap();
        let info = client.multi_lock(["free", "several"]).info().await.unwrap().expect("one is held");
        assert_eq!((info.ttl, info.holders[0].lease, info.holders[0].ttl), (None, None, None));
        assert_eq!(info.holders[0].owner.to_string(), "café\\xff");
        second.release().await.unwrap();
    }
    server.client().run("SET string x");
    assert!(matches!(client_of(server.port()).mutex("string").info().await, Err(Error::WrongType(_))));
}

#[tokio::test]
async fn a_session_is_the_client_id_of_its_connection() {
    let server = Server::start();
    let lock = client_of(server.port()).mutex("k").session();
    let guard = lock.acquire().await.unwrap();
    let session = lock.info().await.unwrap().unwrap().holders[0].session.expect("it has one");
    assert!(server.client().cmd(&["CLIENT", "LIST", "ID", &session.to_string()]).text().contains("cmd="));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn not_granted_names_the_holder_if_requested() {
    let server = Server::start();
    let client = client_of(server.port());
    let holder = client.multi_lock(["a", "k"]).token("web-1:7").lease(LONG).acquire().await.unwrap();
    for lock in [client.mutex("k"), client.multi_lock(["free", "k"])] {
        let lock = lock.tell_holder();
        let name = if lock.family().keys().len() > 1 { "free, k" } else { "k" };
        for refused in [lock.try_acquire().await, lock.acquire_within(Duration::from_millis(5)).await] {
            let error = refused.unwrap_err();
            assert_eq!(error.to_string(), format!("not granted: '{name}' is held by web-1:7"));
            assert!(matches!(error, Error::NotGranted { holder: Some(owner), .. } if owner == "web-1:7"));
        }
    }
    let lock = client.mutex("k").tell_holder();
    let refused = lock.acquire_coalesced(Duration::from_millis(5)).await.unwrap_err();
    assert!(matches!(refused, Error::NotGranted { .. }), "{refused}");
    let made: Result<(), Error> =
        lock.once(Duration::from_millis(5), async || Ok(None), async |_| panic!("it is held")).await;
    assert!(matches!(made, Err(Error::NotGranted { .. })));
    // A user without the right to LOCK.INFO.
    server.client().run("ACL SETUSER worker on nopass ~* &* +@all -lock.info");
    let worker = Client::open(format!("redis://worker:x@127.0.0.1:{}", server.port())).unwrap();
    let refused = worker.mutex("k").tell_holder().try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::NotGranted { holder: None, .. }), "{refused}");
    let asked = server.calls("lock.info");
    holder.release().await.unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(server.calls("lock.info"), asked, "no question on the way of a grant");
}

/// A client, and the events of its locks so far.
fn observed(server: &Server) -> (Client, Arc<Mutex<Vec<Event>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = events.clone();
    let client = client_of(server.port()).observer(move |event: &Event| seen.lock().unwrap().push(event.clone()));
    (client, events)
}

fn names(events: &Mutex<Vec<Event>>) -> Vec<String> {
    let name = |event: &Event| {
        let what = match event.kind {
            EventKind::Queued => "queued",
            EventKind::Granted { .. } => "granted",
            EventKind::NotGranted { .. } => "not granted",
            EventKind::Renewed => "renewed",
            EventKind::Lost { .. } => "lost",
            EventKind::Released { .. } => "released",
            _ => "another",
        };
        format!("{} {what}", event.family.kind())
    };
    std::mem::take(&mut *events.lock().unwrap()).iter().map(name).collect()
}

/// Without the waits: on a busy machine, a request that does not wait may take long enough to be reported as queued.
fn outcomes(events: &Mutex<Vec<Event>>) -> Vec<String> {
    names(events).into_iter().filter(|name| !name.ends_with(" queued")).collect()
}

#[tokio::test]
async fn an_observer_gets_each_event_of_every_lock_type() {
    let server = Server::start();
    let (client, events) = observed(&server);
    let locks = [
        ("mutex", client.mutex("a")),
        ("reentrant", client.reentrant("b")),
        ("read", client.read_lock("c")),
        ("write", client.write_lock("d")),
        ("semaphore", client.semaphore("e", 1)),
        ("semaphore", client.semaphore_slot("f", 1)),
        ("multi", client.multi_lock(["g", "h"])),
    ];
    for (kind, lock) in locks {
        let lock = lock.lease(LONG);
        let guard = lock.acquire().await.unwrap();
        guard.renew(LONG).await.unwrap();
        let is_granted = |event: &&Event| matches!(event.kind, EventKind::Granted { .. });
        let granted = events.lock().unwrap().iter().find(is_granted).expect("it is reported").clone();
        assert_eq!((granted.owner.as_bytes(), granted.fence), (guard.token(), Some(guard.fence())));
        assert_eq!(granted.family.keys(), lock.family().keys());
        assert!(matches!(granted.kind, EventKind::Granted { wait } if wait < LONG));
        guard.release().await.unwrap();
        let expected = ["granted", "renewed", "released"].map(|what| format!("{kind} {what}"));
        assert_eq!(outcomes(&events), expected);
        // A dropped guard, and a lock that is lost before its release.
        drop(lock.acquire().await.unwrap());
        client.settled().await;
        let lost = lock.acquire().await.unwrap();
        for key in lock.family().keys() {
            server.break_lock(std::str::from_utf8(key).unwrap());
        }
        assert!(matches!(lost.release().await, Err(Error::LockLost)));
        let expected = ["granted", "released", "granted", "lost"].map(|what| format!("{kind} {what}"));
        assert_eq!(outcomes(&events), expected);
    }
}

#[tokio::test]
async fn an_observer_gets_the_end_of_each_wait_and_losses_as_they_become_known() {
    let server = Server::start();
    let (client, events) = observed(&server);
    let holder = client_of(server.port()).mutex("k").lease(LONG).acquire().await.unwrap();
    // Renewed after each second of a lease that outlives the pauses of a busy machine.
    let lock = client.mutex("k").token("me").lease(Duration::from_secs(3)).auto_renew();
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(lock.acquire_within(Duration::from_millis(1)).await.unwrap().is_none());
    assert_eq!(outcomes(&events), ["mutex not granted"; 2]);
    // Cancelled.
    tokio::select! {
        acquired = lock.acquire() => panic!("another one holds it: {acquired:?}"),
        () = eventually("it is reported as queued", || !events.lock().unwrap().is_empty()) => {}
    }
    client.settled().await;
    assert_eq!(names(&events), ["mutex queued", "mutex not granted"]);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    eventually("it is reported as queued", || !events.lock().unwrap().is_empty()).await;
    let queued = events.lock().unwrap()[0].clone();
    assert_eq!((queued.owner.to_string(), queued.fence), ("me".to_string(), None));
    holder.release().await.unwrap();
    let guard = tokio::time::timeout(LIMIT, waiting).await.expect("it is free").unwrap().unwrap();
    let granted = events.lock().unwrap()[1].kind;
    assert!(matches!(granted, EventKind::Granted { wait } if wait >= Duration::from_millis(100)), "{granted:?}");
    eventually("it is renewed", || events.lock().unwrap().len() >= 3).await;
    server.break_lock("k");
    until_lost(&guard).await;
    assert!(matches!(guard.release().await, Err(Error::LockLost)));
    let mut reported = names(&events);
    reported.dedup();
    assert_eq!(reported, ["mutex queued", "mutex granted", "mutex renewed", "mutex lost"]);
}

#[tokio::test]
async fn a_failed_release_is_reported_once_with_its_result() {
    let server = Server::start();
    let mut admin = server.client();
    admin.run("ACL SETUSER worker on nopass ~* &* +@all");
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = events.clone();
    let client = Client::open(format!("redis://worker:x@127.0.0.1:{}", server.port())).unwrap();
    let client = client.observer(move |event: &Event| seen.lock().unwrap().push(event.clone()));
    // The background attempt succeeds, or fails like the caller's.
    let lock = client.mutex("k").lease(LONG);
    for (rights, reported) in [("+lock.release", "released"), ("-lock.release", "lost")] {
        let guard = lock.acquire().await.unwrap();
        admin.run("ACL SETUSER worker -lock.release");
        assert!(matches!(guard.release().await, Err(Error::Redis(_))));
        // Before the background task runs: this is the only thread.
        admin.run(&format!("ACL SETUSER worker {rights}"));
        client.settled().await;
        assert_eq!(outcomes(&events), ["granted", reported].map(|what| format!("mutex {what}")));
        admin.run("ACL SETUSER worker +lock.release");
    }
    // An inner hold whose release fails is not a loss of the outer one, and is released together with it.
    let lock = client.reentrant("r").lease(LONG);
    for (is_lost, reported) in [(false, "released"), (true, "lost")] {
        let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
        admin.run("ACL SETUSER worker -rlock.release");
        assert!(matches!(inner.release().await, Err(Error::Redis(_))));
        client.settled().await;
        admin.run("ACL SETUSER worker +rlock.release");
        if is_lost {
            server.break_lock("r");
        }
        assert_eq!(outer.release().await.is_err(), is_lost);
        assert!(server.is_free("r"));
        assert_eq!(outcomes(&events), ["granted", "granted", reported].map(|what| format!("reentrant {what}")));
    }
}

#[tokio::test]
async fn an_observer_that_panics_changes_nothing() {
    let server = Server::start();
    let client = client_of(server.port()).observer(|_: &Event| panic!("the observer of a test"));
    let guard = client.mutex("k").acquire().await.unwrap();
    assert!(client.mutex("k").try_acquire().await.unwrap().is_none());
    guard.renew(LONG).await.unwrap();
    guard.release().await.unwrap();
    assert!(server.is_free("k"));
}

#[tokio::test]
async fn opentelemetry_has_spans_and_histograms() {
    let server = Server::start();
    let (spans, metrics) = (InMemorySpanExporter::default(), InMemoryMetricExporter::default());
    let tracers = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
    let meters = SdkMeterProvider::builder().with_periodic_exporter(metrics.clone()).build();
    let telemetry = OpenTelemetry::new(tracers.tracer("test"), &meters.meter("test"));
    let client = client_of(server.port()).observer(telemetry);
    let lock = client.mutex("k").lease(LONG).token("me");
    let guard = lock.acquire().await.unwrap();
    let fence = guard.fence();
    assert!(client.mutex("k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let lost = lock.acquire().await.unwrap();
    server.break_lock("k");
    assert!(matches!(lost.release().await, Err(Error::LockLost)));

    let spans = spans.get_finished_spans().unwrap();
    let outcome = |span: &SpanData| format!("{} {}", span.name, attribute(span, "redislock.outcome").unwrap());
    let reported: Vec<String> = spans.iter().map(outcome).collect();
    let expected = ["acquire granted", "acquire not_granted", "hold released", "acquire granted", "hold lost"];
    assert_eq!(reported, expected.map(|reported| format!("redislock.{reported}")));
    let held = &spans[2];
    let shown = ["kind", "key", "owner"].map(|name| attribute(held, &format!("redislock.{name}")).unwrap().to_string());
    assert_eq!(shown, ["mutex", "k", "me"]);
    assert_eq!(attribute(held, "redislock.fence"), Some(Value::I64(fence.cast_signed())));
    assert!(held.start_time < held.end_time && held.status == Status::Unset);
    assert!(matches!(&spans[4].status, Status::Error { .. }));

    meters.force_flush().unwrap();
    let exported = metrics.get_finished_metrics().unwrap();
    let mut counted = Vec::new();
    for metric in exported.iter().flat_map(|all| all.scope_metrics()).flat_map(|scope| scope.metrics()) {
        let AggregatedMetrics::F64(MetricData::Histogram(histogram)) = metric.data() else { panic!("{metric:?}") };
        assert_eq!(metric.unit(), "s");
        for point in histogram.data_points() {
            let mut attributes: Vec<String> =
                point.attributes().map(|one| format!("{}={}", one.key, one.value)).collect();
            attributes.sort();
            assert!(point.bounds().take_while(|bound| *bound < 1.0).count() > 5, "times are seconds");
            counted.push(format!("{} {} {}", metric.name(), attributes.join(" "), point.count()));
        }
    }
    counted.sort();
    let expected = [("hold", "lost", 1), ("hold", "released", 1), ("wait", "granted", 2), ("wait", "not_granted", 1)];
    let line = |(what, outcome, count)| {
        format!("redislock.{what}.duration redislock.kind=mutex redislock.outcome={outcome} {count}")
    };
    assert_eq!(counted, expected.map(line));
}

fn attribute(span: &SpanData, name: &str) -> Option<Value> {
    span.attributes.iter().find(|attribute| attribute.key.as_str() == name).map(|attribute| attribute.value.clone())
}

/// The `tracing` output of this crate's target, one line each.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// For the whole program: all tests are logged.
    pub fn global() -> &'static Log {
        static LOG: std::sync::OnceLock<Log> = std::sync::OnceLock::new();
        LOG.get_or_init(|| {
            let log = Log::default();
            tracing::subscriber::set_global_default(log.clone()).expect("no other test sets one");
            log
        })
    }

    /// The lines about this key.
    pub fn about(&self, key: &str) -> Vec<String> {
        let about = format!("key=\"{key}\"");
        self.0.lock().unwrap().iter().filter(|line| line.contains(&about)).cloned().collect()
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "redis_lock"
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Line(String);
        impl tracing::field::Visit for Line {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!(" {field}={value:?}");
            }
        }
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn the_log_has_key_owner_fence_and_duration() {
    let server = Server::start();
    let client = client_of(server.port());
    let log = Log::global();
    let guard = client.mutex("logged").token("me").acquire().await.unwrap();
    let fence = guard.fence();
    guard.release().await.unwrap();
    let mut lines = log.about("logged");
    // On a busy machine it may be reported as queued too.
    lines.retain(|line| !line.contains("message=queued"));
    for (line, what) in lines.iter().zip(["granted", "released"]) {
        for part in ["DEBUG ", "owner=me", &format!("fence={fence}"), "after=", &format!("message={what}")] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    assert_eq!(lines.len(), 2, "{lines:?}");
}
