//! What the rules did in a schedule, as lines of text, so that two versions of them can be compared: effects and
//! replies in one order, and after each command and each event-loop iteration the stored locks, the queues, the next
//! timers, and whether anything is due.
//!
//! The lines contain no names of types or fields of the rules, so that renaming makes no difference.
//!
//! A change may move work to another iteration on purpose. `LOCK_TRACE=steps` compares such a version: iterations
//! continue until nothing is due, and a step has its effects by key, its replies by request, and the state at its end,
//! without fencing tokens.

use std::cell::RefCell;

use super::rules::{to_reply, Rules};
use crate::engine::timers::NextTimer;
use crate::host::simulated::{replace_records, Record};
use crate::host::WaitOutcome;

thread_local!(static TRACE: RefCell<Option<Trace>> = const { RefCell::new(None) });

struct Trace {
    lines: Vec<String>,
    detail: Detail,
    /// What the step has caused so far.
    of_step: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Iterations,
    Steps,
}

/// A point in a schedule at which the trace is continued.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// A step begins.
    Step,
    /// The command of a step has its reply.
    Reply,
    /// An iteration of the event loop has ended.
    Iteration,
}

/// Records all that `play` does.
pub fn of(play: impl FnOnce()) -> Vec<String> {
    let detail = match std::env::var("LOCK_TRACE") {
        Ok(detail) if detail == "steps" => Detail::Steps,
        _ => Detail::Iterations,
    };
    TRACE.set(Some(Trace { lines: Vec::new(), detail, of_step: Vec::new() }));
    replace_records(Some(Vec::new()));
    play();
    replace_records(None);
    let lines = TRACE.take().map_or(Vec::new(), |trace| trace.lines);
    match detail {
        Detail::Iterations => lines,
        Detail::Steps => lines.iter().map(|line| without_fences(line)).collect(),
    }
}

/// The order of two grants of different keys is open, and so are their fencing tokens.
fn without_fences(line: &str) -> String {
    let mut parts = line.split("Fence(");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| line + "Fence(" + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// Whether a trace is recorded.
pub(super) fn is_on() -> bool {
    TRACE.with_borrow(Option::is_some)
}

/// Whether a trace of whole steps is recorded.
pub(super) fn is_of_steps() -> bool {
    TRACE.with_borrow(|trace| trace.as_ref().is_some_and(|trace| trace.detail == Detail::Steps))
}

/// Records what the rules did since the last call, and their state.
pub(super) fn record(rules: &Rules, at: At, what: impl FnOnce() -> String) {
    TRACE.with_borrow_mut(|trace| {
        let Some(Trace { lines, detail, of_step }) = trace else { return };
        let records = replace_records(Some(Vec::new())).into_iter().flatten();
        let (effects, replies): (Vec<_>, Vec<_>) = match detail {
            Detail::Iterations => (records.collect(), Vec::new()),
            Detail::Steps => records.partition(|record| matches!(record, Record::Effect(_))),
        };
        let records = effects.into_iter().chain(replies).map(|record| to_text(rules, record));
        match (*detail, at) {
            (Detail::Iterations, _) => lines.extend(records),
            (Detail::Steps, At::Iteration) => return of_step.extend(records),
            (Detail::Steps, At::Step | At::Reply) => {
                of_step.extend(records);
                // A stable sort keeps the effects of a key in order.
                of_step.sort_by_key(|line| line.split_whitespace().next().map(str::to_owned));
                if at == At::Step {
                    lines.append(of_step);
                }
            }
        }
        lines.push(what());
        if *detail == Detail::Iterations || at == At::Step {
            lines.extend(state(rules));
        }
    });
}

fn to_text(rules: &Rules, record: Record) -> String {
    match record {
        Record::Effect(effect) => format!("    {effect}"),
        Record::Reply(id, outcome) => {
            let number = rules.numbers.get(&id).copied();
            let slot = match outcome {
                WaitOutcome::Granted { slot, .. } => slot.map(|slot| slot.number()),
                _ => None,
            };
            format!("    reply-to-{number:x?}: {:?} {slot:?}", to_reply(outcome))
        }
    }
}

fn state(rules: &Rules) -> Vec<String> {
    let named = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let stored = rules.server.keyspace.primary.iter();
    let mut lines: Vec<_> =
        stored.map(|(key, stored)| format!("  {}: {}", named(&key.name), stored.to_text())).collect();
    let queues = rules.manager.queues();
    let mut waiting: Vec<_> = queues.iter().map(|(_, queue)| queue).collect();
    waiting.sort_by_key(|queue| &queue.key);
    for queue in waiting {
        let present = queue.present().map(|(_, id)| rules.numbers.get(&id).copied().unwrap_or_default());
        let (present, kept) = (present.collect::<Vec<_>>(), queue.reserved_positions());
        lines.push(format!("  {}: waiters {present:x?}, {kept} reserved", named(&queue.key.name)));
    }
    let NextTimer { instant, timestamp } = rules.manager.next_timer();
    let (instant, timestamp) = (instant.map(|at| at.ms()), timestamp.map(|at| at.ms()));
    let fence = rules.manager.fences.last();
    let due = if rules.manager.has_due() { ", due" } else { "" };
    lines.push(format!("  timers {instant:?} {timestamp:?}, {fence:?}{due}"));
    lines
}
