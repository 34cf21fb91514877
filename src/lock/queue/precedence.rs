//! Whom a request must not overtake: the one rule that hand-offs and the deadlock search ask.
//!
//! First come, first served, per key. One exception keeps requests for several keys from blocking each other for ever:
//! an owner that such a request waits for passes it.
//!
//! | the request ahead                                   | has to be served first |
//! | --------------------------------------------------- | ---------------------- |
//! | wants this key only                                 | yes                    |
//! | wants several keys, none of them held by this owner | yes                    |
//! | wants several keys, one of them held by this owner  | no: it waits for it    |
//! | is of this very owner                               | yes                    |

use super::queues::WaitQueues;
use super::request::{OwnerId, Place, QueueId, QueuedRequest};
use super::wait_queue::WaitQueue;
use crate::host::Keys;

/// Whether no request that stands ahead of `place` in the queue has to be served before one of the owner.
pub fn is_first<K: Keys>(
    queues: &WaitQueues,
    keys: &mut K,
    passing: &mut Passing<'_>,
    id: QueueId,
    place: Place,
) -> bool {
    let Some(queue) = queues.get(id) else { return true };
    let mut ahead = queue.present().take_while(|(other, _)| *other < place);
    match queue.has_requests_for_several() {
        true => ahead.filter_map(|(_, id)| queues.request(id)).all(|ahead| passing.passes(keys, &Several::of(ahead))),
        false => ahead.next().is_none(),
    }
}

/// A request that may be passed, queued or about to be.
#[derive(Clone, Copy)]
pub(super) struct Several<'a> {
    pub owner: Option<OwnerId>,
    pub place: Place,
    pub queues: &'a [QueueId],
}

impl<'a> Several<'a> {
    pub fn of(queued: &'a QueuedRequest) -> Several<'a> {
        Several { owner: Some(queued.owner_id), place: queued.place, queues: &queued.queues }
    }
}

/// Which requests for several keys one owner passes.
///
/// Thousands may be asked about, with a hundred keys each: only those keys are opened that it may hold, and once.
pub struct Passing<'a> {
    queues: &'a WaitQueues,
    owner: &'a [u8],
    id: Option<OwnerId>,
    /// Of the keys that it may hold, those for which a request for several waits.
    may_hold: Vec<QueueId>,
    held: Vec<QueueId>,
    /// Requests of its own that are imagined to be served.
    served: Vec<Several<'a>>,
}

impl<'a> Passing<'a> {
    /// Of the requests that are queued.
    pub fn new(queues: &'a WaitQueues, db: i32, owner: &'a [u8]) -> Passing<'a> {
        Passing::with(queues, db, owner, &[])
    }

    /// As if a request for several keys stood in these queues, too.
    pub(super) fn with(queues: &'a WaitQueues, db: i32, owner: &'a [u8], also: &[QueueId]) -> Passing<'a> {
        let id = queues.owner_id(db, owner);
        let known = id.into_iter().flat_map(|id| queues.may_hold(id));
        let is_wanted =
            |id: &QueueId| also.contains(id) || queues.get(*id).is_some_and(WaitQueue::has_requests_for_several);
        let may_hold = known.chain(queues.opaque(db)).filter(is_wanted).collect();
        Passing { queues, owner, id, may_hold, held: Vec::new(), served: Vec::new() }
    }

    /// As if this request of its own were served: it holds those keys then.
    pub(super) fn serve(&mut self, own: Several<'a>) {
        self.served.push(own);
    }

    /// It passes none for certain.
    pub(super) fn is_idle(&self) -> bool {
        self.may_hold.is_empty() && self.held.is_empty() && self.served.is_empty()
    }

    pub(super) fn passes<K: Keys>(&mut self, keys: &mut K, ahead: &Several<'_>) -> bool {
        if ahead.queues.len() < 2 || ahead.owner.is_some() && ahead.owner == self.id || self.is_idle() {
            return false;
        }
        let queues = self.queues;
        for id in std::mem::take(&mut self.may_hold) {
            if queues.get(id).is_some_and(|queue| keys.is_held_by(queue.key.as_ref(), self.owner)) {
                self.held.push(id);
            }
        }
        // Behind a request of its own: that is served before.
        let waits_for =
            |own: &Several<'_>| own.place < ahead.place && ahead.queues.iter().any(|id| own.queues.contains(id));
        self.held.iter().any(|id| ahead.queues.contains(id)) || self.served.iter().any(waits_for)
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
            let passing = &mut Passing::new(&queues, 0, b"a");
            assert_eq!(is_first(&queues, keys, passing, queue, behind), !goes_first_expected, "{row}");
            assert!(
                is_first(&queues, keys, passing, queue, request.place),
                "{row}: nobody is ahead of the first place"
            );
        }
    }
}
