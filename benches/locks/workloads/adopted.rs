//! `lock.adopt`: what it costs all commands, and what polling clients gain.

use std::io;
use std::time::Duration;

use super::callgrind::Counter;
use super::instructions::{count_pipeline, quotient, thousands, PAIRS, SLICE};
use super::plan::Plan;
use super::while_waiting::push_pair;
use crate::clients::{contend, Contention};
use crate::rivals::{self, prepare, Ready, Rival};
use crate::section::{Section, Verdict};
use crate::server::Server;
use crate::stats::{digits, Figure};
use support::Pipeline;

const CLIENTS: usize = 48;

/// The setting, whose pattern matches only the keys of locks.
const PATTERNS: &str = "lock:* job:?";

/// The target for commands on a key that does not match: adoption on to off.
const UNMATCHED: f64 = 1.02;

/// Commands that clients send for a hand-off.
const COMMANDS: f64 = 4.0;

/// The target for the ratio between the most and the fewest grants of a client.
const SPREAD: f64 = 1.10;

/// What is counted, and whether its keys match.
struct Task {
    name: &'static str,
    rival: Option<&'static Rival>,
    push: fn(&mut Pipeline, usize),
}

const UNMATCHED_TASKS: [Task; 4] = [
    task("PING", |pipeline, _| pipeline.push(&["PING"])),
    task("SET", |pipeline, index| pipeline.push(&["SET", &format!("data:{index}"), "value"])),
    task("GET", |pipeline, index| pipeline.push(&["GET", &format!("data:{index}")])),
    task("SET … EX", |pipeline, index| pipeline.push(&["SET", &format!("session:{index}"), "value", "EX", "3600"])),
];

const PAIR_TASKS: [Task; 2] = [pair("SET NX PX, Lua release", &rivals::REDIS_PY), pair("LOCK", &rivals::LOCK)];

const fn task(name: &'static str, push: fn(&mut Pipeline, usize)) -> Task {
    Task { name, rival: None, push }
}

const fn pair(name: &'static str, rival: &'static Rival) -> Task {
    Task { name, rival: Some(rival), push: |_, _| {} }
}

/// Instructions of the server with adoption off and on.
pub fn instructions(plan: &Plan) -> io::Result<Section> {
    let mut section = Section::new(
        "Adoption: instructions of the main thread",
        &format!(
            "As above, on one server: adoption is off, then on with two patterns (`{PATTERNS}`), which only the keys \
             of the pairs match. Commands are sent in pipelines of {SLICE}, where a command costs the server least, \
             and one at a time, as most clients send them, which adds an event-loop iteration and two system calls. \
             With adoption off, no command filter is registered, and the server behaves as if it had never adopted."
        ),
        &["what", "on to off", "off", "on"],
    );
    if plan.module.is_none() {
        section.missing(&["lock.adopt"]);
        return Ok(section);
    }
    let mut counter = Counter::start(&plan.builder.clone().config("save \"\"").config("enable-debug-command yes"))?;
    // Under valgrind the expiry cycle exceeds its time limit at once, so the server would continue it in each
    // iteration.
    counter.server.must(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"])?;
    // The second count must not find keys that the first one created.
    for task in &UNMATCHED_TASKS {
        let mut pipeline = Pipeline::default();
        (0..SLICE).for_each(|index| (task.push)(&mut pipeline, index));
        counter.client.run(&pipeline)?;
    }
    let off = count_all(&mut counter)?;
    adopt(&mut counter.server, PATTERNS, 0)?;
    let on = count_all(&mut counter)?;
    for ((name, is_unmatched, off), (_, _, on)) in off.into_iter().zip(on) {
        section.row([name.clone(), quotient(Some(on), Some(off)), thousands(off), thousands(on)]);
        if is_unmatched {
            let what = format!("{name}, adoption on to off");
            section.verdicts.push(Verdict::at_most(&what, UNMATCHED, Some(Figure::of(vec![on / off]))));
        }
    }
    Ok(section)
}

/// Each count with its name, and whether the target for keys that do not match applies to it.
fn count_all(counter: &mut Counter) -> io::Result<Vec<(String, bool, f64)>> {
    let mut counts = Vec::new();
    for task in UNMATCHED_TASKS.iter().chain(&PAIR_TASKS) {
        let mut pipeline = Pipeline::default();
        match task.rival {
            None => (0..SLICE).for_each(|index| (task.push)(&mut pipeline, index)),
            Some(rival) => {
                let (here, _) = prepare(&mut counter.server, &[rival])?;
                (0..SLICE).for_each(|index| push_pair(&mut pipeline, rival, index, &here[0].1));
            }
        }
        counts.push((format!("{}, in pipelines", task.name), false, count_pipeline(counter, &pipeline)?));
        if task.rival.is_none() {
            let one_by_one = counter.count(PAIRS, |client| {
                for index in 0..PAIRS {
                    let mut command = Pipeline::default();
                    (task.push)(&mut command, index % SLICE);
                    client.run(&command)?;
                }
                Ok(())
            })?;
            let is_set_or_get = task.name != "PING";
            counts.push((task.name.to_owned(), is_set_or_get, one_by_one));
        }
    }
    Ok(counts)
}

/// The setting during contention.
struct Mode {
    name: &'static str,
    patterns: &'static str,
    wait_ms: u32,
}

const MODES: [Mode; 4] = [
    Mode { name: "off", patterns: "", wait_ms: 0 },
    Mode { name: "adopted", patterns: PATTERNS, wait_ms: 0 },
    Mode { name: "adopt-wait 100", patterns: PATTERNS, wait_ms: 100 },
    Mode { name: "adopt-wait 1000", patterns: PATTERNS, wait_ms: 1_000 },
];

const POLLERS: &[&Rival] = &[&rivals::REDIS_PY, &rivals::REDLOCK];

/// Contending polling clients, with adoption off and on.
pub fn pollers(plan: &Plan) -> io::Result<Section> {
    let mut section = Section::new(
        "Adoption: 48 pollers of one lock",
        "48 clients that do not know the module take and release one lock repeatedly: with adoption off, with \
         `lock.adopt` alone, and with `lock.adopt-wait` set to the given milliseconds. Commands are counted as clients \
         send them, including polls. A hand-off is a grant to a different client than the previous one.",
        &[
            "implementation",
            "hand-offs/s",
            "commands per hand-off",
            "server CPU µs per hand-off",
            "wait p50 ms",
            "p99 ms",
            "longest ms",
            "grants, fewest to most",
        ],
    );
    if plan.module.is_none() {
        section.missing(&["lock.adopt"]);
        return Ok(section);
    }
    let mut server = Server::start(&plan.builder)?;
    let (here, _) = prepare(&mut server, POLLERS)?;
    for hold_ms in [0, 10] {
        // About twenty rounds of 48 grants each.
        let time = plan.time(if hold_ms == 0 { 3_000 } else { 12_000 }, 1_000);
        let contention = Contention::new(CLIENTS, Duration::from_millis(hold_ms), time);
        for (rival, mode) in here.iter().flat_map(|rival| MODES.iter().map(move |mode| (rival, mode))) {
            add_row(&mut server, &mut section, rival, mode, contention)?;
        }
    }
    adopt(&mut server, "", 0)?;
    Ok(section)
}

fn add_row(
    server: &mut Server,
    section: &mut Section,
    (rival, scripts): &Ready,
    mode: &Mode,
    contention: Contention,
) -> io::Result<()> {
    adopt(server, mode.patterns, mode.wait_ms)?;
    let outcome = contend(server, rival, scripts, contention)?;
    let hold = match contention.hold.as_millis() {
        0 => "no hold".to_owned(),
        ms => format!("held for {ms} ms"),
    };
    let name = format!("{}, {hold}, {}", rival.name, mode.name);
    let wait = |quantile| digits(outcome.waits.value_at_quantile(quantile) as f64 / 1e6);
    section.row([
        name.clone(),
        digits(outcome.per_second()),
        digits(outcome.commands_per_handoff()),
        digits(outcome.cpu_us_per_handoff()),
        wait(0.5),
        wait(0.99),
        wait(1.0),
        format!("{} to {}", outcome.fewest, outcome.most),
    ]);
    if outcome.overlaps > 0 {
        section.notes.push(format!("{name}: two clients held it at once, {} times.", outcome.overlaps));
    }
    if mode.wait_ms > 0 {
        let one = |value: f64| Some(Figure::of(vec![value]));
        let commands = format!("{name}: commands per hand-off");
        section.verdicts.push(Verdict::at_most(&commands, COMMANDS, one(outcome.commands_per_handoff())));
        let spread = format!("{name}: most over fewest grants");
        // A client without a grant counts as having one.
        let ratio = outcome.most as f64 / outcome.fewest.max(1) as f64;
        section.verdicts.push(Verdict::at_most(&spread, SPREAD, one(ratio)));
    }
    Ok(())
}

fn adopt(server: &mut Server, patterns: &str, wait_ms: u32) -> io::Result<()> {
    server.must(&["CONFIG", "SET", "lock.adopt", patterns])?;
    server.must(&["CONFIG", "SET", "lock.adopt-wait", &wait_ms.to_string()]).map(drop)
}
