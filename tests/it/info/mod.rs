//! `INFO lock`: what each field counts.

mod counters;
mod figures;
mod held;
mod refused;

use crate::support::{Info, Server};

/// The current value of a field of INFO lock, named without its prefix.
#[track_caller]
pub fn field(server: &Server, name: &str) -> i64 {
    server.info("lock").number(&format!("lock_{name}"))
}

// The documented names, in order: states, then counters, then durations.
const STATE: [&str; 13] = [
    "version",
    "acquires_refused",
    "held_mutex",
    "held_reentrant",
    "held_rw",
    "held_semaphore",
    "waiters",
    "kept_places",
    "sessions",
    "last_fence",
    "grace_remaining_ms",
    "held_back_ms",
    "eviction_risk",
];

/// Everything that is counted since the start.
const COUNTERS: [&str; 21] = [
    "grants_immediate",
    "grants_after_wait",
    "not_granted",
    "wait_timeouts",
    "cancelled",
    "superseded",
    "coalesced",
    "deadlocks",
    "max_waiters_refusals",
    "grace_refusals",
    "releases",
    "renewals",
    "leases_expired",
    "broken",
    "undelivered_grants",
    "effects_not_applied",
    "execs",
    "execs_not_held",
    "adopted_acquires",
    "adopted_refusals",
    "adopted_protected",
];

const DURATIONS: [&str; 5] = ["wait_ms_p50", "wait_ms_p99", "wait_ms_p999", "wait_ms_max", "longest_turn_us"];

/// The fields listed in the tables of docs/metrics.md.
fn documented() -> impl Iterator<Item = &'static str> {
    let (_, counters) = include_str!("../../../docs/metrics.md").split_once("\n## Counters\n").expect("the section");
    let rows = counters.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    rows.flat_map(|(names, _)| names.split(", ")).map(|name| name.trim_matches('`'))
}

#[test]
fn the_section_has_the_documented_fields_and_starts_at_0() {
    let server = Server::start();
    let text = server.client().run("INFO lock").text().to_string();
    assert!(text.starts_with("# lock\r\n"), "{text}");
    let names = text.lines().skip(1).filter_map(|line| line.split_once(':')).map(|(name, _)| name);
    let names: Vec<_> = names.map(|name| name.strip_prefix("lock_").expect("every name has the prefix")).collect();
    let expected = [&STATE[..], &COUNTERS, &DURATIONS].concat();
    assert_eq!(names, expected);
    let mut described: Vec<_> = documented().collect();
    described.retain(|name| !expected.contains(name));
    assert!(described.is_empty(), "docs/metrics.md has more: {described:?}");
    assert!(expected.iter().all(|name| documented().any(|other| other == *name)), "docs/metrics.md has all of them");
    let info = Info::parse(&text);
    assert_eq!(info.text("lock_version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(info.text("lock_acquires_refused"), "no");
    let is_number = |name: &&&str| !matches!(**name, "version" | "acquires_refused" | "longest_turn_us");
    for name in expected.iter().filter(is_number) {
        assert_eq!(info.number(&format!("lock_{name}")), 0, "{name}");
    }
    // INFO everything and INFO modules include it, plain INFO does not.
    for (section, is_shown) in [("modules", true), ("everything", true), ("default", false)] {
        let shown = server.client().cmd(&["INFO", section]).text().contains("lock_held_mutex:0");
        assert_eq!(shown, is_shown, "{section}");
    }
}
