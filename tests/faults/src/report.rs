//! What a scenario has shown: a row of the table in docs/faults.md.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use serde_json::{json, Value};

use crate::history::{History, Outcome};
use crate::judge::{holds, lost, overlaps};

/// How long a scenario goes on: `REDIS_LOCK_FAULT_SECONDS`, or 4 s.
pub fn seconds() -> Duration {
    let seconds = std::env::var("REDIS_LOCK_FAULT_SECONDS").ok();
    Duration::from_secs(seconds.map_or(4, |seconds| seconds.parse().expect("REDIS_LOCK_FAULT_SECONDS is a number")))
}

/// One scenario on one server.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub scenario: String,
    /// As `Redis 7.0.15`.
    pub server: String,
    pub seconds: u64,
    /// How often the fault was made: kills, stops, partitions.
    pub faults: usize,
    pub grants: usize,
    /// Requests that were answered with an error, or that found that nothing is held.
    pub refused: usize,
    /// Requests whose reply was lost.
    pub unknown: usize,
    /// Holds that ended before their lease did, without a release.
    pub lost: usize,
    /// Pairs, or more, that were certain to hold at the same time what only one may hold.
    pub overlaps: usize,
    /// What the fences proved: `Row::of` counts the overlaps that they order.
    pub fences: String,
}

impl Row {
    /// What a history shows. The server is named as [`support::Info::version`] does.
    pub fn of(scenario: &str, server: &str, faults: usize, history: &History) -> Row {
        let holds = holds(history);
        let overlaps = overlaps(&holds);
        let end = history.operations().iter().map(|operation| operation.returned).max().unwrap_or_default();
        Row {
            scenario: scenario.into(),
            server: server.into(),
            seconds: end.as_secs(),
            faults,
            grants: holds.len(),
            refused: history.count(|outcome| matches!(outcome, Outcome::Refused(_) | Outcome::NotHeld)),
            unknown: history.count(|outcome| matches!(outcome, Outcome::Unknown)),
            lost: lost(&holds).len(),
            overlaps: overlaps.len(),
            fences: match overlaps.is_empty() {
                true => "grow".into(),
                false => format!("grow, {} overlaps ordered", overlaps.len()),
            },
        }
    }

    /// Prints the row, and appends it to the file that `REDIS_LOCK_FAULTS_REPORT` names, as a line of JSON.
    pub fn report(&self) {
        println!("{self:?}");
        if let Some(path) = std::env::var_os("REDIS_LOCK_FAULTS_REPORT") {
            let file = File::options().create(true).append(true).open(path);
            // One write: several tests append at the same time.
            let line = format!("{}\n", self.to_json());
            file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the row is written");
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "scenario": self.scenario,
            "server": self.server,
            "seconds": self.seconds,
            "faults": self.faults,
            "grants": self.grants,
            "refused": self.refused,
            "unknown": self.unknown,
            "lost": self.lost,
            "overlaps": self.overlaps,
            "fences": self.fences,
        })
    }
}
