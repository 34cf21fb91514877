//! Schedules that once failed, in their shortest form. Each is played on the rules and on the model, which must agree.

use super::contract::*;
use super::rules::to_key;
use super::schedule::{Cast, Step};
use super::simulator::Simulation;
use crate::host::simulated::Stored;
use crate::value::lock::Lock;
use crate::value::time::Deadline;

const KEYS: Cast = Cast {
    keys: &[
        ("a", Kind::Mutex),
        ("b", Kind::Mutex),
        ("j", Kind::Mutex),
        ("k", Kind::Mutex),
        ("x", Kind::Mutex),
        ("r", Kind::Reentrant),
        ("s", Kind::Semaphore),
        ("t", Kind::Semaphore),
        ("v", Kind::ReadWrite),
        ("w", Kind::ReadWrite),
    ],
    owners: &[],
};

/// A small world in which each request has its own connection.
struct World {
    simulation: Simulation,
    connections: u64,
}

impl World {
    fn new() -> World {
        World { simulation: Simulation::new(&KEYS), connections: 0 }
    }

    fn ask(&mut self, keys: &[Name], owner: Name, claim: Claim, block: Option<Ms>) -> Outcome {
        self.connections += 1;
        let (client, keys) = (self.connections, keys.to_vec());
        let lease = Some(10_000);
        let asked = Acquire {
            number: 0,
            client,
            keys,
            owner,
            claim,
            lease,
            block,
            session: false,
            coalesce: false,
            notify: false,
        };
        self.send(Command::Acquire(asked))
    }

    /// `SEM.ACQUIRE key owner LIMIT 3 PX lease`
    fn share(&mut self, key: Name, owner: Name, lease: Ms) {
        self.connections += 1;
        let (client, keys, claim) = (self.connections, vec![key], Claim::Permits(3, Holds::By(1)));
        let (lease, session, notify) = (Some(lease), false, false);
        let asked =
            Acquire { number: 0, client, keys, owner, claim, lease, block: None, session, coalesce: false, notify };
        assert!(matches!(self.send(Command::Acquire(asked)), Outcome::Granted(..)));
    }

    fn send(&mut self, command: Command) -> Outcome {
        self.simulation.play(&Step::Send(command));
        self.simulation.outcome.expect("a command was sent")
    }

    /// `LOCK.ACQUIRE key owner`
    fn hold(&mut self, key: Name, owner: Name) {
        assert!(matches!(self.ask(&[key], owner, Claim::Mutex, None), Outcome::Granted(..)));
    }

    /// `LOCK.ACQUIRE key owner PX lease`
    fn hold_for(&mut self, key: Name, owner: Name, lease: Ms) {
        self.hold(key, owner);
        let renewed = Command::Renew { keys: vec![key], owner, kind: Kind::Mutex, lease: Some(Some(lease)) };
        assert_eq!(self.send(renewed), Outcome::Renewed(true));
    }

    /// `MLOCK.ACQUIRE n keys owner BLOCK 0`
    fn wait(&mut self, keys: &[Name], owner: Name) {
        assert_eq!(self.ask(keys, owner, Claim::Mutex, Some(0)), Outcome::Queued);
    }

    fn release(&mut self, key: Name, owner: Name) {
        let released = self.send(Command::Release { keys: vec![key], owner, claim: Claim::Mutex, failed: false });
        assert_eq!(released, Outcome::Released(0));
    }

    fn happen(&mut self, event: Event) {
        self.simulation.play(&Step::Happen(event));
    }

    fn pass(&mut self, ms: Ms) {
        self.simulation.play(&Step::Pass(ms));
    }

    fn holds(&self, key: Name, owner: Name) -> bool {
        self.simulation.model.holds(key, owner)
    }

    fn happen_together(&mut self, events: &[Event]) {
        self.simulation.play(&Step::Together(Vec::new(), events.to_vec()));
    }

    /// The number of stored holders, including expired ones.
    fn stored(&self, key: Name) -> usize {
        self.lock(key).map_or(0, |(lock, _)| lock.holders())
    }

    /// The number of holders whose leases have not expired.
    fn live(&self, key: Name) -> usize {
        let now = self.simulation.rules.server.keyspace.timestamp();
        let holds = self.lock(key).map(|(lock, until)| lock.holds(until)).unwrap_or_default();
        holds.iter().filter(|hold| !hold.until.has_passed(now)).count()
    }

    fn lock(&self, key: Name) -> Option<(&Lock, Deadline)> {
        match self.simulation.rules.server.keyspace.primary.get(&to_key(key))? {
            Stored::Lock(lock, until) => Some((lock, *until)),
            Stored::Foreign => None,
        }
    }

    fn replies(&self) -> &[WaitReply] {
        &self.simulation.replies
    }

    /// Sends a request that would deadlock; returns whether it is refused.
    fn is_refused(&mut self, keys: &[Name], owner: Name) {
        assert_eq!(self.ask(keys, owner, Claim::Mutex, Some(0)), Outcome::Refused(Refusal::Deadlock));
    }
}

/// W1 waits for Y, which waits for X: a longer cycle than one through a holder of a key of W1. W2 holds one itself.
#[test]
fn only_a_holder_of_one_of_its_keys_goes_before_a_multi_key_request() {
    let mut world = World::new();
    for (key, owner) in [("k", "H"), ("a", "W2"), ("j", "Y"), ("x", "X")] {
        world.hold(key, owner);
    }
    world.wait(&["k", "a", "j"], "W1");
    world.wait(&["k"], "W2");
    world.wait(&["x"], "Y");
    world.is_refused(&["k"], "X");
    world.release("k", "H");
    assert!(world.holds("k", "W2"));
}

/// c goes before f, the first request that wants one of its keys, and therefore also before b.
#[test]
fn a_request_goes_before_the_first_that_wants_a_key_which_its_owner_holds() {
    let mut world = World::new();
    world.hold("k", "d");
    world.hold("j", "c");
    world.hold_for("x", "c", 1_500);
    world.wait(&["k", "j"], "f");
    world.wait(&["k", "x"], "b");
    world.wait(&["x", "k"], "c");
    world.pass(1_501);
    world.release("k", "d");
    assert!(world.holds("k", "c") && world.holds("x", "c"));
    world.release("k", "c");
    world.release("x", "c");
    assert!(!world.holds("k", "b"), "f is ahead of b");
    world.release("j", "c");
    assert!(world.holds("k", "f") && world.holds("j", "f"));
    world.release("k", "f");
    assert!(world.holds("k", "b") && world.holds("x", "b"));
}

/// p waits for a and b, and holds x, for which q and r wait. When p loses x, it is reevaluated, and r is ahead on a.
#[test]
fn an_owner_that_loses_a_key_of_its_multi_key_request_gets_another_position() {
    type Loses = fn(&mut World);
    let rows: [(&str, Loses); 5] = [
        ("release", |world| world.release("x", "p")),
        ("LOCK.BREAK … OWNER", |world| _ = world.send(Command::Break { key: "x", owner: Some("p") })),
        ("LOCK.BREAK", |world| _ = world.send(Command::Break { key: "x", owner: None })),
        ("DEL", |world| world.happen(Event::Deleted("x"))),
        ("the end of its lease", |world| world.pass(1_501)),
    ];
    for (row, loses) in rows {
        let mut world = World::new();
        world.hold("b", "o");
        world.hold_for("x", "p", 1_500);
        world.wait(&["x"], "q");
        world.wait(&["a", "b", "x"], "p");
        world.wait(&["a"], "r");
        assert!(!world.holds("a", "r"), "p is ahead of it");
        loses(&mut world);
        assert!(world.holds("x", "q") && world.holds("a", "r"), "{row}");
    }
}

/// A multi-key request is ahead of p. x is free after p has lost it.
#[test]
fn an_owner_that_loses_a_key_gets_another_position_even_if_the_key_stays_free() {
    let mut world = World::new();
    for (key, owner) in [("b", "o"), ("k", "d"), ("x", "p")] {
        world.hold(key, owner);
    }
    world.wait(&["x", "k"], "r");
    world.wait(&["a", "b", "x"], "p");
    world.wait(&["a"], "s");
    assert!(!world.holds("a", "s"), "p is ahead of it");
    world.release("x", "p");
    assert!(world.holds("a", "s") && !world.holds("x", "r"));
}

/// r loses a while its request and that of q are detached, so that no holder of a is recorded. When r comes back, it
/// resumes its position, ahead of the request that r has queued in the meantime.
#[test]
fn a_key_that_was_lost_while_a_request_was_detached_does_not_count_when_it_resumes() {
    let mut world = World::new();
    world.hold("k", "o");
    world.hold("a", "r");
    assert_eq!(world.ask(&["a"], "q", Claim::Mutex, Some(10)), Outcome::Queued);
    assert_eq!(world.ask(&["a", "k"], "r", Claim::Mutex, Some(10)), Outcome::Queued);
    world.pass(20);
    world.happen(Event::Restored("k", "a"));
    world.wait(&["k"], "r");
    world.wait(&["a", "k"], "r");
    assert_eq!(world.simulation.model.reevaluated(), 0);
}

/// x waits for k and j, w holds j and waits for a, and p holds a and k. Without k, p would deadlock behind x.
#[test]
fn an_owner_that_loses_a_key_gets_deadlock_if_it_would_deadlock() {
    let mut world = World::new();
    for (key, owner) in [("a", "p"), ("k", "p"), ("b", "y"), ("j", "w")] {
        world.hold(key, owner);
    }
    world.wait(&["k", "j"], "x");
    world.wait(&["a"], "w");
    world.wait(&["k", "b"], "p");
    world.happen(Event::Deleted("k"));
    assert_eq!(world.replies(), [WaitReply::Refused(Refusal::Deadlock)]);
}

#[test]
fn a_request_does_not_wait_for_a_key_that_its_owner_already_holds() {
    let mut world = World::new();
    world.hold("a", "m");
    world.hold("b", "y");
    world.wait(&["a"], "z");
    world.wait(&["a", "b"], "m");
    world.release("b", "y");
    assert!(world.holds("b", "m"));
}

#[test]
fn a_request_that_resumed_its_position_is_waited_for_by_requests_behind_it() {
    type Requests = &'static [(&'static [Name], Name)];
    struct Case {
        title: &'static str,
        held: &'static [(Name, Name)],
        ahead: Requests,
        /// The keys that Y waits for. Y repeats the request after its wait has timed out.
        keys: &'static [Name],
        behind: Requests,
        outcome: Outcome,
    }
    let deadlock = Outcome::Refused(Refusal::Deadlock);
    let cases = [
        Case {
            title: "Y waits for another key in between",
            held: &[("k", "H"), ("j", "W")],
            ahead: &[],
            keys: &["k"],
            behind: &[(&["k"], "W"), (&["j"], "Y")],
            outcome: deadlock,
        },
        Case {
            title: "Y holds nothing, and waits through others for a request behind it",
            held: &[("k", "H"), ("a", "G"), ("j", "W")],
            ahead: &[],
            keys: &["k", "a"],
            behind: &[(&["k"], "W"), (&["j"], "G")],
            outcome: deadlock,
        },
        Case {
            title: "another request is ahead of the position of Y",
            held: &[("k", "H"), ("a", "G"), ("j", "W")],
            ahead: &[(&["k"], "Z")],
            keys: &["k", "a"],
            behind: &[(&["k"], "W"), (&["j"], "G")],
            outcome: deadlock,
        },
        Case {
            title: "Y waits for the owner of a request behind it, which did not stand before it while it was away",
            held: &[("k", "H"), ("a", "W")],
            ahead: &[],
            keys: &["k", "a"],
            behind: &[(&["k"], "W")],
            outcome: deadlock,
        },
        Case {
            title: "the owner of the request behind Y has another one ahead, which covers it",
            held: &[("k", "H")],
            ahead: &[(&["k", "x"], "W")],
            keys: &["k"],
            behind: &[(&["k"], "W")],
            outcome: Outcome::Queued,
        },
    ];
    for Case { title, held, ahead, keys, behind, outcome } in cases {
        let mut world = World::new();
        held.iter().for_each(|(key, owner)| world.hold(key, owner));
        ahead.iter().for_each(|(keys, owner)| world.wait(keys, owner));
        assert_eq!(world.ask(keys, "Y", Claim::Mutex, Some(10)), Outcome::Queued, "{title}");
        world.pass(20);
        behind.iter().for_each(|(keys, owner)| world.wait(keys, owner));
        assert_eq!(world.ask(keys, "Y", Claim::Mutex, Some(10)), outcome, "{title}");
    }
}

#[test]
fn every_waiter_for_a_key_that_became_another_type_gets_an_error_at_any_position() {
    let mut world = World::new();
    world.hold("a", "y");
    world.hold("k", "x");
    world.wait(&["a", "k"], "m");
    world.wait(&["k"], "d");
    world.happen(Event::Overwritten("k"));
    assert_eq!(world.replies(), [WaitReply::Refused(Refusal::WrongType); 2]);
}

#[test]
fn a_free_key_that_becomes_another_type_or_lock_type_ends_the_wait_for_it() {
    let mut world = World::new();
    world.hold("b", "y");
    world.wait(&["a", "b"], "m");
    world.happen(Event::Overwritten("a"));
    assert_eq!(world.replies(), [WaitReply::Refused(Refusal::WrongType)]);
    world.wait(&["x", "b"], "m");
    assert!(matches!(world.ask(&["r"], "o", Claim::Reentrant(Holds::By(1)), None), Outcome::Granted(..)));
    world.happen(Event::Renamed("r", "x"));
    assert_eq!(world.replies()[1..], [WaitReply::Refused(Refusal::WrongKind)]);
}

#[test]
fn a_lock_renamed_to_a_free_key_ends_there_and_its_waiter_is_granted() {
    let mut world = World::new();
    world.hold("b", "y");
    world.wait(&["a", "b"], "m");
    world.hold("k", "z");
    world.happen(Event::Expire("k", Some(300)));
    world.happen(Event::Renamed("k", "a"));
    world.release("b", "y");
    assert!(!world.holds("a", "m"));
    world.pass(301);
    assert!(world.holds("a", "m") && world.holds("b", "m"));
}

#[test]
fn a_lock_renamed_to_a_key_that_its_owner_waits_for_is_a_grant() {
    let mut world = World::new();
    world.hold("k", "x");
    world.wait(&["k"], "y");
    world.wait(&["k"], "z");
    world.hold("a", "z");
    world.happen(Event::Renamed("a", "k"));
    assert!(matches!(world.replies(), [WaitReply::Granted(..)]));
    // The new holder is in the wait-for graph: x waits for z, so z must not wait for x.
    world.hold("b", "x");
    world.wait(&["k"], "x");
    assert_eq!(world.ask(&["b"], "z", Claim::Mutex, Some(0)), Outcome::Refused(Refusal::Deadlock));
}

#[test]
fn a_lock_renamed_to_a_waited_for_key_counts_in_deadlock_detection() {
    let mut world = World::new();
    for (key, owner) in [("k", "y"), ("a", "z"), ("b", "x")] {
        world.hold(key, owner);
    }
    world.wait(&["k"], "w");
    world.wait(&["b"], "z");
    world.happen(Event::Renamed("a", "k"));
    assert_eq!(world.ask(&["k"], "x", Claim::Mutex, Some(0)), Outcome::Refused(Refusal::Deadlock));
}

#[test]
fn a_semaphore_renamed_to_a_key_brings_its_limit() {
    let permit = |limit| Claim::Permits(limit, Holds::By(1));
    let mut world = World::new();
    world.ask(&["s"], "a", permit(1), None);
    assert_eq!(world.ask(&["s"], "b", permit(1), Some(0)), Outcome::Queued);
    world.ask(&["t"], "o", permit(3), None);
    world.happen(Event::Renamed("t", "s"));
    assert!(world.holds("s", "b"));
    assert!(matches!(world.ask(&["s"], "c", permit(3), Some(0)), Outcome::Granted(..)));
}

/// y would be granted a, and hold it while it waits for b behind m, which waits for a.
#[test]
fn a_request_that_resumes_gets_deadlock_if_another_of_its_owner_would_deadlock() {
    let mut world = World::new();
    world.hold("a", "x");
    assert_eq!(world.ask(&["a"], "y", Claim::Mutex, Some(30)), Outcome::Queued);
    world.pass(40);
    world.wait(&["a", "b"], "m");
    world.wait(&["b"], "y");
    world.is_refused(&["a"], "y");
    world.release("a", "x");
    assert!(world.holds("a", "m") && world.holds("b", "m"));
}

/// The deadlock that the churn test found: an adopted request is granted the key while its owner waits for another one.
#[test]
fn what_an_owner_will_hold_by_its_adopted_request_counts_in_deadlock_detection() {
    let mut world = World::new();
    world.hold("a", "x");
    world.hold("b", "p");
    let set = Claim::Adopted { is_absolute: false };
    assert_eq!(world.ask(&["a"], "y", set, Some(5_000)), Outcome::Queued);
    world.wait(&["a"], "p");
    world.is_refused(&["b"], "y");
    world.release("a", "x");
    assert!(world.holds("a", "y"));
    world.release("a", "y");
    assert!(world.holds("a", "p"));
}

#[test]
fn an_adopted_request_resumes_no_position_if_its_grant_would_deadlock_its_owner() {
    let mut world = World::new();
    let set = Claim::Adopted { is_absolute: false };
    world.hold("a", "x");
    world.hold("b", "p");
    assert_eq!(world.ask(&["a"], "y", set, Some(30)), Outcome::Queued);
    world.pass(40);
    world.wait(&["a"], "p");
    world.wait(&["b"], "y");
    assert_eq!(world.ask(&["a"], "y", set, Some(30)), Outcome::Refused(Refusal::Deadlock));
    world.release("a", "x");
    assert!(world.holds("a", "p"));
}

/// c would hold a and wait for d, which waits for a.
#[test]
fn a_resumed_position_is_not_granted_at_once_if_that_would_deadlock_its_owner() {
    let mut world = World::new();
    world.hold("a", "x");
    world.hold("b", "y");
    world.hold("j", "d");
    assert_eq!(world.ask(&["a"], "c", Claim::Mutex, Some(30)), Outcome::Queued);
    world.pass(40);
    world.wait(&["a", "b"], "d");
    world.wait(&["j"], "c");
    world.release("a", "x");
    world.is_refused(&["a"], "c");
    world.release("b", "y");
    assert!(world.holds("a", "d") && world.holds("b", "d"));
}

#[test]
fn a_smaller_limit_also_refuses_waiters_for_a_free_semaphore() {
    let mut world = World::new();
    world.simulation.play(&Step::Crash(50));
    world.ask(&["s"], "p", Claim::Permits(3, Holds::By(2)), Some(0));
    world.ask(&["s"], "q", Claim::Permits(1, Holds::By(1)), Some(0));
    assert_eq!(world.replies(), [WaitReply::Refused(Refusal::Invalid)]);
}

#[test]
fn an_owner_granted_multiple_keys_reenters_each_of_them() {
    let mut world = World::new();
    world.hold("a", "o");
    world.wait(&["a", "b", "k"], "r");
    world.wait(&["b", "k"], "p");
    world.wait(&["b"], "r");
    world.wait(&["b"], "p");
    world.send(Command::Cancel { key: "a", owner: "r" });
    assert_eq!(world.replies().iter().filter(|reply| matches!(reply, WaitReply::Granted(..))).count(), 2);
}

#[test]
fn a_retry_keeps_its_position_among_the_requests_of_its_owner() {
    let one = |holds| Claim::Reentrant(holds);
    let mut world = World::new();
    world.ask(&["r"], "p", one(Holds::By(1)), None);
    for holds in [Holds::Exactly(1), Holds::By(1), Holds::Exactly(2), Holds::By(1)] {
        assert_eq!(world.ask(&["r"], "q", one(holds), Some(0)), Outcome::Queued);
    }
    world.send(Command::Release { keys: vec!["r"], owner: "p", claim: one(Holds::Exactly(0)), failed: false });
    let granted = world.replies().iter().filter_map(|reply| match reply {
        WaitReply::Granted(_, holds) => Some(*holds),
        _ => None,
    });
    assert_eq!(granted.collect::<Vec<_>>(), [1, 2, 2]);
}

#[test]
fn a_grace_period_that_has_ended_stays_ended() {
    let mut world = World::new();
    world.simulation.play(&Step::Crash(50));
    world.pass(60);
    world.happen(Event::GraceSet(10_000));
    world.hold("a", "o");
}

#[test]
fn a_release_of_multiple_keys_ignores_expired_holders_of_another_lock_type() {
    let permit = Claim::Permits(3, Holds::By(1));
    let mut world = World::new();
    world.ask(&["s"], "o", permit, None);
    world.ask(&["s"], "p", permit, None);
    world.happen(Event::Renamed("s", "a"));
    world.happen(Event::Expire("a", Some(5)));
    world.happen(Event::Expire("a", Some(500)));
    world.pass(10);
    let released =
        world.send(Command::Release { keys: vec!["a", "b"], owner: "o", claim: Claim::Mutex, failed: false });
    assert_eq!(released, Outcome::Released(0));
}

#[test]
fn a_request_for_what_its_owner_holds_is_granted_before_one_for_more() {
    let permits = |holds| Claim::Permits(3, holds);
    let mut world = World::new();
    world.ask(&["s"], "q", permits(Holds::By(3)), None);
    for holds in [Holds::By(1), Holds::By(2), Holds::Exactly(1)] {
        assert_eq!(world.ask(&["s"], "o", permits(holds), Some(0)), Outcome::Queued);
    }
    world.happen(Event::Deleted("s"));
    assert!(world.replies().iter().all(|reply| matches!(reply, WaitReply::Granted(..))));
}

/// The owner of two upgrades becomes the writer by the first. The second then waits by arrival, behind a request that
/// the owner sent before it read.
#[test]
fn an_upgrade_that_is_granted_ends_the_other_upgrades_of_its_owner() {
    let (read, write) = (Claim::Read(Holds::By(1)), |holds| Claim::Write(holds));
    let mut world = World::new();
    for (key, owner) in [("v", "q"), ("w", "o"), ("w", "r")] {
        assert!(matches!(world.ask(&[key], owner, read, None), Outcome::Granted(..)));
    }
    assert_eq!(world.ask(&["v"], "r", write(Holds::Exactly(1)), Some(0)), Outcome::Queued);
    world.happen(Event::Renamed("w", "v"));
    for holds in [Holds::By(1), Holds::By(2)] {
        assert_eq!(world.ask(&["v"], "r", write(holds), Some(0)), Outcome::Queued);
    }
    world.send(Command::Release { keys: vec!["v"], owner: "o", claim: read, failed: false });
    let holds = world.replies().iter().map(|reply| match reply {
        WaitReply::Granted(_, holds) => *holds,
        other => panic!("{other:?}"),
    });
    assert_eq!(holds.collect::<Vec<_>>(), [1, 1, 3]);
}

#[test]
fn a_set_clock_moves_leases_and_nothing_else() {
    let mut world = World::new();
    world.hold("a", "o");
    world.wait(&["a"], "p");
    assert_eq!(world.ask(&["a"], "q", Claim::Mutex, Some(200)), Outcome::Queued);
    let (keys, claim) = (vec!["b"], Claim::Mutex);
    let (lease, notify) = (Some(300), false);
    let bound = Acquire {
        number: 0,
        client: 0,
        keys,
        owner: "o",
        claim,
        lease,
        block: None,
        session: true,
        coalesce: false,
        notify,
    };
    world.send(Command::Acquire(bound));
    for by_ms in [250, 250, 250, 250, -999] {
        world.simulation.play(&Step::SetClock(by_ms));
        assert!(world.holds("b", "o"), "a living session is renewed at once");
    }
    world.pass(199);
    assert_eq!(world.replies(), []);
    world.pass(1);
    assert_eq!(world.replies(), [WaitReply::TimedOut]);
    world.simulation.play(&Step::SetClock(9_799));
    assert!(!world.holds("b", "o"), "the lease is over, as any time to live");
    assert!(world.holds("a", "o"), "a lease includes its last millisecond");
    world.pass(1);
    assert!(world.holds("a", "p"));
}

#[test]
fn one_of_several_holders_expires_even_if_a_renewal_or_expire_has_extended_the_key() {
    let mut world = World::new();
    world.share("s", "a", 20);
    world.share("s", "b", 400);
    world.pass(20);
    assert_eq!(world.live("s"), 2);
    world.pass(1);
    assert_eq!((world.live("s"), world.stored("s")), (1, 2), "no command has accessed it");
    world.share("s", "c", 30);
    assert_eq!(world.stored("s"), 2);
    world.send(Command::Renew { keys: vec!["s"], owner: "b", kind: Kind::Semaphore, lease: Some(None) });
    world.pass(31);
    assert_eq!(world.live("s"), 1);
    world.share("s", "d", 40);
    world.happen(Event::Expire("s", Some(5_000)));
    world.happen(Event::Renamed("s", "t"));
    world.happen(Event::Restored("t", "s"));
    world.pass(41);
    assert_eq!((world.live("s"), world.live("t")), (1, 1));
}

#[test]
fn a_waiter_is_served_when_the_last_of_several_expires_although_the_key_would_live_longer() {
    for lengthen in [None, Some(5_000)] {
        let mut world = World::new();
        world.share("s", "a", 20);
        world.share("s", "b", 40);
        assert_eq!(world.ask(&["s"], "c", Claim::Permits(1, Holds::By(1)), Some(0)), Outcome::Queued);
        world.happen(Event::Expire("s", lengthen));
        world.pass(40);
        assert_eq!(world.replies(), [], "{lengthen:?}");
        world.pass(1);
        assert!(matches!(world.replies(), [WaitReply::Granted(..)]), "{lengthen:?}");
    }
}

/// o waits to write at the head of the queue while it reads.
#[test]
fn an_upgrade_of_an_ended_reader_waits_in_the_order_of_its_arrival() {
    for lengthen in [None, Some(500)] {
        let mut world = World::new();
        for owner in ["r", "o"] {
            assert!(matches!(world.ask(&["w"], owner, Claim::Read(Holds::By(1)), None), Outcome::Granted(..)));
        }
        for owner in ["q", "o"] {
            assert_eq!(world.ask(&["w"], owner, Claim::Write(Holds::By(1)), Some(0)), Outcome::Queued);
        }
        world.happen(Event::Expire("w", Some(5)));
        world.happen(Event::Expire("w", lengthen));
        world.pass(6);
        assert!(world.holds("w", "q"), "{lengthen:?}");
    }
}

#[test]
fn leases_that_have_expired_at_a_failover_hold_nothing() {
    for step in [Step::Failover(0), Step::Crash(0)] {
        let mut world = World::new();
        world.share("s", "a", 20);
        world.share("s", "b", 23);
        world.happen(Event::Expire("s", None));
        world.simulation.play(&Step::Save);
        world.pass(19);
        // The crash or failover takes 5 ms.
        world.simulation.play(&step);
        assert_eq!(world.live("s"), 0, "{step:?}");
        assert!(matches!(world.ask(&["s"], "c", Claim::Permits(1, Holds::By(1)), None), Outcome::Granted(..)));
        assert_eq!(world.stored("s"), 1, "{step:?}");
    }
}

/// Also checked with another name.
#[test]
fn a_longer_time_to_live_changes_no_holder_and_the_last_of_a_transaction_counts() {
    let expire = |ms| Event::Expire("s", ms);
    let rows: [(&[Event], Ms); 4] = [
        (&[expire(Some(5)), expire(Some(50))], 50),
        (&[expire(Some(50)), expire(Some(5)), expire(None)], 60),
        (&[expire(Some(5)), expire(None), Event::Renamed("s", "t"), Event::Renamed("t", "s")], 60),
        (&[expire(Some(5)), Event::Renamed("s", "t"), Event::Expire("t", None), Event::Renamed("t", "s")], 60),
    ];
    for (events, end_of_transaction) in rows {
        for (together, end) in [(true, end_of_transaction), (false, 5)] {
            let mut world = World::new();
            world.share("s", "a", 60);
            world.share("s", "b", 60);
            if together {
                world.happen_together(events);
            } else {
                events.iter().for_each(|event| world.happen(*event));
            }
            world.pass(end);
            assert_eq!(world.live("s"), 2, "{events:?}");
            world.pass(1);
            assert_eq!(world.live("s"), 0, "{events:?}");
        }
    }
}

#[test]
fn a_position_reserved_for_a_reader_is_not_resumed_by_a_writer() {
    let mut world = World::new();
    let (read, write) = (Claim::Read(Holds::By(1)), Claim::Write(Holds::By(1)));
    for owner in ["a", "b", "c"] {
        assert!(matches!(world.ask(&["w"], owner, read, None), Outcome::Granted(..)));
    }
    assert_eq!(world.ask(&["w"], "a", write, Some(1)), Outcome::Queued);
    world.pass(1);
    assert_eq!(world.replies(), [WaitReply::TimedOut]);
    world.send(Command::Release { keys: vec!["w"], owner: "a", claim: read, failed: false });
    assert_eq!(world.ask(&["w"], "b", write, Some(0)), Outcome::Queued);
    assert_eq!(world.ask(&["w"], "a", write, Some(0)), Outcome::Queued);
    world.send(Command::Release { keys: vec!["w"], owner: "c", claim: read, failed: false });
    assert!(matches!(world.replies()[1..], [WaitReply::Granted(..)]));
    assert!(world.holds("w", "b") && !world.holds("w", "a"));
}

#[test]
fn requests_of_one_owner_are_served_in_the_order_of_their_positions() {
    let mut world = World::new();
    let read = Claim::Read(Holds::By(1));
    let [one, two, by_two] = [Holds::Exactly(1), Holds::Exactly(2), Holds::By(2)].map(Claim::Write);
    assert!(matches!(world.ask(&["w"], "r", read, None), Outcome::Granted(..)));
    assert!(matches!(world.ask(&["v"], "o", read, None), Outcome::Granted(..)));
    assert_eq!(world.ask(&["w"], "p", Claim::Write(Holds::By(1)), Some(0)), Outcome::Queued);
    for claim in [two, by_two, two] {
        assert_eq!(world.ask(&["w"], "o", claim, Some(0)), Outcome::Queued);
    }
    assert_eq!(world.replies(), [WaitReply::Superseded], "the last one has the position of the first");
    world.happen(Event::Renamed("v", "w"));
    assert!(matches!(world.ask(&["w"], "o", one, Some(0)), Outcome::Granted(..)));
    assert!(world.replies()[1..].iter().all(|reply| matches!(reply, WaitReply::Granted(..))));
}

/// An owner was granted permits, skipping reserved positions: its request for what it holds by that grant is served
/// before its request for more.
#[test]
fn a_request_covered_by_a_new_grant_is_served_before_the_head_of_the_queue() {
    let mut world = World::new();
    let by = |limit| Claim::Permits(limit, Holds::By(1));
    let exactly = |limit, holds| Claim::Permits(limit, Holds::Exactly(holds));
    assert!(matches!(world.ask(&["t"], "o", by(3), None), Outcome::Granted(..)));
    assert_eq!(world.ask(&["t"], "p", by(1), Some(50)), Outcome::Queued);
    world.pass(60);
    assert_eq!(world.replies(), [WaitReply::TimedOut], "its position is reserved");
    for claim in [exactly(2, 2), exactly(2, 1)] {
        assert_eq!(world.ask(&["t"], "p", claim, Some(300)), Outcome::Queued, "{claim:?}");
    }
    assert!(matches!(world.ask(&["t"], "p", by(3), Some(50)), Outcome::Granted(..)));
    let holds = world.replies()[1..].iter().map(|reply| match reply {
        WaitReply::Granted(_, holds) => *holds,
        other => panic!("{other:?}"),
    });
    assert_eq!(holds.collect::<Vec<_>>(), [2, 1], "the second of them was granted first");
}

/// Two waits end at the same time, and leave one reserved position too many for a key: the position of the older
/// request is dropped. A retry is the younger request, although it has the older position.
#[test]
fn of_waits_that_end_together_the_older_request_loses_its_reserved_position() {
    let mut world = World::new();
    for key in ["a", "b"] {
        world.hold(key, "o");
    }
    world.happen(Event::MaxWaitersPerKeySet(Some(2)));
    assert_eq!(world.ask(&["a", "b"], "p", Claim::Mutex, Some(300)), Outcome::Queued);
    assert_eq!(world.ask(&["b"], "q", Claim::Mutex, Some(10)), Outcome::Queued);
    assert_eq!(world.ask(&["a", "b"], "p", Claim::Mutex, Some(10)), Outcome::Queued);
    world.happen(Event::MaxWaitersPerKeySet(Some(1)));
    world.pass(10);
    assert_eq!(world.ask(&["a"], "r", Claim::Mutex, Some(1)), Outcome::Queued);
    world.pass(1);
}

/// The LIMIT of a request after a failover is not smaller than before, so no waiter gets an error.
#[test]
fn a_limit_outlives_a_failover() {
    let mut world = World::new();
    for _ in 0..3 {
        world.share("t", "p", 400);
    }
    world.simulation.play(&Step::Failover(50));
    let one_more = Claim::Permits(3, Holds::By(1));
    assert_eq!(world.ask(&["s"], "q", one_more, Some(0)), Outcome::Queued, "the grace period makes it wait");
    world.happen(Event::Restored("t", "s"));
    assert_eq!(world.ask(&["t"], "q", one_more, Some(0)), Outcome::Queued);
}

/// The owner of the head now holds as much as LIMIT allows, so the request at the head gets an error. The next one is
/// served when a permit is free.
#[test]
fn a_head_that_can_never_fit_blocks_no_other_permit() {
    let permits = |count| Claim::Permits(3, Holds::By(count));
    let mut world = World::new();
    world.ask(&["s"], "z", permits(2), None);
    world.ask(&["o"], "a", permits(2), None);
    assert_eq!(world.ask(&["s"], "a", permits(2), Some(0)), Outcome::Queued);
    assert_eq!(world.ask(&["s"], "c", permits(1), Some(0)), Outcome::Queued);
    world.happen(Event::Renamed("o", "s"));
    assert!(world.simulation.model.holds("s", "c"));
}

/// q's request gets its error only at the head of the queue. Ahead of it, p would deadlock with q.
#[test]
fn a_retry_with_the_same_limit_refuses_no_waiter_behind_it_and_completes_a_deadlock() {
    let one = |limit| Claim::Permits(limit, Holds::By(1));
    let mut world = World::new();
    world.ask(&["s"], "o", one(2), None);
    world.ask(&["t"], "q", one(1), None);
    assert_eq!(world.ask(&["s"], "p", one(1), Some(0)), Outcome::Queued);
    assert_eq!(world.ask(&["s"], "q", one(1), Some(0)), Outcome::Queued);
    world.happen(Event::Renamed("t", "s"));
    assert_eq!(world.ask(&["s"], "p", one(1), Some(0)), Outcome::Refused(Refusal::Deadlock));
}

/// A copy of a lock has the same fencing token, but another LIMIT. The previous LIMIT must not refuse q's request,
/// which fits only the LIMIT of the copy, although a rescan has yet to reach the key.
#[test]
fn a_copy_brings_its_limit_before_a_rescan_has_reached_the_key() {
    let mut world = World::new();
    let asked = |client, key, owner, claim, lease, block, session| {
        let keys = vec![key];
        Acquire { number: 0, client, keys, owner, claim, lease, block, session, coalesce: false, notify: false }
    };
    let one = Claim::Permits(1, Holds::By(1));
    world.send(Command::Acquire(asked(4, "s", "q", one, Some(3), None, true)));
    assert!(matches!(world.ask(&["s"], "o", Claim::Slot(2), None), Outcome::Granted(..)));
    world.happen(Event::Restored("s", "t"));
    world.pass(20);
    let queued = world.send(Command::Acquire(asked(5, "t", "q", one, Some(30), Some(0), false)));
    assert_eq!(queued, Outcome::Queued);
    world.happen(Event::Restored("s", "t"));
}
