//! Hand-offs: a key that has become free, or admits more holders, is granted to the next waiters.
//!
//! Single-key requests are decided while the key is open. A multi-key request opens its keys one after another, so this
//! key is closed first.
//!
//! The time slice may end after each waiter. Then the queue stays due, and the next event-loop iteration continues. No
//! new request is granted the key in the meantime, because the queued requests go first.

use std::collections::BTreeSet;

use super::grant::Attempt;
use super::leave::end_request;
use super::open_key::OpenKey;
use super::pending_removals::{PendingRemoval, Phase};
use super::step::Engine;
use super::verdict::OVER_LIMIT;
use crate::host::{Clients, Content, Entry, Keys, WaitOutcome, WriteCheck};
use crate::key::{KeyRef, RequestId};
use crate::queue::request::{OwnerId, QueueId, QueuedRequest};
use crate::queue::wait_queue::{Precedence, WaitQueue};
use crate::value::claim::{InvalidClaim, LockType};
use crate::value::outcome::KeyError;

/// Why serving a queue has stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// The remaining requests wait for a holder or for a later iteration, or none is left.
    Finished,
    /// The next request is this one for multiple keys, which must be opened one after another.
    MultiKey(RequestId, Precedence),
}

impl<K: Keys, C: Clients> Engine<'_, '_, K, C> {
    /// Runs the write check if requests wait for the key. Returns its wait queue and the result.
    pub(super) fn write_check_of_waited_for(
        &mut self,
        key: KeyRef<'_>,
        queue: Option<QueueId>,
    ) -> Option<(QueueId, WriteCheck)> {
        let queue = queue?;
        let is_waited_for = self.manager.queues().get(queue)?.waiters() > 0;
        is_waited_for.then(|| (queue, self.host.keys.write_check(key)))
    }

    /// Grants the key of a queue to the waiters that it admits, in order, until the time slice is spent. Returns the
    /// result of the write check.
    pub(super) fn serve(&mut self, queue: QueueId) -> WriteCheck {
        let waits = &mut self.manager.waits;
        let Some(waiting) = waits.queues.get(queue) else { return WriteCheck::Allowed };
        let (key, is_waited_for) = (waiting.key.clone(), waiting.waiters() > 0);
        let write_check = self.host.keys.write_check(key.as_ref());
        if !is_waited_for && write_check != WriteCheck::SlotMoved {
            waits.queues.end_all_reentering(queue);
            return WriteCheck::Allowed;
        }
        // After the slot has moved, reserved positions are useless as well.
        if write_check != WriteCheck::Allowed {
            waits.postpone(queue, write_check);
            return write_check;
        }
        let mut open = self.open(key.as_ref());
        match open.apply_unseen_value(queue) {
            Err(error) => open.manager.waits.end_waiters(queue, WaitOutcome::Impossible(error)),
            Ok(()) => {
                let stop = open.serve(queue);
                self.serve_multi_key(queue, stop);
            }
        }
        WriteCheck::Allowed
    }

    /// Continues after [`OpenKey::serve`] has stopped at a multi-key request, until the queue is finished. If the lock
    /// is still vacant then, it is removed in this step.
    pub(super) fn serve_multi_key(&mut self, queue: QueueId, mut stop: Stop) {
        let Stop::MultiKey(..) = stop else { return };
        let Some(key) = self.manager.queues().get(queue).map(|queue| queue.key.clone()) else { return };
        while let Stop::MultiKey(id, precedence) = stop {
            let attempt = self.try_grant_multi_key(queue, id);
            let open = self.reopen(key.as_ref());
            // In a cluster, a command may write its own key while writes are refused for the other keys.
            if attempt == Attempt::Postponed {
                if precedence == Precedence::Behind {
                    open.manager.waits.queues.put_back_reentering(queue, id);
                }
                return open.close();
            }
            // The head has been granted the key, or waits for another one.
            if precedence == Precedence::First && attempt != Attempt::Dismissed && !open.has_reentering(queue) {
                return open.close();
            }
            if open.now.charge_budget() {
                open.manager.waits.keep_due(queue);
                return open.close();
            }
            stop = open.serve(queue);
        }
    }
}

impl<E: Entry, C> OpenKey<'_, E, C> {
    fn has_reentering(&self, queue: QueueId) -> bool {
        self.manager.queues().get(queue).is_some_and(WaitQueue::has_reentering)
    }

    /// Closes the key after its queue was served: removes a vacant lock, and records a held one for the waiters.
    fn close(mut self) {
        self.remove_if_vacant();
        self.record_lock(None);
    }
}

impl<E: Entry, C: Clients> OpenKey<'_, E, C> {
    /// Applies a value that another command has stored since the key was last inspected, once for the whole queue:
    /// lists the requests of holders that also wait here, and applies the LIMIT of a semaphore.
    ///
    /// # Errors
    /// The key holds a value or a lock of another type, so no request in the queue can be granted.
    fn apply_unseen_value(&mut self, queue: QueueId) -> Result<(), KeyError> {
        debug_assert_eq!(self.queue, Some(queue), "the queue is that of the open key");
        let waits = &mut self.manager.waits;
        let Some(waiting) = waits.queues.get(queue) else { return Ok(()) };
        let lock = match self.entry.content() {
            Content::Free => return Ok(()),
            Content::Foreign => return Err(KeyError::WrongType),
            Content::Lock(lock) => lock,
        };
        match lock.lock_type() {
            None => return Ok(()),
            Some(lock_type) if lock_type != waiting.lock_type => {
                return Err(InvalidClaim::WrongLockType(lock_type).into())
            }
            Some(_) if lock.fence() == waiting.seen && !waits.queues.may_be_a_copy(queue) => return Ok(()),
            Some(_) => {}
        }
        let waiting_holders: BTreeSet<OwnerId> = match lock.exclusive_owner() {
            Some(holder) => waits.queues.owner_id(waiting.key.db, holder.as_bytes()).into_iter().collect(),
            None => {
                let waiters = waiting.present().filter_map(|(_, id)| waits.queues.request(id));
                waiters.filter(|it| lock.is_held_by(it.owner.as_bytes())).map(|it| it.owner_id).collect()
            }
        };
        let (fence, limit) = (lock.fence(), lock.semaphore_limit());
        self.record_seen(fence);
        let is_new_limit = limit.is_some_and(|limit| self.manager.waits.queues.set_limit(queue, limit));
        for owner in waiting_holders {
            self.list_reentering(queue, owner);
        }
        if is_new_limit {
            let never_fit = self.over_limit(queue);
            self.manager.waits.backlog.pending_removals.extend(never_fit, PendingRemoval::Reply(OVER_LIMIT));
        }
        Ok(())
    }

    /// Grants the key to the reentering requests, then to the others in queue order, and ends requests that no longer
    /// wait. Stops at a head that has to wait, at a multi-key request, or when the time slice is spent. Except at a
    /// multi-key request, it closes the key.
    pub(super) fn serve(mut self, queue: QueueId) -> Stop {
        debug_assert!(self.queue.is_none_or(|own| own == queue), "the queue is that of the open key");
        self.end_upgrades();
        // An earlier iteration left the rest of the queue to the timer, so a command serves only one waiter.
        let was_due = self.manager.waits.backlog.queues.contains(queue);
        let mut is_recorded = false;
        while let Some((id, precedence)) = self.manager.waits.queues.next_to_serve(queue) {
            let phase = self.manager.waits.phase(id, self.now);
            let is_waiting = phase == Phase::Waiting;
            if !is_waiting {
                // If it stayed at the head, it would block the requests behind it.
                end_request(self.manager, self.clients, self.now, id, phase);
            } else if self.manager.queues().request(id).is_some_and(QueuedRequest::has_multiple_keys) {
                return Stop::MultiKey(id, precedence);
            } else {
                let is_finished = match self.try_grant(queue, id, precedence) {
                    // A mutex has one holder, so only reentering requests fit.
                    Attempt::Granted => {
                        is_recorded = true;
                        self.has_one_holder(queue)
                    }
                    // This request was listed as reentering but no longer does. It waits at its position.
                    Attempt::Stuck | Attempt::Postponed => precedence == Precedence::First,
                    Attempt::Dismissed => false,
                };
                if is_finished && !self.has_reentering(queue) {
                    break;
                }
            }
            if self.now.charge_budget() || is_waiting && was_due {
                self.manager.waits.keep_due(queue);
                break;
            }
        }
        debug_assert!(
            !self.has_reentering(queue)
                || self.manager.waits.backlog.queues.contains(queue)
                || self.manager.queues().waiters_of(self.key) == 0,
            "a queue with reentering requests is due"
        );
        // A grant has recorded the lock, and leaves no lock vacant.
        debug_assert!(!is_recorded || !self.is_vacant(), "a lock that was granted is held");
        if !is_recorded {
            self.close();
        }
        Stop::Finished
    }

    fn has_one_holder(&self, queue: QueueId) -> bool {
        let is_exclusive = |lock_type| matches!(lock_type, LockType::Mutex | LockType::Reentrant);
        self.manager.queues().get(queue).is_some_and(|queue| is_exclusive(queue.lock_type))
    }
}

#[cfg(test)]
mod tests;
