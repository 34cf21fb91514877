//! `kill -9` under load, and a start from the same files.

use std::sync::Arc;
use std::time::Instant;

use faults::judge::{assert_drained, fences, holds, lost, overlaps, Scope};
use faults::{seconds, Plan, Recorder, Row, Workers};
use support::{Builder, Server};

/// How many grants there are between two kills at least.
const GRANTS: usize = 30;

#[test]
fn nothing_acknowledged_is_lost_where_each_write_is_synced() {
    let (row, history) = kill_again_and_again("kill -9, appendfsync always", Server::builder().appendonly());
    let holds = holds(&history);
    assert_eq!(lost(&holds), Vec::<&faults::judge::Hold>::new());
    assert_eq!(overlaps(&holds), []);
    row.report();
}

/// Kills a server under load and starts it again, for as long as a scenario lasts. Fences are judged here: they never
/// go back, whatever was lost.
fn kill_again_and_again(scenario: &str, builder: Builder) -> (Row, faults::History) {
    let mut server = builder.start();
    let version = server.info("server").version();
    let address = ([127, 0, 0, 1], server.port()).into();
    let plan = Plan::mixed();
    let workers = Workers::start(&plan, &Recorder::new(), Arc::new(move || address));
    let (started, mut kills) = (Instant::now(), 0);
    while kills < 3 || started.elapsed() < seconds() {
        workers.wait_for_grants(GRANTS);
        server.kill();
        server.restart();
        kills += 1;
    }
    workers.wait_for_grants(GRANTS);
    let history = workers.stop();
    assert_drained(&mut server.client(), &plan.locks);
    assert_eq!(fences(&holds(&history), Scope::Server), Vec::<String>::new());
    (Row::of(scenario, &version, kills, &history), history)
}
