//! A fault under load, on one server that keeps everything.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use faults::judge::{assert_drained, breaches, Scope};
use faults::{seconds, Observer, Plan, Recorder, Row, Workers};
use support::Server;

use crate::judged::assert_none;

/// Queues are long, requests wait until they are granted, some clients die while holding. Its servers have `ADOPT`.
pub fn waiting() -> Plan {
    Plan {
        workers: 12,
        block: Duration::from_secs(10),
        lease: Duration::from_millis(500),
        die_one_in: 50,
        ..Plan::mixed().with_adopted("adopted")
    }
}

/// Every request goes to this server, including after a restart.
pub fn route(server: &Server) -> Arc<impl Fn() -> SocketAddr + Send + Sync> {
    let address = ([127, 0, 0, 1], server.port()).into();
    Arc::new(move || address)
}

/// Causes a fault repeatedly while workers run, and checks that nothing was broken.
pub fn under_load(scenario: &str, server: &Server, plan: &Plan, mut fault: impl FnMut(&Workers)) {
    let address = ([127, 0, 0, 1], server.port()).into();
    let recorder = Recorder::new();
    let pid = Arc::new(AtomicU32::new(server.pid()));
    let observer = Observer::start(&recorder, &plan.locks, Arc::new(move || address), pid);
    let workers = Workers::start(plan, &recorder, Arc::new(move || address));
    let (started, mut faults) = (Instant::now(), 0);
    while faults < 3 || started.elapsed() < seconds() {
        fault(&workers);
        faults += 1;
    }
    workers.wait_for_grants(10);
    let history = workers.stop();
    observer.stop();
    assert_drained(&mut server.client(), &plan.locks);
    assert_none(&breaches(&history, Scope::Server));
    Row::of(scenario, &server.info("server").version(), faults, &history).report();
}
