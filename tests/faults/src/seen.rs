//! The observed faults in docs/safety.md: the rows of results/faults.md added up, one line for each kind of fault.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::report::Row;

/// The name of a kind of fault on the page, and its scenarios.
const KINDS: [(&str, &[&str]); 36] = [
    ("`kill -9`, `appendfsync always`", &["kill -9, appendfsync always"]),
    ("`kill -9`, `everysec`", &["kill -9, appendfsync everysec"]),
    ("`kill -9`, `no`", &["kill -9, appendfsync no"]),
    ("`kill -9` while the append-only file is rewritten", &["kill -9, AOF rewritten"]),
    ("`kill -9`, RDB only", &["kill -9, RDB only"]),
    ("power cut, `everysec`", &["power cut, appendfsync everysec"]),
    ("the same with `lock.grace`", &["power cut, lock.grace"]),
    (
        "full disk: `always`, `everysec`, snapshots",
        &["full disk, appendfsync always", "full disk, appendfsync everysec", "full disk, snapshots"],
    ),
    ("full disk, `everysec`, `kill -9`", &["full disk, appendfsync everysec, kill -9"]),
    ("out of memory; `maxclients` reached", &["no memory, noeviction", "maxclients reached"]),
    ("locks evicted", &["eviction, allkeys-lru", "eviction, volatile-ttl"]),
    ("a replica that lags is promoted", &["REPLICAOF NO ONE, the replica lagged"]),
    ("the same with WAIT 1", &["REPLICAOF NO ONE, the replica lagged, WAIT 1"]),
    ("the same with `lock.grace`", &["REPLICAOF NO ONE, the replica lagged, lock.grace"]),
    ("`FAILOVER` and back", &["FAILOVER", "FAILOVER, lock.grace"]),
    ("Sentinels, the primary is killed", &["Sentinels, the primary is killed"]),
    ("the same with WAIT 2", &["Sentinels, the primary is killed, WAIT 2"]),
    ("Sentinels, the primary is paused", &["Sentinels, the primary is stopped"]),
    (
        "partition, both sides have clients",
        &["partition (hosts), min-replicas-to-write 0", "partition (proxies), min-replicas-to-write 0"],
    ),
    (
        "the same with `min-replicas-to-write 1`",
        &["partition (hosts), min-replicas-to-write 1", "partition (proxies), min-replicas-to-write 1"],
    ),
    (
        "the same with `min-replicas-to-write 1` and `lock.grace`",
        &[
            "partition (hosts), min-replicas-to-write 1, lock.grace",
            "partition (proxies), min-replicas-to-write 1, lock.grace",
        ],
    ),
    (
        "partition of a holder from the primary; a late grant",
        &[
            "partition (hosts) of a holder from the primary",
            "partition (proxies) of a holder from the primary",
            "a grant held back until its lease has expired",
        ],
    ),
    (
        "cluster: slots resharded, migrated",
        &["a slot is resharded", "CLUSTER MIGRATESLOTS", "CLUSTER CANCELSLOTMIGRATIONS"],
    ),
    (
        "cluster: a primary is killed, including during a slot migration",
        &["a primary is killed", "CLUSTER MIGRATESLOTS, its source killed", "CLUSTER MIGRATESLOTS, its target killed"],
    ),
    ("the same with a lagging replica and `lock.grace`", &["a primary with a lagging replica is killed, lock.grace"]),
    ("`CLUSTER FAILOVER`", &["CLUSTER FAILOVER"]),
    ("`CLUSTER FAILOVER TAKEOVER`, the replica lags", &["CLUSTER FAILOVER TAKEOVER"]),
    (
        "the same, or FORCE, with `lock.grace`",
        &["CLUSTER FAILOVER TAKEOVER, lock.grace", "CLUSTER FAILOVER FORCE, lock.grace"],
    ),
    (
        "clock set back by an hour",
        &["clock -1 h, primary", "clock -1 h, restart with its data", "clock -1 h, promoted replica in sync"],
    ),
    ("clock set forward by an hour", &["clock +1 h and back, primary", "clock +1 h, promoted replica in sync"]),
    ("clock set back *and* data lost", &["clock -1 h, restart without data", "clock -1 h, promoted replica behind"]),
    (
        "a process is paused: holder, waiter, primary, replica",
        &["SIGSTOP of a holder", "SIGSTOP of a waiter", "SIGSTOP of a primary", "SIGSTOP of a replica"],
    ),
    (
        "clients disconnected by CLIENT KILL; clients that die",
        &["CLIENT KILL of all clients", "clients that die while holding a lock"],
    ),
    ("10,000 clients", &["10000 waiting clients"]),
    (
        "upgrade and downgrade under load",
        &[
            "upgrade under load: Redis 7.0 to Redis 8.2 and back",
            "upgrade under load: Redis 7.0 to Valkey 9.1 and back",
        ],
    ),
    ("ten million calls", &["soak; faults: connections that end with locks bound to them"]),
];

/// The heading of the section, and the text after it.
const SECTION: (&str, &str) =
    ("## Results of fault tests\n\n", "\n[faults.md](../results/faults.md) has each scenario");

/// The page with the figures of this run: the day and its rows.
pub fn updated(page: &str, day: &str, rows: &[Row]) -> String {
    let (before, rest) = page.split_once(SECTION.0).expect("the section");
    let (_, after) = rest.split_once(SECTION.1).expect("its end");
    [before, SECTION.0, &section(day, rows), SECTION.1, after].concat()
}

fn section(day: &str, rows: &[Row]) -> String {
    let servers: Vec<&str> = rows.iter().map(|row| row.server.as_str()).collect::<BTreeSet<_>>().into_iter().collect();
    let (last, others) = servers.split_last().expect("a server");
    let mut text = format!("Run on {day} with {} and {last},\n", others.join(", "));
    text += "for one minute per scenario and server, on a machine that was also doing other work. The figures add up\n";
    text +=
        "all servers. *Lost* and *overlaps* count only what the clients could prove: grants that ended too early,\n";
    text += "and pairs of conflicting grants that were held at the same time.\n\n";
    text += "| fault | faults | grants | lost | overlaps | fences |\n| --- | --: | --: | --: | --: | --- |\n";
    for (name, scenarios) in KINDS {
        let rows: Vec<&Row> = rows.iter().filter(|row| scenarios.contains(&row.scenario.as_str())).collect();
        let sum = |count: fn(&Row) -> usize| grouped(rows.iter().map(|row| count(row)).sum());
        let [faults, grants] = [sum(|row| row.faults), sum(|row| row.grants)];
        let [lost, overlaps] = [sum(|row| row.lost), sum(|row| row.overlaps)];
        writeln!(text, "| {name} | {faults} | {grants} | {lost} | {overlaps} | {} |", fences(&rows))
            .expect("a string takes it");
    }
    text
}

fn fences(rows: &[&Row]) -> &'static str {
    let has = |words: &str| rows.iter().any(|row| row.fences.contains(words));
    if has("nothing is promised here") {
        "go back: nothing is promised here"
    } else if has("issued on both sides") {
        "never go back; order all overlaps except those with equal fences"
    } else if has("overlaps") {
        "order every overlap"
    } else if rows.iter().all(|row| row.fences.starts_with("grow")) {
        "increase"
    } else {
        "**wrong**"
    }
}

/// Adds thousands separators: 12,345.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).expect("digits")).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = include_str!("../../../results/faults.md");
    const PAGE: &str = include_str!("../../../docs/safety.md");

    #[test]
    fn the_page_has_the_figures_of_the_newest_run() {
        let (day, rows) = Row::last_run(RUN);
        assert!(rows.len() > 100, "only {} rows were read", rows.len());
        let expected = updated(PAGE, day, &rows);
        assert!(expected == PAGE, "docs/safety.md; this writes it: faults-table results/faults.md docs/safety.md");
    }

    #[test]
    fn every_scenario_belongs_to_one_kind() {
        let (_, rows) = Row::last_run(RUN);
        for row in &rows {
            let kinds = KINDS.iter().filter(|(_, scenarios)| scenarios.contains(&row.scenario.as_str())).count();
            assert_eq!(kinds, 1, "{}", row.scenario);
        }
        for scenario in KINDS.iter().flat_map(|(_, scenarios)| *scenarios) {
            assert!(rows.iter().any(|row| row.scenario == *scenario), "{scenario}");
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
    }
}
