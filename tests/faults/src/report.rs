//! The result of a scenario: a row of the table in results/faults.md.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use serde_json::{json, Value};

use crate::history::{History, Outcome};
use crate::judge::{fences, holds, lost, overlaps, Scope};

/// How long a scenario runs: `REDIS_LOCK_FAULT_SECONDS`, or 4 s.
pub fn seconds() -> Duration {
    let seconds = std::env::var("REDIS_LOCK_FAULT_SECONDS").ok();
    Duration::from_secs(seconds.map_or(4, |seconds| seconds.parse().expect("REDIS_LOCK_FAULT_SECONDS is a number")))
}

/// One scenario on one server.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub scenario: String,
    /// For example `Redis 7.0.15`.
    pub server: String,
    pub seconds: u64,
    /// How often the fault was caused: kills, stops, partitions.
    pub faults: usize,
    pub grants: usize,
    /// Requests that got an error, or a reply that nothing is held.
    pub refused: usize,
    /// Requests with a lost reply.
    pub unknown: usize,
    /// Holds that ended before their lease expired, without a release.
    pub lost: usize,
    /// Groups of holds that were certain at the same time although they exclude each other.
    pub overlaps: usize,
    /// The finding about fencing tokens.
    pub fences: String,
}

impl Row {
    /// The findings of a history. The server is named as in [`support::Info::version`].
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
            fences: match (fences(&holds, Scope::Key).len(), overlaps.len()) {
                (0, 0) => "grow".into(),
                (0, overlaps) => format!("grow; order {overlaps} overlaps"),
                (wrong, _) => format!("wrong: {wrong}"),
            },
        }
    }

    /// Prints the row, and appends it as a line of JSON to the file named by `REDIS_LOCK_FAULTS_REPORT`.
    pub fn report(&self) {
        println!("{self:?}");
        if let Some(path) = std::env::var_os("REDIS_LOCK_FAULTS_REPORT") {
            let file = File::options().create(true).append(true).open(path);
            // A single write, because multiple tests append at the same time.
            let line = format!("{}\n", self.to_json());
            file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the row is written");
        }
    }

    /// Parses the rows of such a file.
    pub fn parse(lines: &str) -> Vec<Row> {
        let row = |line| {
            let json: Value = serde_json::from_str(line).expect("a line of JSON for each row");
            let text = |field: &str| json[field].as_str().expect("a string").to_string();
            let number = |field: &str| json[field].as_u64().expect("a number");
            let count = |field: &str| usize::try_from(number(field)).expect("a count");
            Row {
                scenario: text("scenario"),
                server: text("server"),
                seconds: number("seconds"),
                faults: count("faults"),
                grants: count("grants"),
                refused: count("refused"),
                unknown: count("unknown"),
                lost: count("lost"),
                overlaps: count("overlaps"),
                fences: text("fences"),
            }
        };
        lines.lines().map(row).collect()
    }

    /// A Markdown table, sorted by scenario and server.
    pub fn table(rows: &[Row]) -> String {
        let mut sorted: Vec<&Row> = rows.iter().collect();
        sorted.sort_by_key(|row| (&row.scenario, &row.server));
        let mut table = String::from(
            "| fault | server | s | faults | grants | refused | reply lost | grants lost | overlaps | fences |\n\
             | --- | --- | --: | --: | --: | --: | --: | --: | --: | --- |\n",
        );
        for Row { scenario, server, seconds, faults, grants, refused, unknown, lost, overlaps, fences } in sorted {
            table += &format!("| {scenario} | {server} | {seconds} | {faults} | {grants} | {refused} | {unknown} ");
            table += &format!("| {lost} | {overlaps} | {fences} |\n");
        }
        table
    }

    /// From a document with the heading `## Last run, <day>`: the day, and the rows of the table after it.
    pub fn last_run(document: &str) -> (&str, Vec<Row>) {
        let (_, run) = document.split_once("## Last run, ").expect("the heading");
        let (day, rest) = run.split_once('\n').expect("a table");
        let rows = rest.lines().filter(|line| line.starts_with("| ")).skip(2);
        (day, rows.map(Row::of_line).collect())
    }

    /// Parses a line of [`Row::table`].
    fn of_line(line: &str) -> Row {
        let cells: Vec<&str> = line.trim_matches(['|', ' ']).split(" | ").collect();
        let [scenario, server, numbers @ .., fences] = cells.as_slice() else { panic!("no row: {line}") };
        let numbers: Vec<usize> = numbers.iter().map(|cell| cell.parse().expect("a number")).collect();
        let [seconds, faults, grants, refused, unknown, lost, overlaps] = numbers[..] else { panic!("no row: {line}") };
        Row {
            scenario: scenario.to_string(),
            server: server.to_string(),
            seconds: seconds as u64,
            faults,
            grants,
            refused,
            unknown,
            lost,
            overlaps,
            fences: fences.to_string(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scenario: &str, server: &str) -> Row {
        Row {
            scenario: scenario.into(),
            server: server.into(),
            seconds: 60,
            faults: 5,
            grants: 1_000,
            refused: 4,
            unknown: 3,
            lost: 2,
            overlaps: 1,
            fences: "grow; order 1 overlaps".into(),
        }
    }

    #[test]
    fn a_row_is_parsed_as_it_was_written() {
        let rows = [row("kill -9", "Valkey 9.1.2"), row("kill -9", "Redis 7.0.15")];
        let lines: String = rows.iter().map(|row| format!("{}\n", row.to_json())).collect();
        assert_eq!(Row::parse(&lines), rows);
        let table = Row::table(&rows);
        let second = "| kill -9 | Redis 7.0.15 | 60 | 5 | 1000 | 4 | 3 | 2 | 1 | grow; order 1 overlaps |";
        assert_eq!(table.lines().nth(2), Some(second));
        assert_eq!(table.lines().count(), 4);
    }
}
