//! How a hold ends: one path for release, LOCK.BREAK, a revoked grant and an ended connection. If a command opens a key
//! with holds that have already ended, `expiry` removes them, and the drain serves the waiters.
//!
//! | how it ends                             | what remains                 | what replicas get                    |
//! | --------------------------------------- | ---------------------------- | ------------------------------------ |
//! | fewer holds or permits                  | the hold                     | the smaller hold                     |
//! | one of several holders leaves           | the lock                     | the drop                             |
//! | the last one leaves, a waiter is served | the same value, handed off   | a shared lock's drop, the next grant |
//! | the last one leaves, none is served     | nothing                      | DEL                                  |
//! | all are broken at once, a request waits | a new value, for the waiter  | DEL, the next grant                  |

use super::leave::end_request;
use super::lock_manager::LockManager;
use super::observer::EndedBy;
use super::open_key::OpenKey;
use super::step::Engine;
use crate::host::{Clients, Content, Effect, Entry, Keys, WriteCheck};
use crate::key::KeyRef;
use crate::queue::request::QueueId;
use crate::value::claim::{Claim, InvalidClaim, LockType, ReleaseAmount};
use crate::value::fence::Fence;
use crate::value::lock::Lock;
use crate::value::outcome::{Grant, KeyError, Released};
use crate::value::owner::Owner;

/// How a hold ends or becomes smaller.
#[derive(Clone, Copy, Debug)]
pub(super) enum End<'a> {
    /// Its owner releases it.
    Released { owner: &'a [u8], amount: &'a ReleaseAmount, work: WorkOutcome },
    /// The connection that it was bound to has ended. `by` distinguishes an undelivered grant from others.
    Disconnected { owner: &'a [u8], by: EndedBy },
    /// Its client disconnected before the grant was delivered.
    Undelivered { owner: &'a [u8], claim: &'a Claim, grant: &'a Grant },
    /// LOCK.BREAK ends it, with all other holds of its owner in this lock.
    Broken(HoldsOf<'a>),
}

/// Whether the owner has done the work for which it acquired the lock. If so, its release of a mutex completes the
/// COALESCE requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// The work is done.
    Done,
    /// The work is not done: LOCK.RELEASE … FAILED.
    Failed,
}

/// The owners that LOCK.BREAK removes from the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldsOf<'a> {
    /// This owner.
    Owner(&'a [u8]),
    /// All holders.
    AllOwners,
}

impl<'a> End<'a> {
    fn by(&self) -> EndedBy {
        match self {
            End::Released { .. } => EndedBy::Released,
            End::Disconnected { by, .. } => *by,
            End::Undelivered { .. } => EndedBy::Undelivered,
            End::Broken(_) => EndedBy::Broken,
        }
    }

    fn holds_of(&self) -> HoldsOf<'a> {
        match self {
            End::Released { owner, .. } | End::Disconnected { owner, .. } | End::Undelivered { owner, .. } => {
                HoldsOf::Owner(owner)
            }
            End::Broken(holds_of) => *holds_of,
        }
    }

    fn apply(&self, lock: &mut Lock) -> Result<Released, InvalidClaim> {
        match self {
            End::Released { owner, amount, .. } => lock.release(owner, amount),
            End::Disconnected { owner, .. } => Ok(lock.remove_holder(owner)),
            End::Undelivered { owner, claim, grant } => lock.revoke(owner, claim, grant),
            End::Broken(HoldsOf::Owner(owner)) => Ok(lock.remove_holder(owner)),
            End::Broken(HoldsOf::AllOwners) => Ok(lock.evict_all()),
        }
    }
}

impl<K: Keys, C: Clients> Engine<'_, '_, K, C> {
    /// Releases what `amount` names. If the work of a mutex is not done, all of its waiters stay, with or without
    /// COALESCE.
    pub fn release(
        &mut self,
        key: KeyRef<'_>,
        owner: &[u8],
        amount: &ReleaseAmount,
        work: WorkOutcome,
    ) -> Result<Released, KeyError> {
        self.end_hold(key, End::Released { owner, amount, work })
    }

    /// Releases the mutexes that the owner holds. Returns how many it held.
    pub fn release_multiple(&mut self, db: i32, names: &[&[u8]], owner: &[u8]) -> Result<usize, KeyError> {
        // Nothing is released if one of multiple keys is not a mutex.
        if names.len() > 1 {
            let mut names = names.iter();
            names.try_for_each(|name| self.open(KeyRef { db, name }).lock_of_type(LockType::Mutex).map(|_| ()))?;
        }
        let mut count = 0;
        for name in names {
            let released = self.release(KeyRef { db, name }, owner, &ReleaseAmount::Mutex, WorkOutcome::Done)?;
            count += usize::from(released == Released::Gone);
        }
        Ok(count)
    }

    /// Removes all holders, or one, from a lock of any type. Returns how many owners lost their holds.
    pub fn break_holds(&mut self, key: KeyRef<'_>, holds_of: HoldsOf<'_>) -> Result<usize, KeyError> {
        let holders = match holds_of {
            HoldsOf::Owner(_) => 1,
            HoldsOf::AllOwners => self.open(key).entry.content().lock().map_or(0, |lock| lock.holders()),
        };
        match self.end_hold(key, End::Broken(holds_of))? {
            Released::Gone => Ok(holders),
            Released::NotHeld | Released::Same(_) | Released::Fewer(_) => Ok(0),
        }
    }

    /// The path of each [`End`]: removes the hold, replicates that, and hands the key off to its waiters. Opening the
    /// key removes holds that had already ended. A mutex without waiters is released on the fast path instead.
    pub(super) fn end_hold(&mut self, key: KeyRef<'_>, end: End<'_>) -> Result<Released, KeyError> {
        // Before the key is opened, because the write check may run a command of the server.
        let queue = self.manager.queues().id_of(key);
        let waited_for = self.write_check_of_waited_for(key, queue);
        let is_handed_off = matches!(waited_for, Some((_, WriteCheck::Allowed)));
        let mut open = self.open_of_queue(key, queue);
        open.remove_ended_holds();
        let is_shared = matches!(open.entry.content(), Content::Lock(lock) if lock.is_shared());
        let (released, removed) = open.remove_hold(&end)?;
        match (released, end.holds_of()) {
            (Released::NotHeld | Released::Same(_), _) => return Ok(released),
            (Released::Fewer(_), HoldsOf::Owner(owner)) => {
                open.update(Effect::Hold(owner));
                open.manager.observer.partially_released(key, owner, end.by());
            }
            (Released::Fewer(_), HoldsOf::AllOwners) => {}
            (Released::Gone, holds_of) => {
                open.record_removed(&end, removed, waited_for.map(|(queue, _)| queue));
                // Not sent for a mutex, because the effect of the next hold replaces this one, nor for the last holder,
                // because the key is deleted.
                match holds_of {
                    HoldsOf::Owner(owner) if is_shared && (is_handed_off || !open.is_vacant()) => {
                        open.update(Effect::Drop(owner));
                    }
                    // One effect for all holders, however many they are.
                    HoldsOf::AllOwners if is_shared => open.remove(),
                    _ => {}
                }
            }
        }
        match waited_for {
            Some((queue, WriteCheck::Allowed)) => {
                let stop = open.serve(queue);
                self.serve_multi_key(queue, stop);
            }
            _ => {
                open.remove_if_vacant();
                drop(open);
                if let Some((queue, write_check)) = waited_for {
                    self.manager.waits.postpone(queue, write_check);
                }
            }
        }
        // Reply to completed requests until the time slice is spent; the next iterations reply to the others.
        while let Some(id) = self.manager.waits.queues.next_done() {
            let phase = self.manager.waits.phase(id, self.host.now);
            end_request(self.manager, &mut self.host.clients, self.host.now, id, phase);
            if self.host.now.charge_budget() {
                break;
            }
        }
        Ok(released)
    }
}

impl<E: Entry, C> OpenKey<'_, E, C> {
    /// Removes the hold from the lock. Also returns the fencing tokens of the removed holds.
    fn remove_hold(&mut self, end: &End<'_>) -> Result<(Released, RemovedHolds), KeyError> {
        match self.entry.content() {
            Content::Lock(lock) => {
                let removed = match end.holds_of() {
                    HoldsOf::Owner(owner) => RemovedHolds::One(lock.fence_of(owner)),
                    HoldsOf::AllOwners => RemovedHolds::All(owners_and_fences(lock)),
                };
                let before = lock.held_lock_type();
                let released = end.apply(lock)?;
                debug_assert!(
                    released != Released::Gone
                        || match end.holds_of() {
                            HoldsOf::Owner(owner) => !lock.is_held_by(owner),
                            HoldsOf::AllOwners => lock.is_vacant(),
                        },
                    "nothing is left of a hold that is gone"
                );
                self.manager.observer.statistics.count_stored(before, lock.held_lock_type());
                Ok((released, removed))
            }
            Content::Foreign => Err(KeyError::WrongType),
            Content::Free => {
                if let End::Released { amount, .. } = end {
                    self.manager.waits.queues.check_lock_type(self.key, amount.lock_type())?;
                }
                Ok((Released::NotHeld, RemovedHolds::One(None)))
            }
        }
    }

    /// Holds have ended: records and unbinds them, and completes the COALESCE requests if the work was done.
    fn record_removed(&mut self, end: &End<'_>, removed: RemovedHolds, queue: Option<QueueId>) {
        match (end.holds_of(), removed) {
            (HoldsOf::Owner(owner), RemovedHolds::One(Some(fence))) => {
                self.count_and_record_end(owner, fence, end.by());
                if let Some(queue) = queue {
                    self.manager.waits.lost_key(queue, self.key.db, owner);
                }
                if let End::Released { amount: ReleaseAmount::Mutex, work: WorkOutcome::Done, .. } = end {
                    // Before the queue is served, because a request that the release completes must not be granted the
                    // lock.
                    if let Some(queue) = self.queue {
                        self.manager.waits.queues.complete_coalescing(queue, fence);
                    }
                }
                self.manager.bindings.unbind(self.key, owner);
            }
            (HoldsOf::AllOwners, RemovedHolds::All(all)) => {
                for (owner, fence) in &all {
                    self.count_and_record_end(owner.as_bytes(), *fence, end.by());
                }
                let LockManager { bindings, fences, .. } = &mut *self.manager;
                if let Some(last) = fences.last() {
                    bindings.unbind_key(self.key, last);
                }
            }
            _ => {}
        }
    }
}

/// The fencing token of one owner's grant, or all owners with the fencing tokens of their grants.
enum RemovedHolds {
    One(Option<Fence>),
    All(Vec<(Owner, Fence)>),
}

/// All holders of the lock, with the fencing tokens of their grants.
fn owners_and_fences(lock: &Lock) -> Vec<(Owner, Fence)> {
    lock.stored_holds().iter().map(|hold| (hold.owner.clone(), hold.fence)).collect()
}

#[cfg(test)]
mod tests;
