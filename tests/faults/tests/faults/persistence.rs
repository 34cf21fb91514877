//! `kill -9` under load, and a start from the same files. A killed process loses no write that it passed to the system;
//! a power failure does, so there the end of the AOF is also cut off.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use faults::judge::{assert_drained, breaches, breaches_despite_losses, holds, overlaps, Scope};
use faults::{seconds, History, Observer, Plan, Recorder, Row, Workers, ADOPT};
use support::{until, Builder, Reply, Server};

use crate::judged::assert_none;

/// The minimum number of grants between two faults.
const GRANTS: usize = 20;

#[test]
fn nothing_acknowledged_is_lost_if_each_write_is_synced() {
    let plan = Plan { die_one_in: 50, ..Plan::mixed() };
    let builder = Server::builder().appendonly();
    kill_again_and_again("kill -9, appendfsync always", plan, builder, kill, |history| {
        breaches(history, Scope::Server)
    });
}

/// Some kills come while the new file is being written, some after it has replaced the old one.
#[test]
fn nothing_acknowledged_is_lost_while_the_aof_is_rewritten() {
    let builder = Server::builder().appendonly().config("aof-use-rdb-preamble no");
    let rewrite_and_kill = |server: &mut Server, workers: &Workers| {
        server.client().run("BGREWRITEAOF");
        workers.wait_for_grants(1);
        server.kill();
    };
    kill_again_and_again("kill -9, AOF rewritten", Plan::mixed(), builder, rewrite_and_kill, |history| {
        breaches(history, Scope::Server)
    });
}

#[test]
fn fences_order_the_losses_if_writes_are_synced_every_second() {
    kill_again_and_again("kill -9, appendfsync everysec", long_holds(), everysec(), kill, despite_losses);
}

#[test]
fn fences_order_the_losses_if_the_system_syncs_writes() {
    let builder = Server::builder().config("appendonly yes").config("appendfsync no");
    kill_again_and_again("kill -9, appendfsync no", long_holds(), builder, kill, despite_losses);
}

#[test]
fn fences_order_the_losses_since_the_last_rdb_file() {
    let save_and_kill = |server: &mut Server, workers: &Workers| {
        assert_eq!(server.client().run("SAVE"), Reply::ok());
        workers.wait_for_grants(GRANTS);
        server.kill();
    };
    kill_again_and_again("kill -9, RDB only", long_holds(), Server::builder(), save_and_kill, despite_losses);
}

#[test]
fn fences_order_the_losses_of_a_power_failure() {
    kill_again_and_again("power cut, appendfsync everysec", long_holds(), everysec(), cut_power, despite_losses);
}

#[test]
fn with_a_grace_of_the_longest_lease_no_holds_overlap_after_a_power_failure() {
    let plan = Plan { lease: Duration::from_millis(600), ..long_holds() };
    let builder = everysec().module_args(format!("grace {}", plan.lease.as_millis()));
    kill_again_and_again("power cut, lock.grace", plan, builder, cut_power, |history| {
        let overlaps = overlaps(&holds(history)).into_iter().map(|overlap| format!("{overlap:?}"));
        overlaps.chain(despite_losses(history)).collect()
    });
}

fn despite_losses(history: &History) -> Vec<String> {
    breaches_despite_losses(history, Scope::Server)
}

fn everysec() -> Builder {
    Server::builder().config("appendonly yes").config("appendfsync everysec")
}

/// Holds that last long enough to be lost.
fn long_holds() -> Plan {
    Plan { hold: Duration::from_millis(40), ..Plan::mixed() }
}

fn kill(server: &mut Server, _: &Workers) {
    server.kill();
}

/// Cuts off the end of the AOF, with many grants.
fn cut_power(server: &mut Server, workers: &Workers) {
    let aof = incremental_aof(server);
    let len = || fs::metadata(&aof).expect("there is an AOF").len();
    let synced = len();
    workers.wait_for_grants(GRANTS);
    // A server whose disk is busy writes them up to two seconds later.
    until("grants are written", || len() > synced);
    server.kill();
    let file = File::options().write(true).open(&aof).expect("there is an AOF");
    file.set_len(synced).expect("the AOF is cut");
}

/// The file that the server appends to.
fn incremental_aof(server: &Server) -> PathBuf {
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("there is an AOF");
    let mut names = files.map(|file| file.expect("it can be read").path());
    names.find(|name| name.to_string_lossy().ends_with(".incr.aof")).expect("there is an AOF to append to")
}

/// Causes a fault on a server under load and restarts it from its files, for the duration of a scenario. `judge` lists
/// the broken promises; whatever was lost, no waiter is forgotten in the end.
fn kill_again_and_again(
    scenario: &str,
    plan: Plan,
    builder: Builder,
    fault: impl Fn(&mut Server, &Workers),
    judge: impl Fn(&History) -> Vec<String>,
) {
    let plan = plan.with_adopted("adopted");
    let mut server = builder.config(ADOPT).start();
    let version = server.info("server").version();
    let address = ([127, 0, 0, 1], server.port()).into();
    let (recorder, pid) = (Recorder::new(), Arc::new(AtomicU32::new(server.pid())));
    let observer = Observer::start(&recorder, &plan.locks, Arc::new(move || address), pid.clone());
    let workers = Workers::start(&plan, &recorder, Arc::new(move || address));
    let (started, mut faults) = (Instant::now(), 0);
    while faults < 3 || started.elapsed() < seconds() {
        workers.wait_for_grants(GRANTS);
        fault(&mut server, &workers);
        server.restart();
        pid.store(server.pid(), Ordering::Relaxed);
        faults += 1;
    }
    workers.wait_for_grants(GRANTS);
    let history = workers.stop();
    observer.stop();
    assert_drained(&mut server.client(), &plan.locks);
    assert_none(&judge(&history));
    Row::of(scenario, &version, faults, &history).report();
}
