//! A server's wall clock is set by an hour. Leases follow it, as every TTL does; fencing tokens never go back as long
//! as the data is kept. Holds are judged by the clients' monotonic clock.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use faults::judge::{assert_drained, breaches, breaches_despite_losses, fences, holds, lost, Hold, Scope};
use faults::{seconds, History, Outcome, Plan, Recorder, Row, Workers};
use support::{in_sync, skip, until, Builder, Client, Reply, Server};

use crate::judged::assert_none;
use crate::load::route;

/// The minimum number of grants between two steps.
const GRANTS: usize = 20;

const HOUR: i64 = 3_600;

/// A step is noticed within one event-loop iteration; a reply sent just before may be read after it.
const ROUND: Duration = Duration::from_secs(1);

/// A server whose clock can be set; None if that is impossible.
fn clocked() -> Option<Builder> {
    if cfg!(target_os = "linux") {
        return Some(Server::builder().clock("+0s"));
    }
    skip("libfaketime shifts clocks on Linux only");
    None
}

fn set_clock(server: &mut Server, by_seconds: i64) {
    server.set_clock(&format!("{by_seconds:+}s"));
}

/// Holds that last long enough for a step to happen during them; some clients die.
fn plan() -> Plan {
    Plan { hold: Duration::from_millis(40), ..Plan::mixed() }
}

/// Each step sets the clock back an hour: leases last longer than their owners requested, and nothing is lost.
#[test]
fn setting_it_back_ends_no_hold() {
    let Some(builder) = clocked() else { return };
    let mut server = builder.start();
    let version = server.info("server").version();
    let plan = plan();
    let workers = Workers::start(&plan, &Recorder::new(), route(&server));
    let (started, mut hours) = (Instant::now(), 0);
    while hours < 3 || started.elapsed() < seconds() {
        workers.wait_for_grants(GRANTS);
        hours += 1;
        set_clock(&mut server, -HOUR * hours);
    }
    workers.wait_for_grants(GRANTS);
    let history = workers.stop();
    assert_drained(&mut server.client(), &plan.locks);
    assert_none(&breaches(&history, Scope::Server));
    Row::of("clock -1 h, primary", &version, usize::try_from(hours).expect("a count"), &history).report();
}

/// Each step sets the clock forward an hour and back again: current holds end, others do not, and fencing tokens always
/// grow.
#[test]
fn setting_it_forward_ends_holds_and_fences_order_the_holders() {
    let Some(builder) = clocked() else { return };
    let mut server = builder.start();
    let version = server.info("server").version();
    let plan = plan();
    let recorder = Recorder::new();
    let workers = Workers::start(&plan, &recorder, route(&server));
    let (started, mut steps) = (Instant::now(), Vec::new());
    while steps.len() < 3 || started.elapsed() < seconds() {
        workers.wait_for_grants(GRANTS);
        let before = recorder.now();
        set_clock(&mut server, HOUR);
        steps.push(before..recorder.now());
        workers.wait_for_grants(GRANTS);
        set_clock(&mut server, 0);
    }
    workers.wait_for_grants(GRANTS);
    let history = workers.stop();
    assert_drained(&mut server.client(), &plan.locks);
    assert_none(&breaches_despite_losses(&history, Scope::Server));
    assert_none(&lost_without_a_step(&history, &steps));
    let lost = lost(&holds(&history)).len();
    assert!(lost > 0, "nothing was held when the clock was set");
    Row::of("clock +1 h and back, primary", &version, steps.len(), &history).report();
}

/// The holds that were lost although the clock was not set forward between the request and the reply that showed the
/// loss.
fn lost_without_a_step(history: &History, steps: &[Range<Duration>]) -> Vec<Hold> {
    let holds = holds(history);
    let is_due_to_a_step = |hold: &&Hold| {
        let reported_at = loss_reported_at(history, hold);
        steps.iter().any(|step| hold.requested_at <= step.end + ROUND && step.start <= reported_at)
    };
    lost(&holds).into_iter().filter(|hold| !is_due_to_a_step(hold)).cloned().collect()
}

/// When the reply that showed the loss was read; the request may have been sent long before.
fn loss_reported_at(history: &History, hold: &Hold) -> Duration {
    let replies = history.operations().iter().filter(|operation| {
        let is_no_hold = match operation.outcome {
            Outcome::NotHeld | Outcome::NotGranted => true,
            Outcome::Granted { fence } => fence != hold.fence,
            _ => false,
        };
        is_no_hold && operation.key == hold.key && operation.owner == hold.owner && operation.returned >= hold.until
    });
    replies.map(|operation| operation.returned).min().unwrap_or(hold.until)
}

/// A server that is restarted with a clock an hour behind, from a complete file.
#[test]
fn a_restart_with_a_clock_set_back_keeps_holds_and_fences() {
    let Some(builder) = clocked() else { return };
    let (row, history) = restart_with_clock_an_hour_behind("clock -1 h, restart with its data", builder.appendonly());
    assert_none(&breaches(&history, Scope::Server));
    row.report();
}

/// Nothing is promised if data is lost and the clock is set back: fencing tokens go back, and the judge notices it.
#[test]
fn a_restart_without_data_and_with_a_clock_set_back_shows_in_the_fences() {
    let Some(builder) = clocked() else { return };
    let (mut row, history) = restart_with_clock_an_hour_behind("clock -1 h, restart without data", builder);
    let gone_back = fences(&holds(&history), Scope::Server);
    assert!(!gone_back.is_empty(), "the clock was set back, and nothing kept the last fence");
    row.fences = format!("{} go back: nothing is promised here", gone_back.len());
    row.report();
}

fn restart_with_clock_an_hour_behind(scenario: &str, builder: Builder) -> (Row, History) {
    let mut server = builder.start();
    let version = server.info("server").version();
    let plan = plan();
    let workers = Workers::start(&plan, &Recorder::new(), route(&server));
    let (started, mut hours) = (Instant::now(), 0);
    while hours < 2 || started.elapsed() < seconds() {
        workers.wait_for_grants(GRANTS);
        server.kill();
        hours += 1;
        set_clock(&mut server, -HOUR * hours);
        server.restart();
    }
    workers.wait_for_grants(GRANTS);
    let history = workers.stop();
    assert_drained(&mut server.client(), &plan.locks);
    (Row::of(scenario, &version, usize::try_from(hours).expect("a count"), &history), history)
}

/// A fully synchronized replica with a clock an hour behind is promoted: leases last longer, nothing is lost.
#[test]
fn a_replica_an_hour_behind_that_has_everything_keeps_holds_and_fences() {
    let Some(builder) = clocked() else { return };
    let (row, history) = promote("clock -1 h, promoted replica in sync", builder, -HOUR, wait_until_in_sync);
    assert_none(&breaches(&history, Scope::Server));
    row.report();
}

/// A replica with a clock an hour ahead is promoted: all leases have expired, and fencing tokens grow.
#[test]
fn a_replica_an_hour_ahead_ends_all_leases_and_fences_order_the_holders() {
    let Some(builder) = clocked() else { return };
    let (row, history) = promote("clock +1 h, promoted replica in sync", builder, HOUR, wait_until_in_sync);
    assert_none(&breaches_despite_losses(&history, Scope::Server));
    row.report();
}

/// A replica with a clock an hour behind lacks the last effects. Grants among them are lost; a lock whose release is
/// among them stays held for an hour; and its next fencing tokens may equal ones assigned since. Nothing is promised if
/// the clocks differ by more than the failover takes: the breaches are only counted.
#[test]
fn grants_that_a_replica_an_hour_behind_did_not_receive_are_counted() {
    let Some(builder) = clocked() else { return };
    let mut stuck = 0;
    let go_on_alone = |_: &Server, replica: &Server, workers: &Workers| {
        let mut client = replica.client();
        assert_eq!(client.run("REPLICAOF NO ONE"), Reply::ok());
        workers.wait_for_grants(GRANTS);
        // As an operator would do: these holders are gone.
        stuck = plan().locks.iter().map(|lock| client.cmd(&["LOCK.BREAK", &lock.key]).int()).sum();
    };
    let (mut row, history) = promote("clock -1 h, promoted replica behind", builder, -HOUR, go_on_alone);
    let wrong = fences(&holds(&history), Scope::Server).len();
    row.fences = format!("{wrong} go back or repeat, {stuck} holds of an hour broken: nothing is promised here");
    row.report();
}

/// Promotes, once and under load, a replica whose clock differs by that many seconds; `part` separates it from its
/// primary.
fn promote(
    scenario: &str,
    builder: Builder,
    by_seconds: i64,
    part: impl FnOnce(&Server, &Server, &Workers),
) -> (Row, History) {
    let mut primary = builder.clone().start();
    let replica = builder.replica_of(&primary).clock(&format!("{by_seconds:+}s")).start();
    let version = primary.info("server").version();
    let plan = plan();
    let address = Arc::new(Mutex::new(SocketAddr::from(([127, 0, 0, 1], primary.port()))));
    let reported_at = address.clone();
    let workers =
        Workers::start(&plan, &Recorder::new(), Arc::new(move || *reported_at.lock().expect("no thread panics")));
    in_sync(&primary, &replica);
    workers.wait_for_grants(GRANTS * 3);
    part(&primary, &replica, &workers);
    primary.kill();
    assert_eq!(replica.client().run("REPLICAOF NO ONE"), Reply::ok());
    *address.lock().expect("no thread panics") = ([127, 0, 0, 1], replica.port()).into();
    workers.wait_for_grants(GRANTS * 3);
    let history = workers.stop();
    assert_drained(&mut replica.client(), &plan.locks);
    (Row::of(scenario, &version, 1, &history), history)
}

/// The primary accepts no more writes, and the replica has all of them.
fn wait_until_in_sync(primary: &Server, replica: &Server, _: &Workers) {
    let mut client = primary.client();
    assert_eq!(client.run("CLIENT PAUSE 60000 WRITE"), Reply::ok());
    until("the replica has everything", || offset(&mut client) == offset(&mut replica.client()));
}

fn offset(client: &mut Client) -> i64 {
    let info = support::Info::parse(client.run("INFO replication").text());
    match info.text("role") {
        "master" => info.number("master_repl_offset"),
        _ => info.number("slave_repl_offset"),
    }
}

#[test]
fn a_hold_lost_without_a_clock_change_is_detected() {
    use faults::{Action, Mode, Operation};
    let ms = Duration::from_millis;
    let operation = |action, [invoked, returned]: [u64; 2], outcome| Operation {
        client: 0,
        key: "k".into(),
        owner: "a".into(),
        action,
        invoked: ms(invoked),
        returned: ms(returned),
        outcome,
    };
    let acquire = Action::Acquire { mode: Mode::Mutex, lease: ms(9_000), block: None };
    let history = History::new(vec![
        operation(acquire, [5_000, 5_010], Outcome::Granted { fence: 1 }),
        operation(Action::Read, [6_000, 6_010], Outcome::NotHeld),
    ]);
    let at = |time| ms(time)..ms(time + 1);
    assert_eq!(lost_without_a_step(&history, &[at(5_500)]), []);
    assert_eq!(lost_without_a_step(&history, &[at(6_005)]), [], "while the request was on its way");
    assert_eq!(lost_without_a_step(&history, &[at(1_000), at(7_000)]).len(), 1);
}
