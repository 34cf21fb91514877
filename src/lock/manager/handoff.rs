//! Hand-offs: who of the waiters is granted a key that has come free, or admits more.
//!
//! Requests for this key alone are decided with the key open. A request for several keys opens each of them, one after
//! the other, so the first key is closed before it.
//!
//! A turn may end after each waiter. The queue stays due then, and goes on in the next turn. Nobody gets in between:
//! who still stands in the queue is ahead of every newcomer, whether a holder is in its way or not.

use super::attempt::{Attempt, Turn};
use super::lock_manager::LockManager;
use super::release::remove_if_vacant;
use crate::host::{Clients, Content, Entry, Gate, Host, Keys, WaitOutcome};
use crate::key::{KeyRef, RequestId};
use crate::queue::precedence::{is_first, Passing};
use crate::queue::request::{Others, QueueId, QueuedRequest};
use crate::queue::wait_queue::WaitQueue;
use crate::shrink;
use crate::value::claim::{Family, LockRequest};
use crate::value::outcome::Admission;
use crate::value::owner::{Owner, OwnerRef};
use crate::value::time::Now;

/// How to go on with a queue when its key has been closed.
#[derive(Debug)]
pub(super) enum Next {
    /// All that could be granted is granted.
    Done,
    /// The head wants several keys.
    Head(RequestId),
    /// This owner was granted a mutex, and has requests here that want other keys too.
    RequestsOf(Owner),
}

/// How many of those who wait were asked what the change of their key means for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inspected {
    All,
    /// The turn was over.
    Some,
}

impl LockManager {
    /// The wait queue of a key that somebody waits for, and whether the waiters may be granted the key now.
    pub(super) fn queue_and_gate<K: Keys, C>(
        &self,
        host: &mut Host<'_, K, C>,
        key: KeyRef<'_>,
    ) -> Option<(QueueId, Gate)> {
        let queue = self.queues.id_of(key)?;
        let is_waited_for = self.queues.get(queue)?.waiters() > 0;
        is_waited_for.then(|| (queue, host.keys.gate(key)))
    }

    /// What follows for a queue whose gate is not open: it is served later, or those who stand in it have to ask again.
    pub(super) fn put_off<K, C: Clients>(&mut self, host: &mut Host<'_, K, C>, queue: QueueId, gate: Gate) {
        match gate {
            Gate::Open => {}
            Gate::Closed => self.due.insert(queue),
            Gate::Elsewhere => self.dismiss_queue(host, queue, WaitOutcome::TryAgain),
        }
    }

    /// Grants the key of a queue to the waiters that it admits, first come first served, as far as the turn goes. What
    /// the gate said.
    pub(super) fn serve<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>, queue: QueueId) -> Gate {
        let Some(key) = self.queues.get(queue).map(|queue| queue.key.clone()) else { return Gate::Open };
        match self.queue_and_gate(host, key.as_ref()) {
            Some((_, Gate::Open)) => {}
            Some((_, gate)) => {
                self.put_off(host, queue, gate);
                return gate;
            }
            // Places are of no use where the slot is not.
            None if host.keys.gate(key.as_ref()) == Gate::Elsewhere => {
                self.put_off(host, queue, Gate::Elsewhere);
                return Gate::Elsewhere;
            }
            None => return Gate::Open,
        }
        let mut entry = host.keys.open(key.as_ref());
        if self.has_become_another(&mut entry, queue) {
            self.changed.entry(queue).or_default();
        }
        if self.changed.contains_key(&queue) {
            drop(entry);
            if self.inspect_again(host, key.as_ref(), queue) == Inspected::Some {
                self.due.insert(queue);
                return Gate::Open;
            }
            entry = host.keys.open(key.as_ref());
        }
        let next = self.serve_open(&mut entry, &mut host.clients, host.now, key.as_ref(), queue);
        drop(entry);
        self.serve_on(host, queue, next);
        Gate::Open
    }

    /// Whether the key holds what those who wait do not know of, though no event has told.
    pub(super) fn has_become_another<E: Entry>(&self, entry: &mut E, queue: QueueId) -> bool {
        match entry.content() {
            Content::Free => false,
            Content::Foreign => true,
            Content::Lock(lock) => {
                let is_of_family = |family| self.queues.get(queue).is_none_or(|queue| queue.family == family);
                self.unheld.contains(&queue) || !lock.family().is_none_or(is_of_family)
            }
        }
    }

    /// The key may have become something else. Whoever can never be granted it now is told, wherever it stands; whoever
    /// holds it now has its turn. Goes on behind those that an earlier turn came to.
    fn inspect_again<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        key: KeyRef<'_>,
        queue: QueueId,
    ) -> Inspected {
        loop {
            let mut entry = host.keys.open(key);
            match entry.content() {
                Content::Free => return self.has_inspected(queue),
                Content::Foreign => {}
                Content::Lock(lock) => {
                    // A semaphore that came here brings its LIMIT.
                    lock.semaphore_limit().into_iter().for_each(|limit| _ = self.queues.set_limit(queue, limit));
                }
            }
            // Who holds this key already is granted all of its keys, one of which may be this one: it is closed first.
            let holder = loop {
                let after = self.changed.get(&queue).copied().flatten();
                let Some((place, id)) = self.queues.get(queue).and_then(|queue| queue.next_after(after)) else {
                    if let Content::Lock(lock) = entry.content() {
                        let holder = lock.exclusive_owner().cloned();
                        holder.iter().for_each(|holder| self.gained(key, holder.as_bytes()));
                    }
                    return self.has_inspected(queue);
                };
                self.changed.insert(queue, Some(place));
                let Some(queued) = self.queues.request(id) else { continue };
                if queued.has_several_keys() {
                    let (owner, claim, lease) = (queued.owner.clone(), queued.claim, queued.lease);
                    match self.admission(
                        host.now,
                        key,
                        &mut entry,
                        &LockRequest { owner: owner.as_ref(), claim, lease },
                    ) {
                        Ok(Admission::AlreadyHeld) => break id,
                        Ok(Admission::Admit | Admission::Wait) => {}
                        Err(error) => _ = self.dismiss_for(&mut host.clients, id, error),
                    }
                } else {
                    self.attempt(&mut entry, &mut host.clients, host.now, key, queue, id, Turn::NotCome);
                }
                if host.now.is_turn_over() {
                    return Inspected::Some;
                }
            };
            drop(entry);
            self.attempt_several(host, queue, holder);
            if host.now.is_turn_over() {
                return Inspected::Some;
            }
        }
    }

    fn has_inspected(&mut self, queue: QueueId) -> Inspected {
        self.changed.remove(&queue);
        shrink::map(&mut self.changed);
        Inspected::All
    }

    /// An owner that holds a key reenters it, and passes requests that want it besides others: what else it waits for
    /// is tried again, wherever that stands.
    pub(super) fn gained(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        let Some(id) = self.queues.id_of(key) else { return };
        let requests = self.queues.requests_around(id, owner);
        let present = requests.filter_map(|id| Some((self.queues.request(id).filter(|it| it.is_present())?.place, id)));
        self.to_try.extend(present);
    }

    /// Tries a request again whose owner has gained a key. What the gate said.
    pub(super) fn try_again<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>, id: RequestId) -> Gate {
        let Some(queued) = self.queues.request(id).filter(|queued| queued.is_present()) else { return Gate::Open };
        let (queues, place) = (queued.queues.clone(), queued.place);
        let Some(key) = queues.first().and_then(|queue| self.queues.get(*queue)).map(|queue| queue.key.clone()) else {
            return Gate::Open;
        };
        let gate = host.keys.gate(key.as_ref());
        match gate {
            Gate::Open => self.serve_request(host, queues[0], id),
            Gate::Closed => self.to_try.insert((place, id)),
            Gate::Elsewhere => self.put_off(host, queues[0], Gate::Elsewhere),
        }
        for queue in queues {
            self.watch(host, queue);
        }
        gate
    }

    /// Grants an open key to the waiters for it alone, up to the first that has to wait or wants other keys too, or as
    /// far as the turn goes. A lock that is vacant when that is done is removed.
    pub(super) fn serve_open<E: Entry, C: Clients>(
        &mut self,
        entry: &mut E,
        clients: &mut C,
        now: &Now,
        key: KeyRef<'_>,
        queue: QueueId,
    ) -> Next {
        self.end_upgrades(entry, queue);
        // An earlier turn left the rest of the queue to the timer: commands in between need not do its work.
        let goes_on_later = self.due.contains(queue);
        while let Some(id) = self.queues.get(queue).and_then(WaitQueue::first) {
            let Some(head) = self.queues.request(id) else { break };
            if head.has_several_keys() {
                return Next::Head(id);
            }
            let owner = head.owner.clone();
            match self.attempt(entry, clients, now, key, queue, id, Turn::Come) {
                Attempt::Granted(others) => {
                    if others == Others::Some {
                        if let Some(next) = self.serve_owner_open(entry, clients, now, key, queue, owner) {
                            return next;
                        }
                    }
                    // A mutex has its one holder: nobody else fits.
                    if self.has_one_holder(queue) {
                        break;
                    }
                }
                Attempt::Dismissed => {}
                Attempt::Stuck => break,
            }
            if now.is_turn_over() || goes_on_later {
                self.go_on_later(queue);
                break;
            }
        }
        remove_if_vacant(entry);
        self.watch_open(entry, queue);
        Next::Done
    }

    /// The turn is over: the rest of the queue, if there is one, is for the next.
    fn go_on_later(&mut self, queue: QueueId) {
        if self.queues.get(queue).is_some_and(|queue| queue.waiters() > 0) {
            self.due.insert(queue);
        }
    }

    /// An owner was just granted the key of a queue in which it stands too: what it holds by that comes before whoever
    /// is first, also before more that it wants itself. Requests for other keys too are tried by the drain.
    pub(super) fn serve_who_holds<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        queue: QueueId,
        owner: OwnerRef<'_>,
    ) {
        let owner = owner.to_owner();
        if self.requests_in(queue, &owner).is_empty() {
            return;
        }
        let Some(key) = self.queues.get(queue).map(|queue| queue.key.clone()) else { return };
        let mut entry = host.keys.open(key.as_ref());
        self.serve_owner_open(&mut entry, &mut host.clients, host.now, key.as_ref(), queue, owner);
    }

    /// In the same queue the owner that was just granted the key may stand once more: it reenters now, past everyone.
    fn serve_owner_open<E: Entry, C: Clients>(
        &mut self,
        entry: &mut E,
        clients: &mut C,
        now: &Now,
        key: KeyRef<'_>,
        queue: QueueId,
        owner: Owner,
    ) -> Option<Next> {
        for id in self.requests_in(queue, &owner) {
            if self.queues.request(id).is_some_and(QueuedRequest::has_several_keys) {
                return Some(Next::RequestsOf(owner));
            }
            // What it does not hold already has its turn when it is first.
            self.attempt(entry, clients, now, key, queue, id, Turn::NotCome);
        }
        None
    }

    /// Goes on where [`LockManager::serve_open`] had to close the key.
    pub(super) fn serve_on<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>, queue: QueueId, mut next: Next) {
        let Some(key) = self.queues.get(queue).map(|queue| queue.key.clone()) else { return };
        loop {
            match next {
                Next::Done => return,
                Next::RequestsOf(owner) => {
                    self.serve_owners(host, queue, vec![owner]);
                    break;
                }
                Next::Head(id) => {
                    let Some(head) = self.queues.request(id).cloned() else { return };
                    match self.attempt_several(host, queue, id) {
                        Attempt::Granted(_) => {
                            self.serve_owners(host, queue, vec![head.owner]);
                            break;
                        }
                        Attempt::Stuck => {
                            let passing = self.owners_that_may_pass(queue);
                            self.serve_owners(host, queue, passing);
                            break;
                        }
                        Attempt::Dismissed => {
                            if host.now.is_turn_over() {
                                self.go_on_later(queue);
                                break;
                            }
                        }
                    }
                }
            }
            let mut entry = host.keys.open(key.as_ref());
            next = self.serve_open(&mut entry, &mut host.clients, host.now, key.as_ref(), queue);
        }
        let mut entry = host.keys.open(key.as_ref());
        remove_if_vacant(&mut entry);
        self.watch_open(&mut entry, queue);
    }

    /// Serves the requests of these owners that stand in the queue, wherever they stand.
    fn serve_owners<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>, queue: QueueId, owners: Vec<Owner>) {
        for owner in owners {
            for id in self.requests_in(queue, &owner) {
                self.serve_request(host, queue, id);
            }
        }
    }

    /// Serves a request wherever it stands in the queue, if everyone ahead may be passed.
    fn serve_request<K: Keys, C: Clients>(&mut self, host: &mut Host<'_, K, C>, queue: QueueId, id: RequestId) {
        let Some(request) = self.queues.request(id) else { return };
        if request.has_several_keys() {
            self.attempt_several(host, queue, id);
            return;
        }
        let mut passing = Passing::new(&self.queues, request.db, request.owner.as_bytes());
        let is_first = is_first(&self.queues, &mut host.keys, &mut passing, queue, request.place);
        let turn = if is_first { Turn::Come } else { Turn::NotCome };
        let Some(key) = self.queues.get(queue).map(|queue| queue.key.clone()) else { return };
        let mut entry = host.keys.open(key.as_ref());
        self.attempt(&mut entry, &mut host.clients, host.now, key.as_ref(), queue, id, turn);
    }

    /// The owners that may pass a stuck request for several keys at the head of the queue: a request for this key only
    /// is passed by none.
    fn owners_that_may_pass(&self, queue: QueueId) -> Vec<Owner> {
        let Some(queue) = self.queues.get(queue) else { return Vec::new() };
        let mut passing = Vec::new();
        let queued = queue.present().filter_map(|(_, id)| self.queues.request(id));
        for behind in queued.skip(1) {
            if self.queues.may_be_passed_by(behind) {
                passing.push(behind.owner.clone());
            }
            if !behind.has_several_keys() {
                break;
            }
        }
        passing
    }

    fn has_one_holder(&self, queue: QueueId) -> bool {
        self.queues.get(queue).is_some_and(|queue| matches!(queue.family, Family::Mutex | Family::Reentrant))
    }

    /// The requests of an owner that wait in this queue, in the order of their places.
    fn requests_in(&self, queue: QueueId, owner: &Owner) -> Vec<RequestId> {
        let waits_here = |id: &RequestId| {
            self.queues.request(*id).is_some_and(|queued| queued.is_present() && queued.stands_in(queue))
        };
        let mut requests: Vec<_> = self.queues.requests_around(queue, owner.as_bytes()).filter(waits_here).collect();
        requests.sort_by_key(|id| self.queues.request(*id).map(|queued| queued.place));
        requests
    }
}

#[cfg(test)]
mod tests;
