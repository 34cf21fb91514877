//! Decides the position of a new request, depending on which owners hold the keys of the multi-key requests ahead.

use super::holders::HolderLookup;
use super::position::{QueuePosition, Rank};
use super::queues::WaitQueues;
use super::request::{NewRequest, QueuedRequest};
use crate::host::Keys;

/// Search budget of a command: how many requests and keys it may visit to find a position. It bounds the search to a
/// few milliseconds. Once it is spent, the request goes to the back of the queue.
#[derive(Debug)]
pub struct SearchBudget {
    left: usize,
}

impl Default for SearchBudget {
    /// Smaller in tests, so that tests exceed it.
    fn default() -> SearchBudget {
        SearchBudget { left: if cfg!(test) { 400 } else { 40_000 } }
    }
}

impl SearchBudget {
    /// Charges `count` visits. False if the budget had fewer left.
    fn visit(&mut self, count: usize) -> bool {
        let left = self.left.checked_sub(count);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

/// The position of a request that is about to be queued. On entry, `new` has the last position of its rank.
pub fn new_position<K: Keys>(
    queues: &WaitQueues,
    holders: &mut HolderLookup<'_, K>,
    new: &NewRequest<'_>,
    budget: &mut SearchBudget,
) -> QueuePosition {
    debug_assert_eq!(new.position, queues.last_position(new.position.rank), "only a new request is positioned");
    let first = first_waiting_for_held_key(queues, holders, new, budget);
    first.and_then(|first| first.before(new.position.arrival)).unwrap_or_else(|| new.position.clone())
}

/// The position of the first multi-key request in the queues of the new request that also wants a key held by the owner
/// of the new request.
fn first_waiting_for_held_key<'q, K: Keys>(
    queues: &'q WaitQueues,
    holders: &mut HolderLookup<'_, K>,
    new: &NewRequest<'_>,
    budget: &mut SearchBudget,
) -> Option<&'q QueuePosition> {
    if new.position.rank == Rank::Upgrade || !queues.has_multi_key_requests() {
        return None;
    }
    let may_hold = queues.may_hold(new.db, new.owner());
    if may_hold.is_empty() {
        return None;
    }
    let mut is_spent = false;
    let mut wants_held = |queued: &QueuedRequest| {
        is_spent |= !budget.visit(1 + queued.queues.len());
        let mut keys = queued.queues.iter().filter(|id| may_hold.contains(**id)).filter_map(|id| queues.get(*id));
        is_spent || keys.any(|queue| holders.is_held_by(queue.key.as_ref(), new.owner()))
    };
    let mut first: Option<&QueuePosition> = None;
    for queue in new.names.iter().filter_map(|name| queues.of_key(new.key(name))) {
        let ahead = queue.present().take_while(|(position, _)| first.is_none_or(|first| *position < first));
        let multi_key = ahead.filter_map(|(_, id)| queues.request(id)).filter(|queued| queued.has_multiple_keys());
        let mut of_others = multi_key.filter(|queued| queued.owner.as_bytes() != new.owner());
        first = of_others.find(|queued| wants_held(queued)).map(|queued| &queued.position).or(first);
    }
    first.filter(|_| !is_spent)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{names, Fixture};
    use super::super::request::NewRequest;
    use super::*;
    use crate::value::claim::{Claim, LockRequest};
    use crate::value::owner::Owner;
    use crate::value::time::{Instant, Lease};

    fn position(fixture: &mut Fixture, owner: &str, keys: &str) -> QueuePosition {
        let owner = Owner::new(owner.as_bytes()).unwrap();
        let request = LockRequest { owner: owner.as_ref(), claim: Claim::Mutex, lease: Lease::Persist };
        let position = fixture.queues.last_position(Rank::Normal);
        let owner_id = fixture.queues.owner_id(0, owner.as_bytes());
        let new = NewRequest { db: 0, names: &names(keys), request, owner_id, position, replaces: None };
        let now = fixture.server.now().timestamp();
        let mut keys = &mut fixture.server.keyspace;
        new_position(
            &fixture.queues,
            &mut HolderLookup::new(&mut keys, &fixture.ended, now),
            &new,
            &mut SearchBudget::default(),
        )
    }

    /// Columns: the owner and the keys of a request ahead, a key that `a` holds, and whether a new request of `a` for
    /// the key k goes before that request.
    #[test]
    fn the_request_of_an_owner_goes_before_a_multi_key_request_for_a_key_that_it_holds() {
        let rows = [
            ("b", "k", "l", false),
            ("b", "kl", "", false),
            ("b", "kl", "l", true),
            ("b", "lk", "l", true),
            ("b", "lm", "l", false),
            ("a", "kl", "l", false),
        ];
        for (ahead, waits_for, held, is_before) in rows {
            let mut fixture = Fixture::default();
            fixture.hold("a", held, Claim::Mutex);
            let id = fixture.wait(ahead, waits_for, Claim::Mutex);
            let there = fixture.queues.request(id).unwrap().position.clone();
            let row = format!("{ahead} waits for {waits_for}, a holds {held}");
            assert_eq!(position(&mut fixture, "a", "k") < there, is_before, "{row}");
            fixture.queues.reserve_position(id, Instant::from_ms(60_000));
            assert!(position(&mut fixture, "a", "k") > there, "{row}: a detached request does not count");
        }
    }

    #[test]
    fn the_first_such_request_in_any_of_the_queues_decides() {
        let mut fixture = Fixture::default();
        fixture.hold("a", "xy", Claim::Mutex);
        let ids = ["kl", "lx", "ky"].map(|keys| fixture.wait("b", keys, Claim::Mutex));
        let [other, first, second] = ids.map(|id| fixture.queues.request(id).unwrap().position.clone());
        let (one, both) = (position(&mut fixture, "a", "k"), position(&mut fixture, "a", "kl"));
        assert!(other < both && both < first && first < one && one < second);
    }

    #[test]
    fn an_owner_behind_too_many_multi_key_requests_gets_the_last_position() {
        for (ahead, is_before) in [(100, true), (200, false)] {
            let mut fixture = Fixture::default();
            fixture.hold("a", "l", Claim::Mutex);
            (0..ahead).for_each(|number| _ = fixture.wait(&format!("b {number}"), "km", Claim::Mutex));
            let id = fixture.wait("b", "kl", Claim::Mutex);
            let there = fixture.queues.request(id).unwrap().position.clone();
            assert_eq!(position(&mut fixture, "a", "k") < there, is_before, "{ahead}");
        }
    }
}
