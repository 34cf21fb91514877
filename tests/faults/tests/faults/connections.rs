//! Connections that close at any moment, with or without a pending request: only replies are lost.

use std::sync::atomic::AtomicU32;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use faults::judge::{breaches, Scope};
use faults::{seconds, Kind, Lock, Observer, Plan, Recorder, Row, Workers, ADOPT};
use support::Server;

use crate::judged::assert_none;
use crate::load::{under_load, waiting};

#[test]
fn killed_connections_lose_only_their_replies() {
    let server = Server::builder().config(ADOPT).start();
    let mut client = server.client();
    under_load("CLIENT KILL of all clients", &server, &waiting(), |workers| {
        workers.wait_for_grants(10);
        client.run("CLIENT KILL TYPE normal SKIPME yes");
    });
}

/// Each client dies while holding, and others wait: the server receives no command when the lease expires, and must
/// notice by itself. A waiter for another lock, with a lease of minutes, must not make it miss that.
#[test]
fn an_idle_server_expires_the_leases_of_dead_clients() {
    let server = Server::builder().config("hz 1").start();
    let [mut holder, mut waiter] = [server.client(), server.client()];
    assert!(holder.run("LOCK.ACQUIRE long a PX 600000").fence() > 0);
    waiter.send_line("LOCK.ACQUIRE long b BLOCK 0");
    server.wait_blocked(1);

    let address = ([127, 0, 0, 1], server.port()).into();
    let (recorder, pid) = (Recorder::new(), Arc::new(AtomicU32::new(server.pid())));
    let observer = Observer::start(&recorder, &[], Arc::new(move || address), pid);
    let locks = vec![Lock::new("k", Kind::Mutex)];
    let plan = Plan { workers: 2, locks, lease: Duration::from_millis(200), die_one_in: 1, ..waiting() };
    let workers = Workers::start(&plan, &recorder, Arc::new(move || address));
    thread::sleep(seconds());
    let history = workers.stop();
    observer.stop();
    assert_none(&breaches(&history, Scope::Server));
    let row = Row::of("clients that die while holding a lock", &server.info("server").version(), 0, &history);
    Row { faults: row.grants, ..row }.report();
}
