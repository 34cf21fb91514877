//! How a hold ends: one path for release, LOCK.BREAK, taken-back grant and ended connection. What has ended already
//! when a command opens the key is taken out by `expiry`, and the drain hands over.
//!
//! | how it ends                            | what remains                | what replicas get                    |
//! | -------------------------------------- | --------------------------- | ------------------------------------ |
//! | fewer holds or permits                 | the hold                    | the smaller hold                     |
//! | one of several holders goes            | the lock                    | the drop                             |
//! | the last holder goes, a waiter is next | the same value, handed over | a shared lock's drop, the next grant |
//! | the last holder goes, none is served   | nothing                     | DEL                                  |
//! | several go at once, a request waits    | a new value, for the waiter | DEL, the next grant                  |

use super::lock_manager::LockManager;
use super::observer::EndedBy;
use crate::host::{Clients, Content, Effect, Entry, Gate, Host, Keys};
use crate::key::KeyRef;
use crate::value::claim::{Claim, Family, InvalidClaim, Portion};
use crate::value::fence::Fence;
use crate::value::lock::Lock;
use crate::value::outcome::{Grant, KeyError, Released};
use crate::value::owner::Owner;

/// How a hold comes to its end, or becomes smaller.
#[derive(Clone, Copy, Debug)]
pub(super) enum End<'a> {
    /// Its owner releases it.
    Released { owner: &'a [u8], portion: &'a Portion, work: Work },
    /// The connection that it was bound to has ended; `by` tells a lost grant from others.
    Disconnected { owner: &'a [u8], by: EndedBy },
    /// Its client disconnected before the grant counted as received.
    Undelivered { owner: &'a [u8], claim: &'a Claim, grant: &'a Grant },
    /// LOCK.BREAK ends it, with all other holds that its owner has of the lock.
    Broken(HoldsOf<'a>),
}

/// Whether the owner has done the work that it took the lock for: if so, its release of a mutex answers the requests
/// with COALESCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The work is done.
    Done,
    /// The work is not done: LOCK.RELEASE … FAILED.
    Failed,
}

/// The owners that LOCK.BREAK takes the lock from.
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
            End::Released { owner, portion, .. } => lock.release(owner, portion),
            End::Disconnected { owner, .. } => Ok(lock.evict(owner)),
            End::Undelivered { owner, claim, grant } => lock.take_back(owner, claim, grant),
            End::Broken(HoldsOf::Owner(owner)) => Ok(lock.evict(owner)),
            End::Broken(HoldsOf::AllOwners) => Ok(lock.evict_all()),
        }
    }
}

impl LockManager {
    /// Releases what `portion` names. If the work of a mutex is not done, all of its waiters stay, with or without
    /// COALESCE.
    pub fn release<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        key: KeyRef<'_>,
        owner: &[u8],
        portion: &Portion,
        work: Work,
    ) -> Result<Released, KeyError> {
        self.end_hold(host, key, End::Released { owner, portion, work })
    }

    /// Releases the mutexes that the owner holds. Returns how many it held.
    pub fn release_several<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        db: i32,
        names: &[&[u8]],
        owner: &[u8],
    ) -> Result<usize, KeyError> {
        // Nothing is released if one of several keys is no mutex.
        if names.len() > 1 {
            self.check_family(host, db, names, Family::Mutex)?;
        }
        let mut count = 0;
        for name in names {
            let released = self.release(host, KeyRef { db, name }, owner, &Portion::Mutex, Work::Done)?;
            count += usize::from(released == Released::Gone);
        }
        Ok(count)
    }

    /// Takes a lock of any family from all holders or from one. Returns how many owners lost all their holds.
    pub fn break_holds<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        key: KeyRef<'_>,
        holds_of: HoldsOf<'_>,
    ) -> Result<usize, KeyError> {
        let holders = match holds_of {
            HoldsOf::Owner(_) => 1,
            HoldsOf::AllOwners => {
                let mut entry = host.keys.open(key);
                self.settle(host.now, key, &mut entry);
                entry.content().lock().map_or(0, |lock| lock.holders())
            }
        };
        match self.end_hold(host, key, End::Broken(holds_of))? {
            Released::Gone => Ok(holders),
            Released::NotHeld | Released::Same(_) | Released::Fewer(_) => Ok(0),
        }
    }

    /// Refuses keys that hold anything but a lock of this family, before anything is changed.
    fn check_family<K: Keys, C>(
        &mut self,
        host: &mut Host<'_, K, C>,
        db: i32,
        names: &[&[u8]],
        family: Family,
    ) -> Result<(), KeyError> {
        names.iter().try_for_each(|name| {
            let key = KeyRef { db, name };
            self.lock_of_family(host.now, key, &mut host.keys.open(key), family).map(|_| ())
        })
    }

    /// The path of each [`End`]: takes the hold out, replicates that, and hands the key over to its waiters. What it
    /// finds ended is taken out by [`LockManager::settle`] before; a mutex without waiters is released on the fast
    /// path.
    pub(super) fn end_hold<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        key: KeyRef<'_>,
        end: End<'_>,
    ) -> Result<Released, KeyError> {
        // Asked before the key is open: to answer, the server may run a command.
        let waited_for = self.queue_and_gate(host, key);
        let is_handed_over = matches!(waited_for, Some((_, Gate::Open)));
        let mut entry = host.keys.open(key);
        self.settle(host.now, key, &mut entry);
        let is_shared = matches!(entry.content(), Content::Lock(lock) if lock.is_shared());
        let (mut fence, mut all_owners) = (None, Vec::new());
        let released = match entry.content() {
            Content::Lock(lock) => {
                match end.holds_of() {
                    HoldsOf::Owner(owner) => fence = lock.fence_of(owner),
                    HoldsOf::AllOwners => all_owners = owners_and_fences(lock),
                }
                let before = lock.held_family();
                let released = end.apply(lock)?;
                self.statistics.count_stored(before, lock.held_family());
                released
            }
            Content::Foreign => return Err(KeyError::WrongType),
            Content::Free => {
                if let End::Released { portion, .. } = end {
                    self.check_family_of_queue(key, portion.family())?;
                }
                Released::NotHeld
            }
        };
        match (released, end.holds_of()) {
            (Released::NotHeld | Released::Same(_), _) => return Ok(released),
            (Released::Fewer(_), HoldsOf::Owner(owner)) => {
                update(&mut entry, Effect::Hold(owner));
                self.count_and_record_fewer(key, owner, end.by());
            }
            (Released::Fewer(_), HoldsOf::AllOwners) => {}
            (Released::Gone, holds_of) => {
                if let (HoldsOf::Owner(owner), Some(fence)) = (holds_of, fence) {
                    self.count_and_record_end(host.now, key, owner, fence, end.by());
                }
                if let (HoldsOf::Owner(owner), Some((queue, _))) = (holds_of, waited_for) {
                    self.lost(queue, key, owner);
                }
                for (owner, fence) in all_owners {
                    self.count_and_record_end(host.now, key, owner.as_bytes(), fence, end.by());
                }
                if let (End::Released { portion: Portion::Mutex, work: Work::Done, .. }, Some(fence)) = (end, fence) {
                    // Before the queue is served: a request that the release answers must not be granted the lock.
                    let queue = waited_for.map(|(queue, _)| queue).or_else(|| self.queues.id_of(key));
                    queue.into_iter().for_each(|queue| self.queues.end_coalescing(queue, fence));
                }
                if !self.bindings.is_empty() {
                    self.unbind_ended(key, holds_of);
                }
                // In a mutex the next hold replaces this one, in one effect. The end of the last holder is the end of
                // the key.
                match holds_of {
                    HoldsOf::Owner(owner) if is_shared && (is_handed_over || !is_vacant(&mut entry)) => {
                        update(&mut entry, Effect::Drop(owner));
                    }
                    // One effect for all holders, however many there were.
                    HoldsOf::AllOwners if is_shared => entry.remove(),
                    _ => {}
                }
            }
        }
        match waited_for {
            Some((queue, Gate::Open)) => {
                let next = self.serve_open(&mut entry, &mut host.clients, host.now, key, queue);
                drop(entry);
                self.serve_on(host, queue, next);
            }
            Some((queue, gate)) => {
                remove_if_vacant(&mut entry);
                drop(entry);
                self.put_off(queue, gate);
            }
            None => {
                remove_if_vacant(&mut entry);
                drop(entry);
            }
        }
        // Reply to answered requests as far as the turn goes, to the others in the next turns.
        while self.end_next_done(&mut host.clients) && !host.now.spends_turn() {}
        Ok(released)
    }

    fn unbind_ended(&mut self, key: KeyRef<'_>, holds_of: HoldsOf<'_>) {
        match (holds_of, self.fences.last()) {
            (HoldsOf::Owner(owner), _) => self.bindings.unbind(key, owner),
            (HoldsOf::AllOwners, Some(last)) => self.bindings.unbind_key(key, last),
            (HoldsOf::AllOwners, None) => {}
        }
    }
}

/// All holders of the lock, with the fences of their grants.
fn owners_and_fences(lock: &Lock) -> Vec<(Owner, Fence)> {
    lock.stored_holds().iter().map(|hold| (hold.owner.clone(), hold.fence)).collect()
}

/// Replicates a change, with the key's new deadline: that of the last of several holders.
pub(super) fn update<E: Entry>(entry: &mut E, effect: Effect<'_>) {
    let Content::Lock(lock) = entry.content() else { return };
    let last = lock.last_deadline();
    entry.update(effect, last);
}

pub(super) fn is_vacant<E: Entry>(entry: &mut E) -> bool {
    matches!(entry.content(), Content::Lock(lock) if lock.is_vacant())
}

/// A lock exists only while an owner holds it.
pub(super) fn remove_if_vacant<E: Entry>(entry: &mut E) {
    if is_vacant(entry) {
        entry.remove();
    }
}

#[cfg(test)]
mod tests;
