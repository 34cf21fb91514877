//! Six cluster nodes under load: slots that move, primaries that fail, migrations that are aborted. All locks are in
//! one slot, so that each fault affects all of them.

mod failover;
mod migrate_slots;
mod reshard;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use faults::judge::{assert_drained, breaches, breaches_despite_losses, holds, Hold, Scope};
use faults::{
    companion, seconds, Action, Cluster, History, Kind, Lock, Operation, Outcome, Plan, Recorder, Row, Workers,
};
use support::{skip, until, Builder, Client, Info, Reply};

use crate::judged::assert_none;

/// The minimum number of grants between two faults.
const GRANTS: usize = 30;

/// No node must be considered failed: longer than any test takes.
const NEVER: Duration = Duration::from_secs(60);

/// A primary that is killed must soon be considered failed.
const SOON: Duration = Duration::from_secs(1);

/// Four times the node timeout, and a little more: how long a node remembers votes for it.
const AUTH_AGE: Duration = Duration::from_millis(4_500);

/// Longer than any test takes, for leases.
const LONG: Duration = Duration::from_secs(600);

/// Longer than any wait, except that of a forgotten waiter.
const FORGOTTEN: Duration = Duration::from_secs(20);

/// Locks of every type in one slot; one of them is also the second key of a pair.
fn plan() -> Plan {
    let pair = "{k}pair";
    Plan {
        workers: 10,
        locks: vec![
            Lock::new("{k}mutex", Kind::Mutex),
            Lock::new("{k}reentrant", Kind::Reentrant),
            Lock::new("{k}read-write", Kind::ReadWrite),
            Lock::new("{k}semaphore", Kind::Semaphore { limit: 2 }),
            Lock::new(pair, Kind::Pair),
            Lock::new(companion(pair), Kind::Mutex),
            Lock::new("{k}adopted", Kind::Adopted),
        ],
        ..Plan::mixed()
    }
}

/// A plan in which only servers end a hold or a wait.
fn patient_plan() -> Plan {
    Plan { lease: LONG, block: FORGOTTEN, ..plan() }
}

/// A cluster under load.
struct Run {
    cluster: Cluster,
    /// The slot of all locks.
    slot: u16,
    version: String,
    plan: Plan,
    recorder: Recorder,
    workers: Workers,
    started: Instant,
    /// When each fault was caused.
    faults: Vec<Instant>,
    /// The epoch of the cluster at the start.
    epoch: i64,
}

impl Run {
    #[track_caller]
    fn start(plan: Plan, node_timeout: Duration, node: impl Fn() -> Builder) -> Run {
        let cluster = Cluster::start(node_timeout, node);
        let recorder = Recorder::new();
        let workers = Workers::start(&plan, &recorder, cluster.route());
        Run {
            slot: cluster.slot(&plan.locks[0].key),
            version: cluster.node(0).info("server").version(),
            plan,
            recorder,
            workers,
            started: Instant::now(),
            faults: Vec::new(),
            epoch: cluster.epoch(),
            cluster,
        }
    }

    /// Whether to continue: the fault is caused at least `least` times, and for the duration of a scenario.
    fn continues(&self, least: usize) -> bool {
        self.faults.len() < least || self.started.elapsed() < seconds()
    }

    /// Ends the grace period that began with the nodes' start. Promotions begin another.
    #[track_caller]
    fn end_grace(&self) {
        for index in self.cluster.up() {
            let mut client = self.cluster.node(index).client();
            let grace = client.run("CONFIG GET lock.grace").get("lock.grace").text().to_string();
            for setting in ["0", &grace] {
                assert_eq!(client.run(&format!("CONFIG SET lock.grace {setting}")), Reply::ok());
            }
        }
    }

    #[track_caller]
    fn primary(&self) -> usize {
        self.cluster.primary_of(self.slot)
    }

    /// Each election begins one epoch, and so does a takeover without an election.
    #[track_caller]
    fn elections(&self) -> usize {
        usize::try_from(self.cluster.epoch() - self.epoch).expect("epochs grow")
    }

    /// Whether each fault caused one election, and there was no other.
    #[track_caller]
    fn is_as_planned(&self) -> bool {
        self.elections() == self.faults.len()
    }

    fn has_failed(&mut self) {
        self.faults.push(Instant::now());
    }

    /// Waits until that many more requests have been completed.
    #[track_caller]
    fn wait_for_requests(&self, more: usize) {
        let enough = self.recorder.requests() + more;
        until("requests get replies", || self.recorder.requests() >= enough);
    }

    /// Waits until no recently elected node can be elected again: old votes would count as new ones, and the others
    /// would not agree (`clusterHandleSlaveFailover`, while `auth_age` is small). Each fault makes another node the
    /// primary, so the fault before the last one counts.
    fn pace(&self) {
        if let [.., before, _] = self.faults[..] {
            thread::sleep(AUTH_AGE.saturating_sub(before.elapsed()));
        }
    }

    /// A primary that was killed must be replaced by its replica before it comes back, because it has lost all keys.
    #[track_caller]
    fn replace(&mut self, killed: usize) {
        self.cluster.primaries();
        self.cluster.restart(killed);
        self.cluster.until_whole();
    }

    /// Ends the load on a healthy cluster, and judges what is promised in every case: fencing tokens grow, every queue
    /// empties, no node keeps anything of a client.
    #[track_caller]
    fn end(self, scenario: &str, scope: Scope) -> Shown {
        self.workers.wait_for_grants(GRANTS);
        let elections = self.elections();
        let history = self.workers.stop();
        self.cluster.until_whole();
        let primary = self.cluster.primary_of(self.slot);
        assert_drained(&mut self.cluster.node(primary).client(), &self.plan.locks);
        for index in self.cluster.up() {
            assert_nothing_is_left(&mut self.cluster.node(index).client());
        }
        assert_none(&breaches_despite_losses(&history, scope));
        assert_expected(&history);
        let row = Row::of(scenario, &self.version, self.faults.len(), &history);
        let broken = self.recorder.broken();
        Shown { row, holds: holds(&history), history, elections, broken }
    }
}

/// The findings of a run.
struct Shown {
    row: Row,
    holds: Vec<Hold>,
    history: History,
    elections: usize,
    /// How many connections closed during a request.
    broken: usize,
}

impl Shown {
    /// All breaches, if nothing may be lost.
    fn breaches(&self, scope: Scope) -> Vec<String> {
        breaches(&self.history, scope)
    }

    /// Whether only the faults caused elections. If a paused machine caused others, prints that: losses may then be due
    /// to those.
    fn is_as_planned(&self) -> bool {
        let is_as_planned = self.elections == self.row.faults;
        if !is_as_planned {
            skip(&format!(
                "{} elections after {} faults: what was lost is not judged",
                self.elections, self.row.faults
            ));
        }
        is_as_planned
    }

    /// Fails if a request of a [`patient_plan`] got nil, or no reply at all in that time: its wake-up was lost.
    #[track_caller]
    fn assert_no_wake_up_lost(&self) {
        let is_forgotten = |operation: &&Operation| {
            let is_patient = matches!(operation.action, Action::Acquire { block: Some(FORGOTTEN), .. });
            is_patient
                && match operation.outcome {
                    Outcome::NotGranted => true,
                    Outcome::Unknown => operation.returned - operation.invoked >= FORGOTTEN,
                    _ => false,
                }
        };
        let forgotten: Vec<&Operation> = self.history.operations().iter().filter(is_forgotten).collect();
        assert_none(&forgotten);
    }

    /// How many requests failed with an error of this code.
    fn errors_with(&self, code: &str) -> usize {
        self.history.count(|outcome| matches!(outcome, Outcome::Refused(error) if code_of(error) == code))
    }
}

/// Errors of a node when a client sends a request at the wrong time or to the wrong node. `no` (connection) comes from
/// the clients here.
const EXPECTED: [&str; 9] =
    ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "UNBLOCKED", "READONLY", "MASTERDOWN", "LOADING", "no"];

#[track_caller]
fn assert_expected(history: &History) {
    let refusals = history.operations().iter().filter_map(|operation| match &operation.outcome {
        Outcome::Refused(error) => Some(error),
        _ => None,
    });
    let unexpected: BTreeSet<&String> = refusals.filter(|error| !EXPECTED.contains(&code_of(error))).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

fn code_of(error: &str) -> &str {
    error.split(' ').next().unwrap_or_default()
}

/// Waits until the node has nothing left: no waiter, no reserved position, no session, no hold.
#[track_caller]
fn assert_nothing_is_left(client: &mut Client) {
    until("the node has nothing left", || {
        let info = Info::parse(client.run("INFO everything").text());
        LEFT_BEHIND.iter().all(|field| info.number(field) == 0)
    });
}

const LEFT_BEHIND: [&str; 8] = [
    "blocked_clients",
    "lock_waiters",
    "lock_kept_places",
    "lock_sessions",
    "lock_held_mutex",
    "lock_held_reentrant",
    "lock_held_rw",
    "lock_held_semaphore",
];
