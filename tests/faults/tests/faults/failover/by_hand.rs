//! An operator promotes the replica: the primary was killed (`REPLICAOF NO ONE`), or is healthy (`FAILOVER`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use faults::judge::{assert_drained, breaches, breaches_despite_losses, holds, lost, overlaps, Scope};
use faults::proxy::{Direction, Proxy};
use faults::{seconds, History, Lock, Outcome, Plan, Recorder, Row, Switch, Wait, Workers, ADOPT};
use support::{in_sync, until, Reply, Server};

use super::{online_replicas, replication, role, GRANTS};
use crate::witness::{witnessed, Witness, LONG};

/// How many bytes the replica lacks when the primary dies: some grants.
const LAG: i64 = 2_000;

/// The differences between trials.
#[derive(Clone, Copy)]
struct Trial {
    /// The lease of the witness on the old primary; workers' leases are at most a second.
    lease: Duration,
    grace: Duration,
    wait: Option<Wait>,
}

const PLAIN: Trial = Trial { lease: LONG, grace: Duration::ZERO, wait: None };

#[test]
fn unreplicated_grants_are_lost_and_fences_order_the_two_holders() {
    let (row, history) = promote_again_and_again("REPLICAOF NO ONE, the replica lagged", PLAIN);
    let holds = holds(&history);
    // The tests below check that such losses do not happen; here they do.
    assert!(lost(&holds).len() >= row.faults, "{row:?}");
    assert!(overlaps(&holds).len() >= row.faults, "{row:?}");
    row.report();
}

#[test]
fn with_wait_nothing_acknowledged_is_lost() {
    let wait = Wait { replicas: 1, limit: Duration::from_millis(100) };
    let (row, history) =
        promote_again_and_again("REPLICAOF NO ONE, the replica lagged, WAIT 1", Trial { wait: Some(wait), ..PLAIN });
    assert_eq!(breaches(&history, Scope::Server), Vec::<String>::new());
    row.report();
}

#[test]
fn with_a_grace_of_the_longest_lease_no_holds_overlap() {
    let lease = Duration::from_millis(1_500);
    let (row, history) = promote_again_and_again(
        "REPLICAOF NO ONE, the replica lagged, lock.grace",
        Trial { lease, grace: lease, ..PLAIN },
    );
    // A release can be lost too: the former holder may act as the holder again until the lease expires.
    assert_eq!(overlaps(&holds(&history)), []);
    row.report();
}

/// A primary, and a replica that follows it through a proxy.
struct Pair {
    primary: Server,
    link: Proxy,
    replica: Server,
}

impl Pair {
    #[track_caller]
    fn of(primary: Server, trial: Trial) -> Pair {
        let link = Proxy::to(primary.port()).expect("a port is free");
        let replica = Server::builder()
            .config(ADOPT)
            .config(format!("lock.grace {}", trial.grace.as_millis()))
            .config(format!("replicaof 127.0.0.1 {}", link.port()))
            .start();
        until("the replica is online", || online_replicas(&primary) == 1);
        Pair { primary, link, replica }
    }

    /// Waits until the replica lacks this many bytes.
    fn wait_for_lag(&self, bytes: i64) {
        let offset = |server: &Server, field| replication(server).map(|info| info.number(field));
        until("the replica lags", || {
            let sent = offset(&self.primary, "master_repl_offset");
            let received = offset(&self.replica, "slave_repl_offset");
            sent.zip(received).is_some_and(|(sent, received)| sent - received >= bytes)
        });
    }
}

/// Repeatedly kills the primary while the replica lags, and promotes the replica. Fencing tokens are judged here.
fn promote_again_and_again(scenario: &str, trial: Trial) -> (Row, History) {
    let plan = Plan { lease: Duration::from_secs(1), wait: trial.wait, ..Plan::mixed().with_adopted("adopted") };
    let mut pair = Pair::of(Server::builder().config(ADOPT).start(), trial);
    let switch = Arc::new(Switch::to(address(&pair.primary)));
    let recorder = Recorder::new();
    let workers = Workers::start(&plan, &recorder, switch.clone());
    let witness = |number, owner| Witness::new(number, owner, &recorder, switch.clone());
    let (started, mut faults) = (Instant::now(), 0);
    while faults == 0 || started.elapsed() < seconds() {
        workers.wait_for_grants(GRANTS);
        pair.link.stall(&[Direction::ToClient]);
        let mut old = witness(100, format!("old-{faults}"));
        old.caller = old.caller.wait(trial.wait);
        let granted = old.acquire(trial.lease);
        assert_eq!(trial.wait.is_none(), matches!(granted, Outcome::Granted { .. }), "{granted:?}");
        pair.wait_for_lag(LAG);
        pair.primary.kill();
        pair.link.cut();
        assert_eq!(pair.replica.client().run("REPLICAOF NO ONE"), Reply::ok());
        switch.set(address(&pair.replica));
        let mut new = witness(101, format!("new-{faults}"));
        let granted = new.acquire(trial.lease);
        assert!(matches!(granted, Outcome::Granted { .. }), "{granted:?}");
        assert_eq!(old.renew(trial.lease), Outcome::NotHeld);
        new.release();
        pair = Pair::of(pair.replica, trial);
        faults += 1;
    }
    workers.wait_for_grants(GRANTS);
    let history = workers.stop();
    judge(scenario, faults, history, &pair.primary, &plan.locks)
}

#[test]
fn failover_there_and_back_loses_nothing() {
    fail_over_again_and_again("FAILOVER", Duration::ZERO);
}

#[test]
fn failover_with_a_grace_loses_nothing() {
    fail_over_again_and_again("FAILOVER, lock.grace", Duration::from_millis(1_500));
}

/// The two servers alternate; one witness holds its lock throughout.
fn fail_over_again_and_again(scenario: &str, grace: Duration) {
    let plan = Plan { lease: Duration::from_secs(1), ..Plan::mixed().with_adopted("adopted") };
    let builder = Server::builder().config(ADOPT).config(format!("lock.grace {}", grace.as_millis()));
    let mut primary = Server::builder().config(ADOPT).start();
    let mut replica = builder.replica_of(&primary).start();
    primary.client().run(&format!("CONFIG SET lock.grace {}", grace.as_millis()));
    until("the replica is online", || online_replicas(&primary) == 1);
    let switch = Arc::new(Switch::to(address(&primary)));
    let recorder = Recorder::new();
    let workers = Workers::start(&plan, &recorder, switch.clone());
    let mut witness = Witness::new(100, "holder".into(), &recorder, switch.clone());
    let granted = witness.acquire(LONG);
    assert!(matches!(granted, Outcome::Granted { .. }), "{granted:?}");
    let (started, mut faults) = (Instant::now(), 0);
    while faults < 2 || started.elapsed() < seconds() {
        workers.wait_for_grants(GRANTS);
        assert_eq!(primary.client().run("FAILOVER"), Reply::ok());
        until("the replica has taken over", || role(&replica).is_some_and(|role| role == "master"));
        switch.set(address(&replica));
        until("the primary follows it", || role(&primary).is_some_and(|role| role == "slave"));
        in_sync(&replica, &primary);
        until("the old primary is an online replica", || online_replicas(&replica) == 1);
        (primary, replica) = (replica, primary);
        assert_eq!(witness.renew(LONG), Outcome::Done, "the holder is still there");
        // A retry returns the same grant.
        assert_eq!(witness.acquire(LONG), granted);
        faults += 1;
    }
    workers.wait_for_grants(GRANTS);
    assert_eq!(witness.release(), Outcome::Done);
    let history = workers.stop();
    let (row, history) = judge(scenario, faults, history, &primary, &plan.locks);
    assert_eq!(breaches(&history, Scope::Server), Vec::<String>::new());
    row.report();
}

/// What every failover promises: no waiter is forgotten, and fencing tokens grow.
#[track_caller]
fn judge(scenario: &str, faults: usize, history: History, primary: &Server, locks: &[Lock]) -> (Row, History) {
    let locks = [locks, &[witnessed()]].concat();
    assert_drained(&mut primary.client(), &locks);
    assert_eq!(breaches_despite_losses(&history, Scope::Server), Vec::<String>::new());
    (Row::of(scenario, &primary.info("server").version(), faults, &history), history)
}

fn address(server: &Server) -> std::net::SocketAddr {
    ([127, 0, 0, 1], server.port()).into()
}
