//! A full disk: the append-only file or a snapshot cannot be written. The server decides how to react (it refuses
//! writes, or it exits); locks, waiters and fencing tokens are judged here.

mod small_disk;

use std::time::{Duration, Instant};

use faults::judge::{assert_drained, fences, holds, lost, overlaps, Hold, Scope};
use faults::{seconds, Action, History, Kind, Lock, Mode, Operation, Outcome, Plan, Recorder, Row, Workers};
use support::{until, Builder, Client, Server};

use crate::judged::assert_none;
use crate::load::route;
use crate::parked::{caller, Parked};
use small_disk::SmallDisk;

const DISK_BYTES: usize = 64 << 20;

/// The minimum number of grants between two faults.
const GRANTS: usize = 30;

/// The initial lease that must expire while the disk is full; it is longer on a slow machine.
const SHORT_LEASE: Duration = Duration::from_millis(500);

fn append_only(disk: &SmallDisk, fsync: &str) -> Builder {
    // A file that grows for a minute is rewritten before it fills the disk.
    let lines = ["appendonly yes", "auto-aof-rewrite-min-size 8mb"];
    lines.into_iter().fold(disk.server(), Builder::config).config(format!("appendfsync {fsync}"))
}

fn field(client: &mut Client, name: &str) -> String {
    support::Info::parse(client.run("INFO persistence").text()).text(name).to_string()
}

/// `appendfsync everysec`: MISCONF until the file can be written again.
#[test]
fn no_grants_while_the_append_only_file_cannot_be_written() {
    let Some(disk) = SmallDisk::new(DISK_BYTES) else { return };
    let server = append_only(&disk, "everysec").start();
    let (row, _) = refuse_writes(
        "full disk, appendfsync everysec",
        &server,
        |client| {
            disk.fill();
            until("the file cannot be written", || field(client, "aof_last_write_status") == "err");
        },
        |client| {
            disk.free();
            until("the file can be written", || field(client, "aof_last_write_status") == "ok");
        },
    );
    row.report();
}

/// `stop-writes-on-bgsave-error`: MISCONF until a snapshot succeeds.
#[test]
fn no_grants_while_snapshots_cannot_be_written() {
    let Some(disk) = SmallDisk::new(DISK_BYTES) else { return };
    let server = disk.server().config("save 3600 1").start();
    let save = |client: &mut Client, status: &str| {
        until(&format!("a snapshot ends with {status}"), || {
            // Refused while another snapshot is being saved.
            client.run("BGSAVE");
            until("it has ended", || field(client, "rdb_bgsave_in_progress") == "0");
            field(client, "rdb_last_bgsave_status") == status
        });
    };
    let (row, _) = refuse_writes(
        "full disk, snapshots",
        &server,
        |client| {
            disk.fill();
            save(client, "err");
        },
        |client| {
            disk.free();
            save(client, "ok");
        },
    );
    row.report();
}

/// Makes the server refuse writes and accept them again, for the duration of a scenario. During a refusal no lock is
/// granted and leases expire; afterwards waiters are granted. The server keeps running, so nothing is lost.
fn refuse_writes(
    scenario: &str,
    server: &Server,
    close: impl Fn(&mut Client),
    open: impl Fn(&mut Client),
) -> (Row, History) {
    let version = server.info("server").version();
    let mut client = server.client();
    let plan = Plan::mixed();
    let recorder = Recorder::new();
    let workers = Workers::start(&plan, &recorder, route(server));
    let mut aside = caller(server, &recorder);
    let mut outages = Vec::new();
    let mut short_lease = SHORT_LEASE;
    // How many leases have expired while writes were refused.
    let mut ended = 0;
    let started = Instant::now();
    while ended < 2 || started.elapsed() < seconds() {
        workers.wait_for_grants(GRANTS);
        let name = |what: &str| format!("{what}-{}", outages.len());
        let [ending, lasting] = ["ending", "lasting"].map(|what| Lock::new(name(what), Kind::Mutex));
        let holder = name("holder");
        aside.acquire(&lasting, &holder, Mode::Mutex, plan.lease * 30, None);
        let lasting_waits = Parked::behind(server, &recorder, &lasting, &name("second"));
        aside.acquire(&ending, &holder, Mode::Mutex, short_lease, None);
        let expiring_waits = Parked::behind(server, &recorder, &ending, &name("next"));

        close(&mut client);
        let closed = recorder.now();
        let mut is_held = || !client.cmd(&["LOCK.HELD", &ending.key, &holder]).is_nil();
        let expires_in_between = is_held();
        until("a lease has ended", || !is_held());
        let refused = aside.release(&lasting, &holder, Mode::Mutex);
        assert!(matches!(&refused, Outcome::Refused(error) if error.starts_with("MISCONF ")), "{refused:?}");
        if expires_in_between {
            expiring_waits.assert_waits();
            ended += 1;
        } else {
            short_lease *= 2;
        }
        lasting_waits.assert_waits();
        outages.push(closed..recorder.now());

        open(&mut client);
        expiring_waits.assert_served();
        assert_eq!(aside.release(&lasting, &holder, Mode::Mutex), Outcome::Done);
        lasting_waits.assert_served();
    }
    workers.wait_for_grants(GRANTS);
    let history = workers.stop();
    assert_drained(&mut client, &plan.locks);
    let within: Vec<_> = outages.iter().flat_map(|outage| granted_within(&history, outage)).collect();
    assert_none(&within);
    let holds = holds(&history);
    assert_none(&fences(&holds, Scope::Server));
    assert_none(&lost(&holds));
    assert_none(&overlaps(&holds));
    (Row::of(scenario, &version, outages.len(), &history), history)
}

/// The requests that were sent and granted within this time.
fn granted_within(history: &History, time: &std::ops::Range<Duration>) -> Vec<String> {
    let is_granted = |outcome: &Outcome| matches!(outcome, Outcome::Granted { .. });
    let within = history.operations().iter().filter(|operation| {
        is_granted(&operation.outcome) && operation.invoked >= time.start && operation.returned <= time.end
    });
    within.map(|operation| format!("{operation:?}")).collect()
}

/// `appendfsync always`: Redis exits before it replies.
#[test]
fn nothing_acknowledged_is_lost_if_the_server_exits_on_a_full_disk() {
    let Some(disk) = SmallDisk::new(DISK_BYTES) else { return };
    let mut server = append_only(&disk, "always").start();
    let (row, history, _) = end_and_restart("full disk, appendfsync always", &disk, &mut server, |server| {
        until("the server has ended itself", || !server.is_alive());
    });
    let holds = holds(&history);
    assert_none(&lost(&holds));
    assert_none(&overlaps(&holds));
    row.report();
}

/// `appendfsync everysec`: replies of the iteration in which the disk was found to be full are only in memory while it
/// is full. A crash loses these, and no earlier reply.
#[test]
fn a_crash_on_a_full_disk_loses_nothing_acknowledged_before_it_was_full() {
    let Some(disk) = SmallDisk::new(DISK_BYTES) else { return };
    let mut server = append_only(&disk, "everysec").start();
    let scenario = "full disk, appendfsync everysec, kill -9";
    let (row, history, filled) = end_and_restart(scenario, &disk, &mut server, |server| {
        let mut client = server.client();
        until("the file cannot be written", || field(&mut client, "aof_last_write_status") == "err");
    });
    assert_none(&forgotten_too_much(&history, &filled));
    row.report();
}

/// Lost holds whose owner got no reply between the last time the disk was filled and the loss, so they had been
/// written.
fn forgotten_too_much(history: &History, filled: &[Duration]) -> Vec<Hold> {
    let is_written = |hold: &&Hold| {
        let last_filled = filled.iter().rfind(|time| **time < hold.until);
        let answered = history.operations().iter().filter(|operation| {
            let is_answer = matches!(
                (&operation.action, &operation.outcome),
                (Action::Acquire { .. }, Outcome::Granted { .. }) | (Action::Renew { .. }, Outcome::Done)
            );
            is_answer && operation.key == hold.key && operation.owner == hold.owner && operation.returned <= hold.until
        });
        let last_answered = answered.map(|operation| operation.returned).max();
        last_filled.is_none_or(|filled| last_answered.is_none_or(|answered| answered < *filled))
    };
    lost(&holds(history)).into_iter().filter(is_written).cloned().collect()
}

/// Fills the disk, ends the server, makes room and restarts it, for the duration of a scenario. Also returns when each
/// filling began.
fn end_and_restart(
    scenario: &str,
    disk: &SmallDisk,
    server: &mut Server,
    until_full: impl Fn(&mut Server),
) -> (Row, History, Vec<Duration>) {
    let version = server.info("server").version();
    let plan = Plan::mixed();
    let recorder = Recorder::new();
    let workers = Workers::start(&plan, &recorder, route(server));
    let (started, mut filled) = (Instant::now(), Vec::new());
    while filled.len() < 2 || started.elapsed() < seconds() {
        workers.wait_for_grants(GRANTS);
        filled.push(recorder.now());
        disk.fill();
        until_full(server);
        server.kill();
        disk.free();
        server.restart();
    }
    workers.wait_for_grants(GRANTS);
    let history = workers.stop();
    assert_drained(&mut server.client(), &plan.locks);
    assert_none(&fences(&holds(&history), Scope::Server));
    (Row::of(scenario, &version, filled.len(), &history), history, filled)
}

#[test]
fn a_hold_that_was_written_and_lost_is_detected() {
    let ms = Duration::from_millis;
    let operation = |owner: &str, action: Action, time: [u64; 2], outcome: Outcome| Operation {
        client: 0,
        key: "k".into(),
        owner: owner.into(),
        action,
        invoked: ms(time[0]),
        returned: ms(time[1]),
        outcome,
    };
    let (mode, lease) = (Mode::Mutex, ms(1_000));
    let history = History::new(vec![
        operation("a", Action::Acquire { mode, lease, block: None }, [0, 10], Outcome::Granted { fence: 1 }),
        operation("a", Action::Read, [100, 110], Outcome::NotHeld),
    ]);
    assert_eq!(forgotten_too_much(&history, &[ms(20)]).len(), 1, "it was granted before");
    assert_eq!(forgotten_too_much(&history, &[ms(5)]), [], "it was granted afterwards");
    assert_eq!(forgotten_too_much(&history, &[]).len(), 1, "no disk was full");
    assert_eq!(forgotten_too_much(&history, &[ms(5), ms(50)]).len(), 1, "it was written in the meantime");
}
