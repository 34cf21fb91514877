//! Whom a request must not overtake: the one rule that hand-offs and the deadlock search ask.
//!
//! First come, first served, per key. One exception keeps requests for several keys from blocking for ever: an owner
//! that such a request waits for passes it.
//!
//! | the request ahead                                   | has to be served first |
//! | --------------------------------------------------- | ---------------------- |
//! | wants this key only                                 | yes                    |
//! | wants several keys, none of them held by this owner | yes                    |
//! | wants several keys, one of them held by this owner  | no: it waits for it    |
//! | is of this very owner                               | yes                    |

use super::queues::WaitQueues;
use super::request::{Place, QueueId};
use crate::host::Keys;
use crate::id_map::{IdMap, IdSet};

/// So many queues are walked beside the one that is asked about, or looked for one after the other. Fewer in tests, so
/// that there are more.
const FEW: usize = if cfg!(test) { 2 } else { 8 };

/// Whether nobody who stands ahead of `place` in the queue has to be served before `owner`.
pub fn has_turn<K: Keys>(queues: &WaitQueues, keys: &mut K, id: QueueId, place: Place, owner: &[u8]) -> bool {
    let Some(queue) = queues.get(id) else { return true };
    let mut ahead = queue.present().take_while(|(other, _)| *other < place);
    if !queue.has_requests_for_several() {
        return ahead.next().is_none();
    }
    let own = queues.owner_id(queue.key.db, owner).into_iter().flat_map(|id| queues.waiting(id));
    if own.into_iter().any(|(_, own)| own.place < place && own.stands_in(id)) {
        return false;
    }
    let mut passing = Passing::new(queues, queue.key.db, owner);
    let several = |id| queues.request(id).filter(|ahead| ahead.has_several_keys());
    if passing.may_hold.len() > FEW {
        return ahead.all(|(_, id)| several(id).is_some_and(|ahead| passing.is_waited_for(keys, &ahead.queues)));
    }
    // Who stands at the same place in the queue of a key that the owner holds is the same request: the queues are
    // walked side by side.
    let held = passing.may_hold.iter().filter_map(|id| Some((*id, queues.get(*id)?.present().peekable())));
    let mut held: Vec<_> = held.collect();
    ahead.all(|(place, request)| {
        held.iter_mut().any(|(other, beside)| {
            while beside.next_if(|(other, _)| *other < place).is_some() {}
            beside.peek().is_some_and(|(other, _)| *other == place)
                && (*other != id || several(request).is_some())
                && passing.holds(keys, *other)
        })
    })
}

/// Which requests for several keys wait for one owner, because it holds one of their keys.
///
/// Thousands may be asked about, with a hundred keys each: only those keys are opened that it may hold, and once.
pub(super) struct Passing<'a> {
    queues: &'a WaitQueues,
    owner: &'a [u8],
    may_hold: IdSet<QueueId>,
    holds: IdMap<QueueId, bool>,
}

impl<'a> Passing<'a> {
    pub fn new(queues: &'a WaitQueues, db: i32, owner: &'a [u8]) -> Passing<'a> {
        let known = queues.owner_id(db, owner).into_iter().flat_map(|id| queues.may_hold(id));
        let may_hold = known.chain(queues.opaque(db)).collect();
        Passing { queues, owner, may_hold, holds: IdMap::default() }
    }

    /// Whether the owner holds the key of one of these queues.
    pub fn is_waited_for<K: Keys>(&mut self, keys: &mut K, wanted: &[QueueId]) -> bool {
        if self.may_hold.len() > FEW {
            return wanted.iter().any(|queue| self.may_hold.contains(queue) && self.holds(keys, *queue));
        }
        let wanted: Vec<_> = self.may_hold.iter().filter(|queue| wanted.contains(queue)).copied().collect();
        wanted.into_iter().any(|queue| self.holds(keys, queue))
    }

    fn holds<K: Keys>(&mut self, keys: &mut K, id: QueueId) -> bool {
        let Passing { queues, owner, .. } = *self;
        let open = || queues.get(id).is_some_and(|queue| keys.is_held_by(queue.key.as_ref(), owner));
        *self.holds.entry(id).or_insert_with(open)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{key, Fixture};
    use super::super::request::Rank;
    use super::*;
    use crate::value::claim::Claim;

    /// The table above, for a request of `a` for the key k.
    #[test]
    fn only_who_is_waited_for_passes_a_request_for_several_keys() {
        let rows = [
            ("b", "k", "kl", true),
            ("b", "kl", "", true),
            ("b", "kl", "k", false),
            ("b", "kl", "l", false),
            ("b", "lk", "m", true),
            ("a", "kl", "l", true),
        ];
        for (ahead, waits_for, held, goes_first_expected) in rows {
            let row = format!("{ahead} waits for {waits_for}, a holds {held}");
            let mut fixture = Fixture::default();
            fixture.hold("a", held, Claim::Mutex);
            let id = fixture.wait(ahead, waits_for, Claim::Mutex);
            let Fixture { mut server, queues, .. } = fixture;
            let keys = &mut &mut server.keyspace;
            let request = queues.request(id).unwrap();
            let queue = queues.id_of(key("k").as_ref()).unwrap();
            let behind = queues.last_place(Rank::Normal);
            assert_eq!(has_turn(&queues, keys, queue, behind, b"a"), !goes_first_expected, "{row}");
            assert!(has_turn(&queues, keys, queue, request.place, b"a"), "{row}: nobody is ahead of the first place");
        }
    }
}
