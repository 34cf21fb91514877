//! A slot that moves key by key, as with `redis-cli --cluster reshard`, while its locks are held and waited for.

use faults::judge::Scope;
use faults::{Caller, Cluster, Kind, Lock, Mode, Outcome, Recorder};
use support::{until, Server};

use super::{code_of, patient_plan, Run, GRANTS, LONG, NEVER};
use crate::judged::assert_none;

/// The minimum number of requests that meet the slot in each state of a move.
const REQUESTS: usize = 30;

#[test]
fn locks_of_a_resharded_slot_are_held_once_and_no_waiter_is_forgotten() {
    let mut run = Run::start(patient_plan(), NEVER, Server::builder);
    while run.continues(6) {
        run.workers.wait_for_grants(GRANTS);
        let from = run.primary();
        // No node fails, so the first three stay the primaries.
        let to = (from + 1) % 3;
        run.cluster.begin_to_move(run.slot, from, to);
        run.wait_for_requests(REQUESTS);
        while run.cluster.move_keys(run.slot, from, to) {
            run.wait_for_requests(REQUESTS);
        }
        run.cluster.finish_to_move(run.slot, from, to);
        run.has_failed();
    }
    // Two nodes have the slot while it moves, and each assigns fencing tokens for different keys.
    let shown = run.end("a slot is resharded", Scope::Key);
    assert_none(&shown.breaches(Scope::Key));
    shown.assert_no_wake_up_lost();
    assert_eq!(shown.broken, 0, "no connection broke");
    for code in ["ASK", "MOVED", "TRYAGAIN"] {
        assert!(shown.errors_with(code) > 0, "no client read {code}: {:?}", shown.row);
    }
    shown.row.report();
}

/// The judge's own clients obey the contract of ASK. A client that did not would acquire the lock twice, because the
/// importing node does not know which keys are still on the source.
#[test]
fn a_client_redirected_for_one_key_does_not_use_the_node_for_another() {
    let cluster = Cluster::start(NEVER, Server::builder);
    let [gone, here] = ["{k}gone", "{k}here"].map(|key| Lock::new(key, Kind::Mutex));
    let caller = |number| Caller::new(number, Recorder::new(), cluster.route());
    let (mut holder, mut asker) = (caller(0), caller(1));
    let take = |caller: &mut Caller, lock: &Lock, owner: &str| caller.acquire(lock, owner, Mode::Mutex, LONG, None);
    until("the lock is held", || matches!(take(&mut holder, &here, "a"), Outcome::Granted { .. }));
    let slot = cluster.slot(&here.key);
    let from = cluster.primary_of(slot);
    cluster.begin_to_move(slot, from, (from + 1) % 3);
    until("it is sent on", || match asker.release(&gone, "b", Mode::Mutex) {
        Outcome::Refused(error) => code_of(&error) == "ASK",
        outcome => panic!("{outcome:?}"),
    });
    until("it is reported", || match take(&mut asker, &here, "b") {
        Outcome::Refused(error) => {
            assert_eq!(code_of(&error), "MOVED");
            false
        }
        outcome => {
            assert_eq!(outcome, Outcome::NotGranted, "the lock is still held on its old node");
            true
        }
    });
}
