//! Hand-offs: a key that has come free, or admits more holders, is granted to the next waiters.
//!
//! Requests for this key alone are decided with the key open. A request for several keys opens them one after another,
//! so the first key is closed before it.
//!
//! A turn may end after each waiter. The queue stays due then, and the next turn goes on. No newcomer is granted the
//! key in between: all requests that are still queued come before it.

use super::departure::end_if_over;
use super::endings::Ending;
use super::grant::{Attempt, Precedence, OVER_LIMIT};
use super::open_key::OpenKey;
use super::turn::Turn;
use crate::host::{Clients, Content, Entry, Gate, Keys, WaitOutcome};
use crate::key::{KeyRef, RequestId};
use crate::queue::request::{OwnerId, QueueId};
use crate::queue::wait_queue::WaitQueue;
use crate::value::claim::{Claim, Family, InvalidClaim};
use crate::value::outcome::KeyError;
use crate::value::owner::Owner;

/// How to go on with a queue when its key has been closed.
#[derive(Debug)]
pub(super) enum Next {
    /// The rest of the queue waits: for a holder, for a later turn, or for nothing, as it is empty.
    Done,
    /// The request at the head wants several keys.
    Head(RequestId),
}

impl<K: Keys, C: Clients> Turn<'_, '_, K, C> {
    /// The wait queue of a key if requests wait for it, and whether they may be granted the key now.
    pub(super) fn gate_of_waited_for(&mut self, key: KeyRef<'_>, queue: Option<QueueId>) -> Option<(QueueId, Gate)> {
        let queue = queue?;
        let is_waited_for = self.manager.queues().get(queue)?.waiters() > 0;
        is_waited_for.then(|| (queue, self.host.keys.gate(key)))
    }

    /// Grants the key of a queue to the waiters that it admits, in order of arrival, as far as the turn goes. Returns
    /// the state of the gate.
    pub(super) fn serve(&mut self, queue: QueueId) -> Gate {
        let waits = &mut self.manager.waits;
        let Some(waiting) = waits.queues.get(queue) else { return Gate::Open };
        let (key, is_waited_for) = (waiting.key.clone(), waiting.waiters() > 0);
        let gate = self.host.keys.gate(key.as_ref());
        if !is_waited_for && gate != Gate::Elsewhere {
            return Gate::Open;
        }
        // Kept places are of no use after the slot has left.
        if gate != Gate::Open {
            waits.put_off(queue, gate);
            return gate;
        }
        if waits.backlog.has_gained(queue) {
            waits.backlog.queues.insert(queue);
            return Gate::Open;
        }
        let mut open = self.open(key.as_ref());
        if let Err(error) = open.take_in_value(queue) {
            open.manager.waits.end_waiters(queue, WaitOutcome::Impossible(error));
            return Gate::Open;
        }
        let next = open.serve_waiters(queue);
        drop(open);
        self.serve_on(queue, next);
        Gate::Open
    }

    /// Continues where [`OpenKey::serve_waiters`] had to close the key.
    pub(super) fn serve_on(&mut self, queue: QueueId, mut next: Next) {
        let Next::Head(_) = next else { return };
        let Some(key) = self.manager.queues().get(queue).map(|queue| queue.key.clone()) else { return };
        while let Next::Head(id) = next {
            match self.try_grant_several(queue, id) {
                Attempt::Granted | Attempt::Stuck => break,
                Attempt::Dismissed if self.host.now.spends_turn() => {
                    self.manager.waits.go_on_later(queue);
                    break;
                }
                Attempt::Dismissed => {}
            }
            next = self.reopen(key.as_ref()).serve_waiters(queue);
        }
        // As `serve_waiters` does where it does not return the head. After a grant no lock is vacant.
        if let Next::Head(_) = next {
            let mut open = self.reopen(key.as_ref());
            open.remove_if_vacant();
            open.note_lock(None);
        }
    }

    /// The requests of an owner that may be granted because it holds a key. For a semaphore: requests for no more than
    /// it holds, and requests for a slot beside permits or permits beside a slot, which are refused. All others are
    /// served in the order of the queue.
    pub(super) fn requests_to_try(&mut self, queue: QueueId, owner: OwnerId) -> Vec<RequestId> {
        let queues = self.manager.queues();
        let waiting = queues.get(queue).zip(queues.of_owner(Some(owner)).name());
        let Some((key, name)) = waiting.map(|(queue, name)| (queue.key.clone(), name.clone())) else {
            return Vec::new();
        };
        let mut open = self.open(key.as_ref());
        // The owner may have become the writer.
        open.end_upgrades();
        let under = open.entry.lock_and_until();
        let held = under.and_then(|(lock, until)| Some(lock.hold(name.as_bytes(), until)?.share())).unwrap_or_default();
        let is_wanted = |claim: &Claim| match claim.family() {
            Family::Semaphore => held.covers(claim),
            Family::Mutex | Family::Reentrant | Family::ReadWrite => true,
        };
        open.manager.queues().of_owner(Some(owner)).requests_in(queue, is_wanted)
    }

    /// Serves a request in any position of its queue: behind others it is granted only what its owner holds already.
    pub(super) fn serve_request(&mut self, queue: QueueId, id: RequestId) {
        let waits = &self.manager.waits;
        let (Some(request), Some(waiting)) = (waits.queues.request(id), waits.queues.get(queue)) else { return };
        let key = waiting.key.clone();
        if request.has_several_keys() {
            self.manager.waits.queues.set_blocked_on(id, None);
            self.try_grant_several(queue, id);
            self.reopen(key.as_ref()).note_lock(None);
            return;
        }
        let is_first = waiting.is_first(&request.place);
        let is_over = waits.is_over(id, request, self.host.now);
        let mut open = self.open(key.as_ref());
        if !is_over {
            open.try_grant(queue, id, if is_first { Precedence::First } else { Precedence::Behind });
        }
        open.note_lock(None);
    }
}

impl<E: Entry, C: Clients> OpenKey<'_, E, C> {
    /// Takes in a value that came to the key since it was last inspected, once for the whole queue: the requests of a
    /// holder that waits here are tried again, and a semaphore that another command put here brings its LIMIT.
    ///
    /// # Errors
    /// The value can never be granted to any request in the queue.
    fn take_in_value(&mut self, queue: QueueId) -> Result<(), KeyError> {
        let waits = &mut self.manager.waits;
        let Some(waiting) = waits.queues.get(queue) else { return Ok(()) };
        let lock = match self.entry.content() {
            Content::Free => return Ok(()),
            Content::Foreign => return Err(KeyError::WrongType),
            Content::Lock(lock) => lock,
        };
        match lock.family() {
            None => return Ok(()),
            Some(family) if family != waiting.family => return Err(InvalidClaim::WrongFamily(family).into()),
            Some(_) if lock.fence() == waiting.seen && !waits.queues.may_be_a_copy(queue) => return Ok(()),
            Some(_) => {}
        }
        let gained: Vec<Owner> = match lock.exclusive_owner() {
            Some(holder) => vec![holder.clone()],
            None => {
                let waiters = waiting.present().filter_map(|(_, id)| waits.queues.request(id));
                waiters.map(|it| it.owner.clone()).filter(|owner| lock.is_held_by(owner.as_bytes())).collect()
            }
        };
        let limit = lock.semaphore_limit();
        waits.queues.set_seen(queue, lock.fence());
        gained.iter().for_each(|owner| waits.gained(queue, owner.as_bytes()));
        if limit.is_some_and(|limit| waits.queues.set_limit(queue, limit)) {
            let never_fit = self.over_limit(queue);
            self.manager.waits.backlog.endings.extend(never_fit, Ending::Told(OVER_LIMIT));
        }
        Ok(())
    }

    /// Grants the key to requests for it alone, up to the first that has to wait or wants other keys too, or as far as
    /// the turn goes. A lock that is vacant afterwards is removed, or left to [`Turn::serve_on`].
    pub(super) fn serve_waiters(&mut self, queue: QueueId) -> Next {
        self.end_upgrades();
        // An earlier turn left the rest of the queue to the timer: a command in between serves one waiter.
        let goes_on_later = self.manager.waits.backlog.queues.contains(queue);
        let mut is_noted = false;
        while let Some((_, id)) = self.manager.queues().get(queue).and_then(WaitQueue::head) {
            let is_over = end_if_over(self.manager, self.clients, self.now, id);
            let Some(head) = self.manager.queues().request(id).filter(|_| !is_over) else {
                if self.now.spends_turn() {
                    self.manager.waits.go_on_later(queue);
                    break;
                }
                continue;
            };
            if self.manager.waits.backlog.has_gained(queue) {
                self.manager.waits.go_on_later(queue);
                break;
            }
            if head.has_several_keys() {
                return Next::Head(id);
            }
            let attempt = self.try_grant(queue, id, Precedence::First);
            is_noted = attempt == Attempt::Granted;
            match attempt {
                // A mutex has one holder: no other request fits.
                Attempt::Granted if self.has_one_holder(queue) => break,
                Attempt::Granted | Attempt::Dismissed => {}
                Attempt::Stuck => break,
            }
            if self.now.spends_turn() || goes_on_later {
                self.manager.waits.go_on_later(queue);
                break;
            }
        }
        if !is_noted {
            self.remove_if_vacant();
            self.note_lock(None);
        }
        Next::Done
    }

    fn has_one_holder(&self, queue: QueueId) -> bool {
        self.manager.queues().get(queue).is_some_and(|queue| matches!(queue.family, Family::Mutex | Family::Reentrant))
    }
}

#[cfg(test)]
mod tests;
