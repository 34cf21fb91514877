//! The wait-for graph of the model: every edge of every owner, one after the other.

use super::contract::*;
use super::model::{Model, Request, Say};

/// `waiter` moves when one of `blockers` does; where only one is named, that one has to.
struct Edge {
    waiter: Word,
    blockers: Vec<Word>,
}

impl Model {
    /// Whether the request at `new` closes a cycle of owners, `requests` being the queue with it.
    ///
    /// A request waits for the holders it conflicts with and for the waiters ahead of it; an owner for all of its
    /// requests. A wait for a semaphore counts only where every holder is stuck too.
    pub(super) fn would_deadlock(&self, requests: &[Request], new: usize) -> bool {
        let mut edges = Vec::new();
        for (place, request) in requests.iter().enumerate().filter(|(_, request)| request.away.is_none()) {
            let asked = &request.asked;
            for key in &asked.keys {
                let limit = if place == new { asked.claim.limit().unwrap_or(0) } else { self.limit(key) };
                let mut wait_for = |blockers| edges.push(Edge { waiter: asked.owner, blockers });
                match self.say(key, asked.owner, asked.claim, limit) {
                    // It does not wait for this key.
                    Ok(Say::Has) | Err(_) => continue,
                    Ok(Say::Admits) => {}
                    Ok(Say::Blocked(holders)) => holders.iter().for_each(|holder| wait_for(vec![*holder])),
                    Ok(Say::BlockedByAll(holders)) if !holders.is_empty() => wait_for(holders),
                    Ok(Say::BlockedByAll(_)) => {}
                }
                let is_read = |claim| matches!(claim, Claim::Read(_));
                for (index, ahead) in requests[..place].iter().enumerate().filter(|(_, ahead)| ahead.waits_for(key)) {
                    let ahead = &ahead.asked;
                    let both_read = is_read(asked.claim) && is_read(ahead.claim);
                    let passes = self.may_pass(asked.owner, ahead) || will_pass(asked.owner, &requests[..index], ahead);
                    if ahead.owner != asked.owner && !both_read && !passes {
                        wait_for(vec![ahead.owner]);
                    }
                }
            }
        }
        self.waits_for_itself(&requests[new].asked) || closes_cycle(&edges, requests[new].asked.owner)
    }

    /// More permits than are left when its own are counted: nobody else can end that.
    fn waits_for_itself(&self, asked: &Acquire) -> bool {
        let Claim::Permits(limit, Holds::By(more)) = asked.claim else { return false };
        let Some(super::model::Value::Lock(lock)) = self.value(asked.keys[0]) else { return false };
        lock.holders.iter().any(|holder| holder.owner == asked.owner && holder.holds + more > limit)
    }
}

/// Whether a request for several keys waits for a request of this owner, which stands ahead of it for one of them:
/// once that is granted, the owner passes everywhere.
fn will_pass(owner: Word, ahead: &[Request], several: &Acquire) -> bool {
    let waits_ahead =
        |other: &Request| other.asked.owner == owner && several.keys.iter().any(|key| other.waits_for(key));
    several.keys.len() > 1 && ahead.iter().any(waits_ahead)
}

/// Whether everyone who is stuck because `owner` is keeps `owner` from moving.
fn closes_cycle(edges: &[Edge], owner: Word) -> bool {
    let mut stuck = vec![owner];
    loop {
        let is_stuck = |edge: &&Edge| edge.blockers.iter().all(|blocker| stuck.contains(blocker));
        let mut found = edges.iter().filter(is_stuck).map(|edge| edge.waiter);
        if found.clone().any(|waiter| waiter == owner) {
            return true;
        }
        let Some(more) = found.find(|waiter| !stuck.contains(waiter)) else { return false };
        stuck.push(more);
    }
}
