//! Checks the history reported by the loads with the checkers of `make faults`.

use std::time::Duration;

use faults::judge::{self, Scope};
use faults::{Action, History, Mode, Operation, Outcome};

/// A line of a load's output, prefixed with the load's name.
#[derive(Clone, Debug)]
pub enum Event {
    Cycle { lock: u64, owner: String, asked: u64, granted: u64, released: u64, fence: u64 },
    Held { lock: u64, owner: String, asked: u64, granted: u64, fence: u64 },
    Lost { lock: u64, owner: String, at: u64 },
    Refused,
    Failed { text: String },
}

impl Event {
    pub fn parse(load: &str, line: &str) -> Option<Event> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        if kind == "failed" || kind == "errors" {
            return Some(Event::Failed { text: line.into() });
        }
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let owner = || Some(format!("{load}-{}", numbers.get(1)?));
        let of = |index: usize| numbers.get(index).copied();
        Some(match kind {
            "cycle" => Event::Cycle {
                lock: of(0)?,
                owner: owner()?,
                asked: of(2)?,
                granted: of(3)?,
                released: of(4)?,
                fence: of(5)?,
            },
            "held" => Event::Held { lock: of(0)?, owner: owner()?, asked: of(2)?, granted: of(3)?, fence: of(4)? },
            "lost" => Event::Lost { lock: of(0)?, owner: owner()?, at: of(2)? },
            "refused" => Event::Refused,
            _ => return None,
        })
    }
}

impl Event {
    pub fn end_of_cycle(&self) -> Option<u64> {
        match self {
            Event::Cycle { released, .. } => Some(*released),
            _ => None,
        }
    }
}

pub struct Verdict {
    /// Grants that began while another owner was certain to hold the lock.
    pub overlaps: usize,
    /// Fencing tokens that were issued twice or decreased, if the peer has any.
    pub fences: usize,
}

pub fn judge(events: &[Event], lease: Duration, scope: Option<Scope>) -> Verdict {
    let mut operations = Vec::new();
    for (number, event) in events.iter().enumerate() {
        let mut add = |lock: u64, owner: &str, action, invoked: u64, returned: u64, outcome| {
            operations.push(Operation {
                client: number,
                key: format!("lock-{lock}"),
                owner: owner.into(),
                action,
                invoked: Duration::from_nanos(invoked),
                returned: Duration::from_nanos(returned),
                outcome,
            });
        };
        let mode = Mode::Mutex;
        let acquire = Action::Acquire { mode, lease, block: None };
        match event {
            Event::Cycle { lock, owner, asked, granted, released, fence } => {
                // Each iteration of an owner has a separate token.
                let owner = format!("{owner}-{number}");
                add(*lock, &owner, acquire, *asked, *granted, Outcome::Granted { fence: *fence as i64 });
                add(*lock, &owner, Action::Release { mode }, *granted, *released, Outcome::Done);
            }
            Event::Held { lock, owner, asked, granted, fence } => {
                add(*lock, owner, acquire, *asked, *granted, Outcome::Granted { fence: *fence as i64 });
            }
            Event::Lost { lock, owner, at } => {
                add(*lock, owner, Action::Renew { mode, lease }, *at, *at, Outcome::NotHeld);
            }
            Event::Refused | Event::Failed { .. } => {}
        }
    }
    let holds = judge::holds(&History::new(operations));
    // A fencing token of 0 means that the load did not request one.
    let numbered: Vec<judge::Hold> = holds.iter().filter(|hold| hold.fence > 0).cloned().collect();
    Verdict {
        overlaps: judge::overlaps(&holds).len(),
        fences: scope.map_or(0, |scope| judge::fences(&numbered, scope).len()),
    }
}

/// From the request times in grant order: how many were granted before a request that was sent `margin` earlier.
pub fn overtaken(asked: &[u64], margin: Duration) -> usize {
    let mut earliest = u64::MAX;
    let mut count = 0;
    for &asked in asked.iter().rev() {
        if earliest.saturating_add(margin.as_nanos() as u64) < asked {
            count += 1;
        }
        earliest = earliest.min(asked);
    }
    count
}
