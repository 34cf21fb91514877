//! A slot that moves key by key, as `redis-cli --cluster reshard` does it, while its locks are held and waited for.

use faults::judge::Scope;
use support::Server;

use super::{patient_plan, Run, GRANTS, NEVER};
use crate::judged::assert_none;

/// How many requests meet the slot in each state of a move at least.
const REQUESTS: usize = 30;

#[test]
fn locks_of_a_slot_that_is_resharded_are_held_once_and_nobody_who_waits_is_forgotten() {
    let mut run = Run::start(patient_plan(), NEVER, Server::builder);
    while run.goes_on(6) {
        run.workers.wait_for_grants(GRANTS);
        let from = run.primary();
        // Nobody fails: the first three stay the primaries.
        let to = (from + 1) % 3;
        run.cluster.begin_to_move(run.slot, from, to);
        run.wait_for_requests(REQUESTS);
        while run.cluster.move_keys(run.slot, from, to) {
            run.wait_for_requests(REQUESTS);
        }
        run.cluster.finish_to_move(run.slot, from, to);
        run.has_failed();
    }
    // Two nodes have the slot while it moves: they number grants of different keys side by side.
    let shown = run.end("a slot is resharded", Scope::Key);
    assert_none(&shown.breaches(Scope::Key));
    shown.assert_no_wake_up_lost();
    assert_eq!(shown.row.unknown, 0, "no connection broke");
    for code in ["ASK", "MOVED", "TRYAGAIN"] {
        assert!(shown.told(code) > 0, "nobody was told {code}: {:?}", shown.row);
    }
    shown.row.report();
}
