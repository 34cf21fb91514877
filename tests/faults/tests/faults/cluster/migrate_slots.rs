//! A slot that moves in one step, with Valkey's `CLUSTER MIGRATESLOTS`: there and back, cancelled, and with one of the
//! two nodes killed.

use std::time::Duration;

use faults::judge::{overlaps, Scope};
use faults::{Plan, Point};
use support::{skip, Server};

use super::{patient_plan, plan, Run, Shown, GRANTS, NEVER, SOON};
use crate::judged::assert_none;

const POINTS: [Point; 2] = [Point::BeforePause, Point::Paused];

fn skips_migrations() -> bool {
    let migrates = !Server::start().client().run("COMMAND INFO cluster|migrateslots").items()[0].is_null();
    if !migrates {
        skip("this server has no CLUSTER MIGRATESLOTS");
    }
    !migrates
}

impl Run {
    /// The node that has the slot, and the next primary.
    #[track_caller]
    fn source_and_target(&self) -> (usize, usize) {
        let (from, primaries) = (self.primary(), self.cluster.primaries());
        let position = primaries.iter().position(|primary| *primary == from).expect("it is one of them");
        (from, primaries[(position + 1) % primaries.len()])
    }
}

/// The owner of the slot does not fail: nothing is lost, and waiters are granted.
#[track_caller]
fn assert_unharmed(shown: &Shown) {
    assert_none(&shown.breaches(Scope::Server));
    shown.assert_no_wake_up_lost();
}

#[test]
fn locks_of_a_migrated_slot_are_held_once_and_no_waiter_is_forgotten() {
    if skips_migrations() {
        return;
    }
    let mut run = Run::start(patient_plan(), NEVER, Server::builder);
    while run.continues(4) {
        run.workers.wait_for_grants(GRANTS);
        let (from, to) = run.source_and_target();
        run.cluster.begin_to_migrate(run.slot, from, to);
        run.cluster.until_migration_is(from, "success");
        run.has_failed();
    }
    let shown = run.end("CLUSTER MIGRATESLOTS", Scope::Server);
    assert_unharmed(&shown);
    assert_eq!(shown.broken, 0, "no connection broke");
    assert!(
        shown.errors_with("MOVED") > 0 && shown.errors_with("TRYAGAIN") > 0,
        "no client was redirected: {:?}",
        shown.row
    );
    shown.row.report();
}

#[test]
fn a_cancelled_migration_changes_nothing() {
    if skips_migrations() {
        return;
    }
    let mut run = Run::start(patient_plan(), NEVER, Server::builder);
    while run.continues(POINTS.len()) {
        run.workers.wait_for_grants(GRANTS);
        let (from, to) = run.source_and_target();
        run.cluster.migrate_until(run.slot, from, to, POINTS[run.faults.len() % 2]);
        run.cluster.cancel_migrations(from);
        run.cluster.until_migration_is(to, "failed");
        run.cluster.allow_migrations();
        run.has_failed();
        assert_eq!(run.primary(), from);
    }
    let shown = run.end("CLUSTER CANCELSLOTMIGRATIONS", Scope::Server);
    assert_unharmed(&shown);
    assert_eq!(shown.broken, 0, "no connection broke");
    shown.row.report();
}

#[test]
fn a_killed_target_leaves_every_lock_on_the_source() {
    if skips_migrations() {
        return;
    }
    let mut run = Run::start(patient_plan(), SOON, Server::builder);
    while run.continues(POINTS.len()) {
        run.workers.wait_for_grants(GRANTS);
        run.pace();
        let (from, to) = run.source_and_target();
        run.cluster.migrate_until(run.slot, from, to, POINTS[run.faults.len() % 2]);
        run.cluster.kill(to);
        run.cluster.until_migration_is(from, "failed");
        run.cluster.allow_migrations();
        run.has_failed();
        run.workers.wait_for_grants(GRANTS);
        run.replace(to);
        assert!(!run.is_as_planned() || run.primary() == from);
    }
    let shown = run.end("CLUSTER MIGRATESLOTS, its target killed", Scope::Server);
    if shown.is_as_planned() {
        assert_unharmed(&shown);
    }
    shown.row.report();
}

#[test]
fn a_killed_source_is_replaced_by_its_replica() {
    if skips_migrations() {
        return;
    }
    let lease = Duration::from_millis(1_500);
    let grace = format!("lock.grace {}", lease.as_millis());
    let mut run = Run::start(Plan { lease, ..plan() }, SOON, || Server::builder().config(grace.as_str()));
    run.end_grace();
    while run.continues(POINTS.len()) {
        run.workers.wait_for_grants(GRANTS);
        run.pace();
        let (from, to) = run.source_and_target();
        let replica = run.cluster.replica_of(from);
        run.cluster.migrate_until(run.slot, from, to, POINTS[run.faults.len() % 2]);
        run.cluster.kill(from);
        run.cluster.allow_migrations();
        run.has_failed();
        run.replace(from);
        assert_eq!(run.primary(), replica);
    }
    let shown = run.end("CLUSTER MIGRATESLOTS, its source killed", Scope::Server);
    assert_none(&overlaps(&shown.holds));
    shown.row.report();
}
