//! Waiters that go: their time runs out, their connection ends, they are cancelled, or told that their turn never
//! comes.

use super::lock_manager::{LockManager, Timer};
use crate::host::{Clients, Content, Entry, Host, Keys, WaitOutcome};
use crate::key::{KeyRef, RequestId};
use crate::queue::request::QueueId;
use crate::value::outcome::KeyError;
use crate::value::time::Now;

/// How a client stopped waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Its time ran out or its connection ended: it may come back to its place.
    MayComeBack,
    /// It keeps no place.
    ForGood,
}

/// What LOCK.CANCEL did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// Requests of the owner were taken out of the queue.
    Some,
    /// It had none there.
    Nothing,
}

impl LockManager {
    /// The client of a queued request waits no more. Nothing is written: [`LockManager::drain`] follows.
    pub fn leave(&mut self, now: &Now, id: RequestId, departure: Departure) {
        let Some(request) = self.queues.request(id) else { return };
        let keeps_place = request.may_come_back && self.limits.keep_place_ms > 0;
        // Those behind it may be admissible without it: readers behind a writer, for one.
        self.due.extend(request.queues.iter().copied());
        if departure == Departure::ForGood || !keeps_place {
            return self.remove(id);
        }
        self.timers.clear(Timer::WaitEnds(id));
        self.queues.keep_place(id);
        self.timers.set(Timer::PlaceEnds(id), now.timestamp().plus_ms(self.limits.keep_place_ms));
        while self.queues.kept_places() > self.limits.max_waiters {
            let Some(oldest) = self.queues.longest_away() else { break };
            self.remove(oldest);
        }
    }

    /// Takes the queued requests of this owner out of the key's wait queue.
    ///
    /// # Errors
    /// [`KeyError::WrongType`] where the key holds a value of another type.
    pub fn cancel<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        key: KeyRef<'_>,
        owner: &[u8],
    ) -> Result<Cancelled, KeyError> {
        if let Content::Foreign = host.keys.open(key).content() {
            return Err(KeyError::WrongType);
        }
        let Some(queue) = self.queues.id_of(key) else { return Ok(Cancelled::Nothing) };
        let stands_here = |id: &RequestId| self.queues.request(*id).is_some_and(|queued| queued.stands_in(queue));
        let ids: Vec<_> = self.queues.requests_of(key.db, owner).filter(stands_here).collect();
        let queues_of = |id: &RequestId| self.queues.request(*id).map(|queued| queued.queues.clone());
        let queues: Vec<_> = ids.iter().filter_map(queues_of).flatten().collect();
        for id in &ids {
            self.dismiss(&mut host.clients, *id, WaitOutcome::Cancelled);
        }
        for queue in queues {
            self.serve(host, queue);
        }
        Ok(if ids.is_empty() { Cancelled::Nothing } else { Cancelled::Some })
    }

    /// A waiter received the reply that it has the lock.
    pub fn delivered(&mut self, id: RequestId) {
        self.deliveries.delivered(id);
    }

    /// A waiter was granted the lock, but its client has gone. Nothing is written: [`LockManager::drain`] passes the
    /// grant on.
    pub fn undelivered(&mut self, id: RequestId) {
        self.deliveries.undelivered(id);
    }

    /// The server is no primary any more: nobody waits here, nothing is bound.
    pub fn demote<C: Clients>(&mut self, clients: &mut C) {
        let ids: Vec<_> = self.queues.requests().map(|(id, _)| id).collect();
        for id in ids {
            self.dismiss(clients, id, WaitOutcome::Demoted);
        }
        self.db_changed(None);
        self.due.clear();
        self.changed.clear();
        self.to_try.clear();
        self.ended.clear();
        self.deliveries.clear();
    }

    /// Takes a request out and tells its client why.
    pub(super) fn dismiss<C: Clients>(&mut self, clients: &mut C, id: RequestId, outcome: WaitOutcome) {
        let Some(request) = self.queues.request(id) else { return };
        if request.is_present() {
            clients.answer(id, outcome);
        }
        self.due.extend(request.queues.iter().copied());
        self.remove(id);
    }

    /// Takes out everyone who stands in a queue.
    pub(super) fn dismiss_queue<K, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        queue: QueueId,
        outcome: WaitOutcome,
    ) {
        let stands_here = self.queues.requests().filter(|(_, request)| request.stands_in(queue));
        let ids: Vec<_> = stands_here.map(|(id, _)| id).collect();
        for id in ids {
            self.dismiss(&mut host.clients, id, outcome);
        }
    }

    /// Takes a request out of its queues, with its timers and those of queues in which nobody stands any more.
    pub(super) fn remove(&mut self, id: RequestId) {
        let Some(request) = self.queues.leave(id) else { return };
        if request.until.is_some() {
            self.timers.clear(Timer::WaitEnds(id));
        }
        self.timers.clear(Timer::PlaceEnds(id));
        self.to_try.remove(&id);
        for queue in request.queues {
            if self.queues.get(queue).is_none() {
                self.timers.clear(Timer::LeaseEnds(queue));
                self.due.remove(&queue);
                self.changed.remove(&queue);
            }
        }
    }
}
