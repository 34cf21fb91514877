//! Hand-offs: a key that has come free, or admits more holders, is granted to the next waiters.
//!
//! Requests for this key alone are decided with the key open. A request for several keys opens them one after another,
//! so the first key is closed before it.
//!
//! A turn may end after each waiter. The queue stays due then, and the next turn goes on. No newcomer is granted the
//! key in between: all requests that are still queued come before it.

use std::collections::VecDeque;

use super::endings::Ending;
use super::grant::{Attempt, Precedence, OVER_LIMIT};
use super::lock_manager::LockManager;
use super::release::remove_if_vacant;
use super::to_try::Trying;
use crate::host::{Clients, Content, Entry, Gate, Host, Keys, WaitOutcome};
use crate::key::{KeyRef, RequestId};
use crate::queue::deadlock;
use crate::queue::place::Rank;
use crate::queue::placement::new_place;
use crate::queue::request::{NewRequest, OwnerId, QueueId};
use crate::queue::wait_queue::WaitQueue;
use crate::value::claim::{Claim, Family, InvalidClaim};
use crate::value::lock::Lock;
use crate::value::outcome::KeyError;
use crate::value::owner::Owner;
use crate::value::time::Now;

/// How to go on with a queue when its key has been closed.
#[derive(Debug)]
pub(super) enum Next {
    /// The rest of the queue waits: for a holder, for a later turn, or for nothing, as it is empty.
    Done,
    /// The request at the head wants several keys.
    Head(RequestId),
}

impl LockManager {
    /// The wait queue of a key that requests wait for, and whether they may be granted the key now.
    pub(super) fn queue_and_gate<K: Keys, C>(
        &self,
        host: &mut Host<'_, K, C>,
        key: KeyRef<'_>,
    ) -> Option<(QueueId, Gate)> {
        let queue = self.queues.id_of(key)?;
        let is_waited_for = self.queues.get(queue)?.waiters() > 0;
        is_waited_for.then(|| (queue, host.keys.gate(key)))
    }

    /// Handles a queue with a gate that is not open: it is served later, or its requests end with
    /// [`WaitOutcome::TryAgain`].
    pub(super) fn put_off(&mut self, queue: QueueId, gate: Gate) {
        match gate {
            Gate::Open => {}
            Gate::Closed => self.due.insert(queue),
            Gate::Elsewhere => self.end_all(self.queues.all_in(queue), WaitOutcome::TryAgain),
        }
    }

    /// Ends the requests of one queue, unless they are in `endings` already.
    fn end_all(&mut self, ids: Vec<RequestId>, outcome: WaitOutcome) {
        if ids.first().is_some_and(|first| !self.endings.contains(*first)) {
            self.endings.extend(ids, Ending::Told(outcome));
        }
    }

    /// Grants the key of a queue to the waiters that it admits, in order of arrival, as far as the turn goes. Returns
    /// the state of the gate.
    pub(super) fn serve<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>, queue: QueueId) -> Gate {
        let Some(wait_queue) = self.queues.get(queue) else { return Gate::Open };
        let (key, is_waited_for) = (wait_queue.key.clone(), wait_queue.waiters() > 0);
        match host.keys.gate(key.as_ref()) {
            // Kept places are of no use after the slot has left.
            gate @ Gate::Elsewhere => {
                self.put_off(queue, gate);
                return gate;
            }
            _ if !is_waited_for => return Gate::Open,
            gate @ Gate::Closed => {
                self.put_off(queue, gate);
                return gate;
            }
            Gate::Open => {}
        }
        if self.to_try.has_gained(queue) {
            self.due.insert(queue);
            return Gate::Open;
        }
        let mut entry = host.keys.open(key.as_ref());
        self.settle(host.now, key.as_ref(), &mut entry);
        if let Err(error) = self.take_in_value(host.now, &mut entry, queue) {
            drop(entry);
            let waiters = self.queues.get(queue).into_iter().flat_map(WaitQueue::present).map(|(_, id)| id).collect();
            self.end_all(waiters, WaitOutcome::Impossible(error));
            return Gate::Open;
        }
        let next = self.serve_open(&mut entry, &mut host.clients, host.now, key.as_ref(), queue);
        drop(entry);
        self.serve_on(host, queue, next);
        Gate::Open
    }

    /// Takes in a value that came to the key since it was last inspected, once for the whole queue: the requests of a
    /// holder that waits here are tried again, and a semaphore that another command put here brings its LIMIT.
    ///
    /// # Errors
    /// The value can never be granted to any request in the queue.
    fn take_in_value<E: Entry>(&mut self, now: &Now, entry: &mut E, queue: QueueId) -> Result<(), KeyError> {
        let Some(wait_queue) = self.queues.get(queue) else { return Ok(()) };
        let lock = match entry.content() {
            Content::Free => return Ok(()),
            Content::Foreign => return Err(KeyError::WrongType),
            Content::Lock(lock) => lock,
        };
        match lock.family() {
            None => return Ok(()),
            Some(family) if family != wait_queue.family => return Err(InvalidClaim::WrongFamily(family).into()),
            Some(_) if lock.fence() == wait_queue.seen => return Ok(()),
            Some(_) => {}
        }
        let key = wait_queue.key.clone();
        let gained: Vec<Owner> = match lock.exclusive_owner() {
            Some(holder) => vec![holder.clone()],
            None => {
                let waiters = wait_queue.present().filter_map(|(_, id)| self.queues.request(id));
                waiters.map(|it| it.owner.clone()).filter(|owner| lock.is_held_by(owner.as_bytes())).collect()
            }
        };
        let (limit, fence) = (lock.semaphore_limit(), lock.fence());
        self.queues.set_seen(queue, fence);
        gained.iter().for_each(|owner| self.gained(key.as_ref(), owner.as_bytes()));
        if limit.is_some_and(|limit| self.queues.set_limit(queue, limit)) {
            let never_fit = self.over_limit(now, entry, queue);
            self.endings.extend(never_fit, Ending::Told(OVER_LIMIT));
        }
        Ok(())
    }

    /// An owner that gains a key may reenter it: the drain tries its other requests for the key again, wherever they
    /// stand.
    pub(super) fn gained(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if let Some(queue) = self.queues.id_of(key) {
            let waiting = self.queues.owner_in(queue, key.db, owner);
            self.to_try.gained.extend(waiting.map(|owner| (queue, owner)));
        }
    }

    /// Tries the next request of an owner that has gained a key. `None`: there is none. Otherwise the state of the
    /// gate.
    pub(super) fn try_one_again<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>) -> Option<Gate> {
        let mut trying = match self.to_try.trying.take() {
            Some(trying) => trying,
            None => {
                let (queue, owner) = self.to_try.gained.take_next()?;
                // Ended holders are taken out there, which is a write.
                let gate = self.queues.get(queue).map_or(Gate::Open, |waiting| host.keys.gate(waiting.key.as_ref()));
                match gate {
                    Gate::Open => {}
                    Gate::Closed => {
                        self.to_try.gained.insert((queue, owner));
                        return Some(Gate::Closed);
                    }
                    Gate::Elsewhere => {
                        self.put_off(queue, Gate::Elsewhere);
                        return Some(Gate::Elsewhere);
                    }
                }
                let requests = self.requests_to_try(host, queue, owner);
                Trying { queue, owner, requests }
            }
        };
        let Some(id) = trying.requests.pop_front() else { return Some(Gate::Open) };
        let gate = self.try_request(host, id);
        if gate == Gate::Closed {
            trying.requests.push_front(id);
        }
        self.to_try.trying = Some(trying).filter(|trying| !trying.requests.is_empty());
        Some(gate)
    }

    /// Records the holders of the key of a queue; `owner`: the owner that was just granted it, if known. The requests for several keys of an owner that has lost the key are
    /// to be decided anew.
    pub(super) fn note_holders(&mut self, queue: QueueId, lock: Option<&Lock>, owner: Option<OwnerId>) {
        for id in self.queues.note_holders(queue, lock, owner) {
            let place = self.queues.request(id).map(|queued| queued.place.clone());
            self.to_try.lost.extend(place.map(|place| (place, id, queue)));
        }
    }

    /// Decides a request for several keys anew after its owner has lost one of them: its place, and whether it would
    /// wait for ever. `None`: there is none. Otherwise the state of the gate.
    pub(super) fn decide_one_anew<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>) -> Option<Gate> {
        let (place, id, queue) = self.to_try.lost.pop_first()?;
        let queued = self.queues.request(id).filter(|queued| queued.is_present() && queued.place == place);
        let lost = self.queues.get(queue).map(|queue| queue.key.clone());
        let (Some(queued), Some(lost)) = (queued.cloned(), lost) else { return Some(Gate::Open) };
        match host.keys.gate(lost.as_ref()) {
            Gate::Open => {}
            Gate::Closed => {
                self.to_try.lost.insert((place, id, queue));
                return Some(Gate::Closed);
            }
            Gate::Elsewhere => {
                self.put_off(queue, Gate::Elsewhere);
                return Some(Gate::Elsewhere);
            }
        }
        let holders = &mut self.holders(&mut host.keys, host.now);
        if holders.is_held_by(lost.as_ref(), queued.owner.as_bytes()) {
            return Some(Gate::Open);
        }
        let keys: Vec<_> = self.queues.keys_of(&queued).cloned().collect();
        let names: Vec<&[u8]> = keys.iter().map(|key| &*key.name).collect();
        let place = self.queues.last_place(Rank::Normal);
        let (request, owner_id) = (queued.request(), Some(queued.owner_id));
        let new = NewRequest { db: queued.db, names: &names, request, owner_id, place, replaces: Some(id) };
        let new = NewRequest { place: new_place(&self.queues, holders, &new), ..new };
        match deadlock::find(&self.queues, holders, &new) {
            None => {
                self.queues.move_to(id, new.place);
                self.queues.set_blocked_on(id, None);
                self.due.extend(queued.queues);
            }
            Some(cycle) => {
                self.record_deadlock(lost.as_ref(), &queued.owner, cycle);
                self.dismiss(&mut host.clients, id, WaitOutcome::Deadlock);
            }
        }
        Some(Gate::Open)
    }

    /// Serves a waiting request in any position of its queue, if it may be granted now. Returns the state of the gate.
    fn try_request<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>, id: RequestId) -> Gate {
        let queue = self.queues.request(id).filter(|queued| queued.is_present()).map(|queued| queued.queues[0]);
        let Some((queue, key)) = queue.and_then(|id| Some((id, self.queues.get(id)?.key.clone()))) else {
            return Gate::Open;
        };
        let gate = host.keys.gate(key.as_ref());
        match gate {
            Gate::Open => self.serve_request(host, queue, key.as_ref(), id),
            Gate::Closed => {}
            Gate::Elsewhere => self.put_off(queue, Gate::Elsewhere),
        }
        gate
    }

    /// The requests of an owner that may be granted because it holds a key. For a semaphore: requests for no more than
    /// it holds, and requests for a slot beside permits or permits beside a slot, which are refused. All others are
    /// served in the order of the queue.
    fn requests_to_try<K: Keys, C>(
        &mut self,
        host: &mut Host<'_, K, C>,
        queue: QueueId,
        owner: OwnerId,
    ) -> VecDeque<RequestId> {
        let Some(key) = self.queues.get(queue).map(|waiting| waiting.key.clone()) else { return VecDeque::new() };
        let mut entry = host.keys.open(key.as_ref());
        self.settle(host.now, key.as_ref(), &mut entry);
        // The owner may have become the writer.
        self.end_upgrades(&mut entry, queue);
        let Some(name) = self.queues.owner(owner) else { return VecDeque::new() };
        let held = match entry.lock_and_until() {
            Some((lock, until)) => lock.hold(name.as_bytes(), until).map(|hold| hold.share()),
            None => None,
        };
        let held = held.unwrap_or_default();
        let is_wanted = |claim: &Claim| match claim.family() {
            Family::Semaphore => held.covers(claim),
            Family::Mutex | Family::Reentrant | Family::ReadWrite => true,
        };
        self.queues.requests_in(queue, owner, is_wanted).into()
    }

    /// An owner has lost the key of this queue: its requests are no longer to be tried because of it.
    pub(super) fn lost(&mut self, queue: QueueId, key: KeyRef<'_>, owner: &[u8]) {
        if self.to_try.has_gained(queue) {
            let owner = self.queues.owner_with_requests(key.db, owner);
            owner.into_iter().for_each(|owner| self.to_try.lost(queue, owner));
        }
    }

    /// Serves a request in any position of its queue: behind others it is granted only what its owner holds already.
    fn serve_request<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        queue: QueueId,
        key: KeyRef<'_>,
        id: RequestId,
    ) {
        let Some(request) = self.queues.request(id) else { return };
        if request.has_several_keys() {
            self.queues.set_blocked_on(id, None);
            self.try_grant_several(host, queue, id);
            self.watch_open(&mut host.keys.open(key), queue);
            return;
        }
        let is_first = self.queues.is_first(queue, &request.place);
        let precedence = if is_first { Precedence::First } else { Precedence::Behind };
        let mut entry = host.keys.open(key);
        self.try_grant(&mut entry, &mut host.clients, host.now, key, queue, id, precedence);
        self.watch_open(&mut entry, queue);
    }

    /// Grants an open key to requests for it alone, up to the first that has to wait or wants other keys too, or as far
    /// as the turn goes. A lock that is vacant afterwards is removed, or left to [`LockManager::serve_on`].
    pub(super) fn serve_open<E: Entry, C: Clients>(
        &mut self,
        entry: &mut E,
        clients: &mut C,
        now: &Now,
        key: KeyRef<'_>,
        queue: QueueId,
    ) -> Next {
        self.end_upgrades(entry, queue);
        // An earlier turn left the rest of the queue to the timer: a command in between serves one waiter.
        let goes_on_later = self.due.contains(queue);
        while let Some((_, id)) = self.queues.get(queue).and_then(WaitQueue::head) {
            if self.end_if_over(clients, now, id) {
                if now.spends_turn() {
                    self.go_on_later(queue);
                    break;
                }
                continue;
            }
            let Some(head) = self.queues.request(id) else { break };
            if self.to_try.has_gained(queue) {
                self.go_on_later(queue);
                break;
            }
            if head.has_several_keys() {
                return Next::Head(id);
            }
            match self.try_grant(entry, clients, now, key, queue, id, Precedence::First) {
                // A mutex has one holder: no other request fits. The grant has noted the new one.
                Attempt::Granted if self.has_one_holder(queue) => {
                    self.watch_end(entry, queue);
                    return Next::Done;
                }
                Attempt::Granted | Attempt::Dismissed => {}
                Attempt::Stuck => break,
            }
            if now.spends_turn() || goes_on_later {
                self.go_on_later(queue);
                break;
            }
        }
        remove_if_vacant(entry);
        self.watch_open(entry, queue);
        Next::Done
    }

    /// The turn is over: the next turn serves the rest of the queue, if there is one.
    fn go_on_later(&mut self, queue: QueueId) {
        if self.queues.get(queue).is_some_and(|queue| queue.waiters() > 0) {
            self.due.insert(queue);
        }
    }

    /// Continues where [`LockManager::serve_open`] had to close the key.
    pub(super) fn serve_on<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>, queue: QueueId, mut next: Next) {
        let Some(key) = self.queues.get(queue).map(|queue| queue.key.clone()) else { return };
        while let Next::Head(id) = next {
            match self.try_grant_several(host, queue, id) {
                Attempt::Granted | Attempt::Stuck => break,
                Attempt::Dismissed if host.now.spends_turn() => {
                    self.go_on_later(queue);
                    break;
                }
                Attempt::Dismissed => {}
            }
            let mut entry = host.keys.open(key.as_ref());
            next = self.serve_open(&mut entry, &mut host.clients, host.now, key.as_ref(), queue);
        }
        // As `serve_open` does where it does not return the head. After a grant no lock is vacant.
        if let Next::Head(_) = next {
            let mut entry = host.keys.open(key.as_ref());
            remove_if_vacant(&mut entry);
            self.watch_open(&mut entry, queue);
        }
    }

    fn has_one_holder(&self, queue: QueueId) -> bool {
        self.queues.get(queue).is_some_and(|queue| matches!(queue.family, Family::Mutex | Family::Reentrant))
    }
}

#[cfg(test)]
mod tests;
