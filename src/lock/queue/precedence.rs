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
use super::request::{Place, QueueId, QueuedRequest};
use crate::host::Keys;

/// Whether a request that stands ahead of one by `owner` has to be served first.
pub fn goes_first<K: Keys>(queues: &WaitQueues, keys: &mut K, ahead: &QueuedRequest, owner: &[u8]) -> bool {
    let waits_for_owner = ahead.has_several_keys()
        && ahead.owner.as_bytes() != owner
        && queues.keys_of(ahead).any(|key| keys.is_held_by(key.as_ref(), owner));
    !waits_for_owner
}

/// Whether nobody who stands ahead of `place` in the queue has to be served before `owner`.
pub fn has_turn<K: Keys>(queues: &WaitQueues, keys: &mut K, queue: QueueId, place: Place, owner: &[u8]) -> bool {
    let Some(queue) = queues.get(queue) else { return true };
    let mut ahead = queue.present().take_while(|(other, _)| *other < place);
    !ahead.any(|(_, id)| queues.request(id).is_some_and(|ahead| goes_first(queues, keys, ahead, owner)))
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
            assert_eq!(goes_first(&queues, keys, request, b"a"), goes_first_expected, "{row}");
            let queue = queues.id_of(key("k").as_ref()).unwrap();
            let behind = queues.last_place(Rank::Normal);
            assert_eq!(has_turn(&queues, keys, queue, behind, b"a"), !goes_first_expected, "{row}");
            assert!(has_turn(&queues, keys, queue, request.place, b"a"), "{row}: nobody is ahead of the first place");
        }
    }
}
