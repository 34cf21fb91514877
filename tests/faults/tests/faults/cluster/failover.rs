//! Primaries that are killed, and replicas that take over from live ones: in an orderly way, without the latest writes,
//! or without an election.

use std::time::Duration;

use faults::judge::{lost, overlaps, Scope};
use faults::{Caller, Kind, Lock, Mode, Outcome, Plan, Takeover};
use support::{until, Reply, Server};

use super::{plan, Run, Shown, GRANTS, LONG, SOON};
use crate::judged::assert_none;

/// The longest lease of the workers.
const LEASE: Duration = Duration::from_millis(1_500);

/// A lease that began just before its primary was killed, and still lasts when the replica has taken over, which takes
/// about 2 s.
const LASTING: Duration = Duration::from_secs(5);

/// How much longer than leases the grace period must be if the old primary lives on: it grants until it learns of the
/// new one.
const HEARSAY: Duration = Duration::from_millis(1_500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Ask(Takeover),
}

/// Whether the replica has everything that the primary has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Up,
    Broken,
}

struct Scenario {
    name: &'static str,
    fault: Fault,
    link: Link,
    grace: Duration,
    /// The lease of the lock of the silent holder.
    silent: Duration,
}

#[test]
fn an_orderly_failover_loses_nothing() {
    let shown = fail_again_and_again(Scenario {
        name: "CLUSTER FAILOVER",
        fault: Fault::Ask(Takeover::Orderly),
        link: Link::Up,
        grace: Duration::ZERO,
        silent: LEASE,
    });
    if shown.is_as_planned() {
        assert_none(&shown.breaches(Scope::Server));
    }
    shown.row.report();
}

#[test]
fn acknowledged_grants_survive_a_killed_primary() {
    let shown = fail_again_and_again(Scenario {
        name: "a primary is killed",
        fault: Fault::Kill,
        link: Link::Up,
        grace: Duration::ZERO,
        silent: LEASE,
    });
    shown.row.report();
}

#[test]
fn with_a_grace_of_the_longest_lease_no_holds_overlap_after_a_kill_with_a_lagging_replica() {
    let shown = fail_again_and_again(Scenario {
        name: "a primary with a lagging replica is killed, lock.grace",
        fault: Fault::Kill,
        link: Link::Broken,
        grace: LASTING,
        silent: LASTING,
    });
    assert_none(&overlaps(&shown.holds));
    assert!(!lost(&shown.holds).is_empty());
    shown.row.report();
}

#[test]
fn with_a_grace_covering_the_old_primarys_last_grants_no_holds_overlap_after_a_forced_failover() {
    for (name, takeover) in [
        ("CLUSTER FAILOVER FORCE, lock.grace", Takeover::Force),
        ("CLUSTER FAILOVER TAKEOVER, lock.grace", Takeover::Alone),
    ] {
        let fault = Fault::Ask(takeover);
        let grace = LEASE + HEARSAY;
        let shown = fail_again_and_again(Scenario { name, fault, link: Link::Broken, grace, silent: LEASE });
        assert_none(&overlaps(&shown.holds));
        assert!(!lost(&shown.holds).is_empty());
        shown.row.report();
    }
}

/// The counterpart of the tests above: without grace, their judge finds the overlaps that they exclude.
#[test]
fn without_grace_lost_locks_are_held_twice_and_fences_order_the_holders() {
    let shown = fail_again_and_again(Scenario {
        name: "CLUSTER FAILOVER TAKEOVER",
        fault: Fault::Ask(Takeover::Alone),
        link: Link::Broken,
        grace: Duration::ZERO,
        silent: LONG,
    });
    assert!(!lost(&shown.holds).is_empty());
    let silent = overlaps(&shown.holds).into_iter().filter(|overlap| overlap.last.key.starts_with(SILENT));
    assert_eq!(silent.count(), shown.row.faults);
    shown.row.report();
}

/// Its holder sends nothing until its lease has expired; a new holder in each round.
const SILENT: &str = "{k}silent";

/// Its holder asks the new primary whether it holds the lock.
const ASKING: &str = "{k}asking";

/// The replica has acknowledged its grant.
const COVERED: &str = "{k}covered";

/// Causes the fault under load for the duration of a scenario. Fencing tokens are judged here: they never go back.
#[track_caller]
fn fail_again_and_again(scenario: Scenario) -> Shown {
    let Scenario { name, fault, link, grace, silent } = scenario;
    let plan = Plan { lease: LEASE, ..plan() };
    let mut run = Run::start(plan, SOON, || Server::builder().config(format!("lock.grace {}", grace.as_millis())));
    run.end_grace();
    let mut witnesses = Witnesses::of(&run);
    while run.continues(1) {
        run.workers.wait_for_grants(GRANTS);
        run.pace();
        let old = run.primary();
        let replica = run.cluster.replica_of(old);
        match link {
            Link::Up => witnesses.take_with_wait(run.cluster.node(old)),
            Link::Broken => run.cluster.break_link(old, replica),
        }
        witnesses.take(silent);
        run.workers.wait_for_grants(GRANTS);
        match fault {
            Fault::Kill => run.cluster.kill(old),
            Fault::Ask(takeover) => run.cluster.fail_over(replica, takeover),
        }
        run.has_failed();
        let new = run.primary();
        let still_holds = witnesses.query();
        match link {
            // Otherwise the end of the run shows whether it was lost.
            Link::Broken => assert!(!still_holds, "the lock did not reach the replica"),
            Link::Up => witnesses.release_covered(run.cluster.node(new)),
        }
        witnesses.succeed();
        if fault == Fault::Kill {
            run.cluster.restart(old);
        }
        if link == Link::Broken {
            run.cluster.mend_link(replica);
        }
        run.cluster.until_whole();
        if run.is_as_planned() {
            assert_eq!(run.primary(), new);
            assert_eq!(run.cluster.replica_of(new), old, "the old primary follows the new");
        }
    }
    // A replaced primary may grant until it learns of its replacement.
    let scope = if matches!(fault, Fault::Ask(Takeover::Force | Takeover::Alone)) { Scope::Key } else { Scope::Server };
    run.end(name, scope)
}

/// Clients with a fixed role: the fate of their locks is certain, whatever the workers do.
struct Witnesses {
    silent: Caller,
    asking: Caller,
    rival: Caller,
    fence: i64,
    round: usize,
}

impl Witnesses {
    fn of(run: &Run) -> Witnesses {
        let first = run.plan.workers;
        let caller = |number| Caller::new(first + number, run.recorder.clone(), run.cluster.route());
        Witnesses { silent: caller(0), asking: caller(1), rival: caller(2), fence: 0, round: 0 }
    }

    /// Acquires two locks from the primary that is about to fail.
    #[track_caller]
    fn take(&mut self, silent: Duration) {
        self.round += 1;
        let owner = self.owner();
        let key = self.silent_key();
        granted(&mut self.silent, &key, &owner, silent);
        granted(&mut self.asking, ASKING, &owner, LONG);
    }

    /// Acquires a lock, and waits until the replica has acknowledged it.
    #[track_caller]
    fn take_with_wait(&mut self, primary: &Server) {
        let mut client = primary.client();
        until("the lock can be taken", || {
            match client.run(&format!("LOCK.ACQUIRE {COVERED} w PX {}", LONG.as_millis())) {
                Reply::Error(error) => {
                    assert!(error.starts_with("GRACE "), "{error}");
                    false
                }
                grant => {
                    self.fence = grant.fence();
                    true
                }
            }
        });
        assert_eq!(client.run("WAIT 1 0"), Reply::Int(1));
    }

    #[track_caller]
    fn release_covered(&self, new: &Server) {
        let mut client = new.client();
        let held = client.run(&format!("LOCK.HELD {COVERED} w"));
        assert!(!held.is_nil() && held.items()[0] == Reply::Int(self.fence), "what WAIT covered was lost: {held:?}");
        assert_eq!(client.run(&format!("LOCK.RELEASE {COVERED} w")), Reply::Int(1));
    }

    /// Whether the asking holder still holds its lock. If so, releases it.
    #[track_caller]
    fn query(&mut self) -> bool {
        let owner = self.owner();
        let (lock, caller) = (Lock::new(ASKING, Kind::Mutex), &mut self.asking);
        let renewed = until_reply(|| caller.renew(&lock, &owner, Mode::Mutex, LONG));
        until_reply(|| caller.release(&lock, &owner, Mode::Mutex));
        renewed == Outcome::Done
    }

    /// Another client is granted the silent holder's lock, and releases it.
    #[track_caller]
    fn succeed(&mut self) {
        let owner = format!("rival-{}", self.round);
        let key = self.silent_key();
        granted(&mut self.rival, &key, &owner, LEASE);
        let (lock, caller) = (Lock::new(key, Kind::Mutex), &mut self.rival);
        until_reply(|| caller.release(&lock, &owner, Mode::Mutex));
    }

    fn silent_key(&self) -> String {
        format!("{SILENT}-{}", self.round)
    }

    fn owner(&self) -> String {
        format!("witness-{}", self.round)
    }
}

#[track_caller]
fn granted(caller: &mut Caller, key: &str, owner: &str, lease: Duration) {
    let lock = Lock::new(key, Kind::Mutex);
    let outcome =
        until_reply(|| caller.acquire(&lock, owner, Mode::Mutex, lease, Some(lease.max(LEASE + HEARSAY) * 4)));
    assert!(matches!(outcome, Outcome::Granted { .. }), "{owner}: {outcome:?}");
}

/// Retries until there is a reply.
#[track_caller]
fn until_reply(mut query: impl FnMut() -> Outcome) -> Outcome {
    let mut outcome = Outcome::Unknown;
    until("a node replies", || {
        outcome = query();
        !matches!(outcome, Outcome::Refused(_) | Outcome::Unknown)
    });
    outcome
}
