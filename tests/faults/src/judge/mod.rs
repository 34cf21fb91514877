//! Judges a history. Each judge is a pure function that returns breaches; the scenario decides which of them were
//! promised not to happen.

mod drained;
mod exclusive;
mod fences;
mod guarded;
mod holds;
mod linearizable;
mod order;
mod wakeups;

use crate::history::History;

pub use drained::assert_drained;
pub use exclusive::{acts_after_release, intrusions, lost, overlaps, Overlap};
pub use fences::{decreasing_fences, duplicate_fences, fences, Scope};
pub use guarded::{decreasing_writes, holders_refused};
pub use holds::{holds, Hold};
pub use linearizable::not_linearizable;
pub use order::overtaken;
pub use wakeups::forgotten;

/// Breaches of everything that is promised if no acknowledged write may be lost; one sentence each.
pub fn breaches(history: &History, scope: Scope) -> Vec<String> {
    let holds = holds(history);
    let mut breaches = breaches_despite_losses(history, scope);
    breaches.extend(lost(&holds).into_iter().map(|hold| format!("lost before its time: {hold:?}")));
    breaches.extend(overlaps(&holds).into_iter().map(|overlap| format!("held at the same time: {overlap:?}")));
    breaches.extend(intrusions(history, &holds));
    breaches.extend(acts_after_release(history));
    breaches.extend(holders_refused(history, &holds));
    breaches.extend(not_linearizable(history));
    breaches.extend(overtaken(history));
    breaches.extend(forgotten(history));
    breaches
}

/// Breaches of what is promised even if acknowledged holds may be lost: fencing tokens still order all grants.
pub fn breaches_despite_losses(history: &History, scope: Scope) -> Vec<String> {
    let mut breaches = fences(&holds(history), scope);
    breaches.extend(decreasing_writes(history));
    breaches
}

#[cfg(test)]
mod planted;
