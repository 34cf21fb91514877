//! How a hold ends: the one road of release, LOCK.BREAK, taken-back grant and ended connection. What ends by itself is
//! taken out by `expiry`, with the same steps.
//!
//! | how it ends                          | what remains                | what replicas are told               |
//! | ------------------------------------ | --------------------------- | ------------------------------------ |
//! | fewer holds or permits               | the hold                    | the smaller hold                     |
//! | one of several holders goes          | the lock                    | the drop                             |
//! | the last holder goes, somebody waits | the same value, handed over | a shared lock's drop, the next grant |
//! | the last holder goes, nobody waits   | nothing                     | DEL                                  |
//! | several go at once, somebody waits   | the key, handed over        | DEL, the next grant                  |

use super::lock_manager::LockManager;
use super::occurrence::EndedBy;
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
    /// Its owner gives it back.
    Released { owner: &'a [u8], portion: &'a Portion, work: Work },
    /// The connection that it was bound to has ended.
    Disconnected { owner: &'a [u8] },
    /// Its client has gone before it was told of the grant.
    Undelivered { owner: &'a [u8], claim: &'a Claim, grant: &'a Grant },
    /// LOCK.BREAK takes it away, with all that its owner has of the lock.
    Broken(Whose<'a>),
}

/// Whether the owner has done what it took the lock for: of a mutex the requests with COALESCE are answered by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It has.
    Done,
    /// It has not: LOCK.RELEASE … FAILED.
    Failed,
}

/// Whose holds LOCK.BREAK ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose<'a> {
    /// Those of this owner.
    Owner(&'a [u8]),
    /// Everybody's.
    Everybody,
}

impl<'a> End<'a> {
    fn by(&self) -> EndedBy {
        match self {
            End::Released { .. } => EndedBy::Released,
            End::Disconnected { .. } => EndedBy::Disconnected,
            End::Undelivered { .. } => EndedBy::Undelivered,
            End::Broken(_) => EndedBy::Broken,
        }
    }

    fn whose(&self) -> Whose<'a> {
        match self {
            End::Released { owner, .. } | End::Disconnected { owner } | End::Undelivered { owner, .. } => {
                Whose::Owner(owner)
            }
            End::Broken(whose) => *whose,
        }
    }

    fn apply(&self, lock: &mut Lock) -> Result<Released, InvalidClaim> {
        match self {
            End::Released { owner, portion, .. } => lock.release(owner, portion),
            End::Disconnected { owner } => Ok(lock.evict(owner)),
            End::Undelivered { owner, claim, grant } => lock.take_back(owner, claim, grant),
            End::Broken(Whose::Owner(owner)) => Ok(lock.evict(owner)),
            End::Broken(Whose::Everybody) => Ok(lock.evict_all()),
        }
    }
}

impl LockManager {
    /// Gives back what `portion` names.
    pub fn release<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        key: KeyRef<'_>,
        owner: &[u8],
        portion: &Portion,
    ) -> Result<Released, KeyError> {
        self.end_hold(host, key, End::Released { owner, portion, work: Work::Done })
    }

    /// Gives a mutex back of which the work was not done: the waiters stay, with COALESCE or not.
    pub fn release_failed<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        key: KeyRef<'_>,
        owner: &[u8],
    ) -> Result<Released, KeyError> {
        self.end_hold(host, key, End::Released { owner, portion: &Portion::Mutex, work: Work::Failed })
    }

    /// Gives several mutexes back, as far as the owner holds them; how many it held.
    pub fn release_several<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        db: i32,
        names: &[&[u8]],
        owner: &[u8],
    ) -> Result<usize, KeyError> {
        // None is released where one of several is no mutex.
        if names.len() > 1 {
            self.check_family(host, db, names, Family::Mutex)?;
        }
        let mut count = 0;
        for name in names {
            let released = self.release(host, KeyRef { db, name }, owner, &Portion::Mutex)?;
            count += usize::from(released == Released::Gone);
        }
        Ok(count)
    }

    /// Takes a lock from its holders, or from one of them, whatever its family. How many owners lost all their holds.
    pub fn break_holds<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        key: KeyRef<'_>,
        whose: Whose<'_>,
    ) -> Result<usize, KeyError> {
        let holders = match whose {
            Whose::Owner(_) => 1,
            Whose::Everybody => {
                let mut entry = host.keys.open(key);
                self.settle(host.now, key, &mut entry);
                match entry.content() {
                    Content::Lock(lock) => lock.holders(),
                    Content::Free | Content::Foreign => 0,
                }
            }
        };
        match self.end_hold(host, key, End::Broken(whose))? {
            Released::Gone => Ok(holders),
            Released::NotHeld | Released::Same(_) | Released::Fewer(_) => Ok(0),
        }
    }

    /// Refuses keys that hold something else than a lock of this family, before anything is changed.
    fn check_family<K: Keys, C>(
        &mut self,
        host: &mut Host<'_, K, C>,
        db: i32,
        names: &[&[u8]],
        family: Family,
    ) -> Result<(), KeyError> {
        names.iter().try_for_each(|name| {
            let key = KeyRef { db, name };
            let mut entry = host.keys.open(key);
            self.settle(host.now, key, &mut entry);
            match entry.content() {
                Content::Foreign => Err(KeyError::WrongType),
                Content::Free => Ok(self.check_family_of_queue(key, family)?),
                Content::Lock(lock) => match lock.family() {
                    Some(other) if other != family => Err(InvalidClaim::WrongFamily(other).into()),
                    _ => Ok(()),
                },
            }
        })
    }

    /// The one road of every end: takes the hold out, tells replicas, and hands the key over to those who wait for it.
    pub(super) fn end_hold<K: Keys, C: Clients>(
        &mut self,
        host: &mut Host<'_, K, C>,
        key: KeyRef<'_>,
        end: End<'_>,
    ) -> Result<Released, KeyError> {
        // Asked before the key is open: the server answers by running a command.
        let waited_for = self.queue_and_gate(host, key);
        let is_handed_over = matches!(waited_for, Some((_, Gate::Open)));
        let mut entry = host.keys.open(key);
        self.settle(host.now, key, &mut entry);
        let is_shared = matches!(entry.content(), Content::Lock(lock) if lock.is_shared());
        let (mut fence, mut everybody) = (None, Vec::new());
        let released = match entry.content() {
            Content::Lock(lock) => {
                match end.whose() {
                    Whose::Owner(owner) => fence = lock.fence_of(owner),
                    Whose::Everybody => everybody = owners_and_fences(lock),
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
        match (released, end.whose()) {
            (Released::NotHeld | Released::Same(_), _) => return Ok(released),
            (Released::Fewer(_), Whose::Owner(owner)) => {
                update(&mut entry, Effect::Hold(owner));
                self.note_fewer(key, owner, end.by());
            }
            (Released::Fewer(_), Whose::Everybody) => {}
            (Released::Gone, whose) => {
                if let (Whose::Owner(owner), Some(fence)) = (whose, fence) {
                    self.note_end(host.now, key, owner, fence, end.by());
                }
                if let (Whose::Owner(owner), Some((queue, _))) = (whose, waited_for) {
                    self.lost(queue, key, owner);
                }
                for (owner, fence) in everybody {
                    self.note_end(host.now, key, owner.as_bytes(), fence, end.by());
                }
                if let (End::Released { portion: Portion::Mutex, work: Work::Done, .. }, Some(fence)) = (end, fence) {
                    // Before the queue is served: what the release answers is granted nothing.
                    let queue = waited_for.map(|(queue, _)| queue).or_else(|| self.queues.id_of(key));
                    queue.into_iter().for_each(|queue| self.queues.end_coalescing(queue, fence));
                }
                if !self.bindings.is_empty() {
                    self.unbind_ended(key, whose);
                }
                if !self.shared_leases.is_empty() && is_vacant(&mut entry) {
                    self.shared_leases.forget(key);
                }
                // In a mutex the next hold replaces this one, in one effect; the last holder's end is the key's.
                match whose {
                    Whose::Owner(owner) if is_shared && (is_handed_over || !is_vacant(&mut entry)) => {
                        update(&mut entry, Effect::Drop(owner));
                    }
                    // One effect for all, however many they were.
                    Whose::Everybody if is_shared => entry.remove(),
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
        // The first of them now, the others in the next turns.
        while self.end_next_done(&mut host.clients) && !host.now.is_turn_over() {}
        Ok(released)
    }

    fn unbind_ended(&mut self, key: KeyRef<'_>, whose: Whose<'_>) {
        match (whose, self.fences.last()) {
            (Whose::Owner(owner), _) => self.unbind(key, owner),
            (Whose::Everybody, Some(last)) => self.bindings.unbind_key(key, last),
            (Whose::Everybody, None) => {}
        }
    }
}

/// All who hold the lock, with the fences of their grants.
fn owners_and_fences(lock: &Lock) -> Vec<(Owner, Fence)> {
    lock.stored_holds().iter().map(|hold| (hold.owner.clone(), hold.fence)).collect()
}

/// Tells of a change, with the key's new deadline: that of the last of several holders.
pub(super) fn update<E: Entry>(entry: &mut E, effect: Effect<'_>) {
    let Content::Lock(lock) = entry.content() else { return };
    let last = lock.last_deadline();
    entry.update(effect, last);
}

pub(super) fn is_vacant<E: Entry>(entry: &mut E) -> bool {
    matches!(entry.content(), Content::Lock(lock) if lock.is_vacant())
}

/// A lock exists only while somebody holds it.
pub(super) fn remove_if_vacant<E: Entry>(entry: &mut E) {
    if is_vacant(entry) {
        entry.remove();
    }
}

#[cfg(test)]
mod tests;
