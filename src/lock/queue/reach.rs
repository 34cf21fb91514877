//! A short look ahead: whom a new request may have to wait for, and whom those do. Where that ends without leading back
//! to the new owner, there is no cycle. It may see waits that there are not, never the other way round.

use super::new_request::NewRequest;
use super::queues::WaitQueues;
use super::request::{OwnerId, Place, QueueId};
use crate::host::{Content, Entry, Keys};
use crate::id_map::IdSet;
use crate::key::KeyRef;
use crate::value::claim::LockRequest;
use crate::value::outcome::{Admission, Blockers};
use crate::value::time::Now;

/// What the look ahead found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// All whom the request may have to wait for: its own owner is none of them.
    NotItself,
    /// Its own owner.
    Itself,
    /// Too many.
    TooMany,
}

/// Looks ahead from a new request, and from whatever else its owner waits for. `steps` is how many keys it may open,
/// and owners and requests look at, beside the keys of the new request and their holders.
pub(super) fn reach<K: Keys>(
    queues: &WaitQueues,
    keys: &mut K,
    now: &Now,
    new: &NewRequest<'_>,
    steps: usize,
) -> Reached {
    let steps_left = steps + 2 * new.names.len();
    let mut look = LookAhead { queues, keys, now, new, found: Vec::new(), seen: IdSet::default(), steps_left };
    look.explore().err().unwrap_or(Reached::NotItself)
}

struct LookAhead<'a, K> {
    queues: &'a WaitQueues,
    keys: &'a mut K,
    now: &'a Now,
    new: &'a NewRequest<'a>,
    found: Vec<OwnerId>,
    seen: IdSet<OwnerId>,
    steps_left: usize,
}

/// In all of it an error is why it ended early.
impl<K: Keys> LookAhead<'_, K> {
    fn explore(&mut self) -> Result<(), Reached> {
        let new = self.new;
        for name in new.names {
            self.look_at(new.key(name), self.queues.id_of(new.key(name)), &new.request, new.place)?;
        }
        if let Some(id) = self.queues.owner_id(new.db, new.owner()) {
            self.look_at_requests_of(id)?;
        }
        while let Some(id) = self.found.pop() {
            self.look_at_requests_of(id)?;
        }
        Ok(())
    }

    fn look_at_requests_of(&mut self, id: OwnerId) -> Result<(), Reached> {
        let queues = self.queues;
        for (_, queued) in queues.waiting(id).filter(|(_, queued)| queued.place != self.new.place) {
            for (id, queue) in queued.queues.iter().filter_map(|id| Some((*id, queues.get(*id)?))) {
                let request = LockRequest { claim: queue.under_limit(queued.claim), ..queued.request() };
                self.look_at(queue.key.as_ref(), Some(id), &request, queued.place)?;
            }
        }
        Ok(())
    }

    /// Finds whom the request may have to wait for on one of its keys.
    fn look_at(
        &mut self,
        key: KeyRef<'_>,
        queue: Option<QueueId>,
        request: &LockRequest<'_>,
        place: Place,
    ) -> Result<(), Reached> {
        self.step()?;
        let owner = request.owner.as_bytes();
        let LookAhead { queues, new, .. } = *self;
        let mut holders = Vec::new();
        if let Content::Lock(lock) = self.keys.open(key).content() {
            if lock.admission(owner, &request.claim) == Ok(Admission::AlreadyHeld) {
                // It waits for its other keys.
                return Ok(());
            }
            let room = self.steps_left;
            let waits = |id: OwnerId| queues.waiting(id).next().is_some();
            // An owner that is not known waits for nothing.
            let id_if_it_waits = |holder: &[u8]| queues.owner_id(new.db, holder).filter(|id| waits(*id));
            match lock.blockers(owner, &request.claim, self.now.timestamp()) {
                Blockers::Each(each) => {
                    for holder in each {
                        if holder.as_bytes() == new.owner() {
                            return Err(Reached::Itself);
                        }
                        if holders.len() == room {
                            return Err(Reached::TooMany);
                        }
                        holders.push(id_if_it_waits(holder.as_bytes()));
                    }
                }
                // One that waits for nothing ends it.
                Blockers::Together(all) => {
                    for holder in all {
                        let id = id_if_it_waits(holder.as_bytes());
                        if id.is_none() && holder.as_bytes() != new.owner() {
                            holders.clear();
                            break;
                        }
                        if holders.len() == room {
                            return Err(Reached::TooMany);
                        }
                        holders.push(id);
                    }
                    // What is left here may be the new owner itself.
                    let itself = queues.owner_id(new.db, new.owner());
                    if owner != new.owner() && holders.iter().any(|id| id.is_none() || *id == itself) {
                        return Err(Reached::Itself);
                    }
                }
            }
        }
        for holder in holders {
            self.step()?;
            self.found_owner(holder);
        }
        let Some(queue) = queue.and_then(|id| queues.get(id)) else { return Ok(()) };
        let is_new_ahead = owner != new.owner() && new.place < place && new.names.contains(&&*queue.key.name);
        if is_new_ahead {
            return Err(Reached::Itself);
        }
        for ahead in queue.ahead_of(place).filter_map(|id| queues.request(id)) {
            self.step()?;
            if ahead.owner.as_bytes() == owner || request.claim.is_read() && ahead.claim.is_read() {
                continue;
            }
            if ahead.owner.as_bytes() == new.owner() {
                return Err(Reached::Itself);
            }
            self.found_owner(Some(ahead.owner_id));
        }
        Ok(())
    }

    fn found_owner(&mut self, id: Option<OwnerId>) {
        if let Some(id) = id.filter(|id| self.seen.insert(*id)) {
            self.found.push(id);
        }
    }

    fn step(&mut self) -> Result<(), Reached> {
        self.steps_left = self.steps_left.checked_sub(1).ok_or(Reached::TooMany)?;
        Ok(())
    }
}
