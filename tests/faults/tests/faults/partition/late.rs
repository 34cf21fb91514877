//! The network is cut between a client and the primary, and heals when the client's lease has expired: packets in
//! flight arrive late.

use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use faults::judge::{fences, holds, overlaps, Scope};
use faults::proxy::{Direction, Proxy};
use faults::{Guarded, Outcome, Recorder, Route, Row, Switch};
use support::{Reply, Server};

use super::on_hosts;
use super::world::{Config, World};
use crate::witness::{witnessed, Witness, LONG, REPLY_TIMEOUT};

/// It expires during the cut.
const SHORT: Duration = Duration::from_millis(1_000);

#[test]
fn a_late_request_of_a_former_holder_is_rejected_with_proxies() {
    a_late_request_is_rejected(&World::behind_proxies(&Config::default()), "proxies");
}

#[test]
fn a_late_request_of_a_former_holder_is_rejected_on_a_network() {
    if let Some(world) = on_hosts(&Config::default()) {
        a_late_request_is_rejected(&world, "hosts");
    }
}

fn a_late_request_is_rejected(world: &World, network: &str) {
    let recorder = Recorder::new();
    let mut near = Witness::new(100, "near".into(), &recorder, world.near.clone());
    let mut far = Witness::new(101, "far".into(), &recorder, world.far.clone());
    far.caller = far.caller.reply_timeout(REPLY_TIMEOUT);
    let lock = witnessed();
    let granted = far.acquire(SHORT);
    assert!(matches!(granted, Outcome::Granted { .. }), "{granted:?}");
    let mut unguarded = world.far.connect(world.far.address(&lock.key), REPLY_TIMEOUT).expect("it is connected");
    unguarded.run("SET plain 0");

    world.split();
    unguarded.send_line("SET plain 1");
    let (sends, sent) = mpsc::channel();
    let late = thread::spawn(move || {
        sends.send(()).expect("a request waits for it");
        far.caller.write(&witnessed(), "far", 1)
    });
    sent.recv().expect("it sends");
    let granted = near.acquire(LONG);
    assert!(matches!(granted, Outcome::Granted { .. }), "{granted:?}");
    assert_eq!(near.caller.write(&lock, "near", 2), Outcome::Done);
    world.primary.client().run("SET plain 2");

    world.heal();
    assert_eq!(late.join().expect("it gets its reply"), Outcome::NotHeld);
    assert_eq!(near.caller.read(&lock, "near"), Outcome::Value(Some(2)));
    assert_eq!(near.release(), Outcome::Done);
    // Without the lock's check, a late write succeeds.
    assert_eq!(unguarded.read(), Reply::ok());
    assert_eq!(world.primary.client().run("GET plain"), Reply::bulk("1"));
    let history = recorder.history();
    assert_eq!(overlaps(&holds(&history)), []);
    assert_eq!(fences(&holds(&history), Scope::Server), Vec::<String>::new());
    let version = world.primary.info("server").version();
    Row::of(&format!("partition ({network}) of a holder from the primary"), &version, 1, &history).report();
}

/// By its own clock its owner is not certain of it, and the guarded resource has seen a later fencing token.
#[test]
fn a_grant_that_arrives_after_lease_expiry_is_worthless() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).expect("a port is free");
    let route = |port: u16| Switch::to(([127, 0, 0, 1], port).into());
    let recorder = Recorder::new();
    let mut near = Witness::new(100, "near".into(), &recorder, Arc::new(route(server.port())));
    let mut far = Witness::new(101, "far".into(), &recorder, Arc::new(route(proxy.port())));
    far.caller = far.caller.reply_timeout(REPLY_TIMEOUT);
    assert!(matches!(near.acquire(LONG), Outcome::Granted { .. }));
    let far_waits = thread::spawn(move || (far.acquire(SHORT), far));
    server.wait_blocked(1);

    proxy.stall(&[Direction::ToClient]);
    assert_eq!(near.release(), Outcome::Done);
    let mut again = Witness::new(100, "again".into(), &recorder, Arc::new(route(server.port())));
    let Outcome::Granted { fence } = again.acquire(LONG) else { panic!("the lease has ended") };
    let guarded = Guarded::default();
    assert_eq!(again.caller.write_by_fence(&guarded, &witnessed(), "again", fence, 2), Outcome::Done);

    proxy.heal();
    let (granted, mut far) = far_waits.join().expect("it gets its reply");
    let Outcome::Granted { fence: late } = granted else { panic!("it was granted: {granted:?}") };
    assert_eq!(far.caller.write_by_fence(&guarded, &witnessed(), "far", late, 1), Outcome::NotHeld);
    assert_eq!(far.renew(LONG), Outcome::NotHeld);
    assert_eq!(overlaps(&holds(&recorder.history())), []);
    Row::of("a grant held back until its lease has expired", &server.info("server").version(), 1, &recorder.history())
        .report();
}
