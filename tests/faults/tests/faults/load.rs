//! A fault beside workers, on one server that keeps everything.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use faults::judge::{assert_drained, breaches, Scope};
use faults::{seconds, Kind, Lock, Observer, Plan, Recorder, Row, Workers};
use support::{Client, Server};

use crate::judged::assert_none;

/// Queues are long, requests wait until they are granted, some clients die while they hold.
pub fn waiting() -> Plan {
    Plan {
        workers: 12,
        block: Duration::from_secs(10),
        lease: Duration::from_millis(500),
        die_one_in: 50,
        ..Plan::mixed()
    }
}

/// Every request goes to this server, and after a restart to it again.
pub fn route(server: &Server) -> Arc<impl Fn() -> SocketAddr + Send + Sync> {
    let address = ([127, 0, 0, 1], server.port()).into();
    Arc::new(move || address)
}

/// Two clients, of which one dies all the time, at a key that nobody else touches: only the server itself can notice
/// that the lease has ended.
fn quiet() -> Plan {
    Plan {
        workers: 2,
        locks: vec![Lock::new("quiet", Kind::Mutex)],
        lease: Duration::from_millis(300),
        die_one_in: 2,
        ..waiting()
    }
}

/// Somebody waits for a lock that is held for a long time: what is due by itself is due before that.
fn bystanders(server: &Server) -> [Client; 2] {
    let [mut holder, mut waiter] = [server.client(), server.client()];
    assert!(holder.run("LOCK.ACQUIRE long a PX 600000").fence() > 0);
    waiter.send_line("LOCK.ACQUIRE long b BLOCK 0");
    server.wait_blocked(1);
    [holder, waiter]
}

/// Has a fault made again and again beside workers, and judges that nothing was broken.
pub fn under_load(scenario: &str, server: &Server, plan: &Plan, mut fault: impl FnMut(&Workers)) {
    let address = ([127, 0, 0, 1], server.port()).into();
    let recorder = Recorder::new();
    let pid = Arc::new(AtomicU32::new(server.pid()));
    let observer = Observer::start(&recorder, &plan.locks, Arc::new(move || address), pid);
    let _bystanders = bystanders(server);
    let quiet_workers = Workers::start(&quiet(), &recorder, Arc::new(move || address));
    let workers = Workers::start(plan, &recorder, Arc::new(move || address));
    let (started, mut faults) = (Instant::now(), 0);
    while faults < 3 || started.elapsed() < seconds() {
        fault(&workers);
        faults += 1;
    }
    workers.wait_for_grants(10);
    quiet_workers.stop();
    let history = workers.stop();
    observer.stop();
    assert_drained(&mut server.client(), &[plan.locks.clone(), quiet().locks].concat());
    assert_none(&breaches(&history, Scope::Server));
    Row::of(scenario, &server.info("server").version(), faults, &history).report();
}
