//! Finds the deadlock that a request would close: a cycle of owners that wait for each other, over any mix of families.
//!
//! The wait-for graph has owners as nodes. A request waits for the holders that it conflicts with and for the waiters
//! ahead of it. One blocker that never moves is enough to block it, except at a semaphore, where any holder's permits
//! may do: there it is blocked for ever only if all of its holders are. The graph is never built. Two searches walk it:
//!
//! - `reach`, from the new request on, over whom it may have to wait for. Mostly that ends after a step or two: the
//!   holder waits for nothing. It gives up after a few steps, and where it meets the new owner.
//! - `stuck`, from the new owner back, over all who would be stuck because of it. It decides, unless looking ahead once
//!   more, as far as it has come itself, does so before.

use super::edge::Edge;
use super::new_request::NewRequest;
use super::queues::WaitQueues;
use super::reach::{reach, Reached};
use super::stuck::Stuck;
use crate::host::{Content, Entry, Keys};
use crate::key::KeyRef;
use crate::value::claim::{Claim, Count};
use crate::value::time::{Deadline, Now};

/// As far is looked ahead before the other search begins.
const MOST_STEPS: usize = 128;

/// Whether the request may close a cycle, as far as can be told without an open key: false is certain, and the rule.
pub fn may_close_cycle(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let takes_more_permits = matches!(new.request.claim, Claim::Permits { count: Count::Step(_), .. });
    takes_more_permits || stands_ahead_of_others(queues, new) || queues.may_be_waited_for(new.db, new.owner(), |_| true)
}

/// The cycle that the request would close, beginning with its own owner; `None`: it may wait.
pub fn find<K: Keys>(queues: &WaitQueues, keys: &mut K, now: &Now, new: &NewRequest<'_>) -> Option<Vec<Edge>> {
    if waits_for_itself(keys, new) {
        return Some(vec![Edge { owner: new.request.owner.to_owner(), key: new.names[0].into() }]);
    }
    let may_be_waited_for = stands_ahead_of_others(queues, new)
        || queues.may_be_waited_for(new.db, new.owner(), |key| keys.is_held_by(key.as_ref(), new.owner()));
    if !may_be_waited_for || reach(queues, keys, now, new, MOST_STEPS) == Reached::NotItself {
        return None;
    }
    Stuck::new(queues, keys, now, new).cycle()
}

/// A request that comes back to its place makes those behind it wait for it again.
fn stands_ahead_of_others(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let mut here = new.queues(queues).filter_map(|id| queues.get(id));
    here.any(|queue| queue.is_anybody_behind(new.place))
}

/// More permits than are left when its own are counted: nobody else can end that.
fn waits_for_itself<K: Keys>(keys: &mut K, new: &NewRequest<'_>) -> bool {
    let Claim::Permits { limit, count: Count::Step(permits) } = new.request.claim else { return false };
    new.names.iter().any(|name| match keys.open(KeyRef { db: new.db, name }).content() {
        Content::Lock(lock) => {
            lock.hold(new.owner(), Deadline::Never).is_some_and(|hold| hold.holds.saturating_add(permits) > limit)
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests;
