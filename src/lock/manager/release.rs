//! How a hold ends: the one road of release, taken-back grant and ended connection. What ends by itself is taken out by
//! `expiry`, with the same steps.
//!
//! | how it ends                          | what remains                | what replicas are told               |
//! | ------------------------------------ | --------------------------- | ------------------------------------ |
//! | fewer holds or permits               | the hold                    | the smaller hold                     |
//! | one of several holders goes          | the lock                    | the drop                             |
//! | the last holder goes, somebody waits | the same value, handed over | a shared lock's drop, the next grant |
//! | the last holder goes, nobody waits   | nothing                     | DEL                                  |

use super::lock_manager::LockManager;
use super::occurrence::EndedBy;
use crate::host::{Clients, Content, Effect, Entry, Gate, Host, Keys};
use crate::key::KeyRef;
use crate::value::claim::{Claim, Family, InvalidClaim, Portion};
use crate::value::lock::Lock;
use crate::value::outcome::{Grant, KeyError, Released};

/// How a hold comes to its end, or becomes smaller.
#[derive(Clone, Copy, Debug)]
pub(super) enum End<'a> {
    /// Its owner gives it back.
    Released { owner: &'a [u8], portion: &'a Portion },
    /// The connection that it was bound to has ended.
    Disconnected { owner: &'a [u8] },
    /// Its client has gone before it was told of the grant.
    Undelivered { owner: &'a [u8], claim: &'a Claim, grant: &'a Grant },
}

impl<'a> End<'a> {
    fn by(&self) -> EndedBy {
        match self {
            End::Released { .. } => EndedBy::Released,
            End::Disconnected { .. } => EndedBy::Disconnected,
            End::Undelivered { .. } => EndedBy::Undelivered,
        }
    }

    fn owner(&self) -> &'a [u8] {
        match self {
            End::Released { owner, .. } | End::Disconnected { owner } | End::Undelivered { owner, .. } => owner,
        }
    }

    fn apply(&self, lock: &mut Lock) -> Result<Released, InvalidClaim> {
        match self {
            End::Released { owner, portion } => lock.release(owner, portion),
            End::Disconnected { owner } => Ok(lock.evict(owner)),
            End::Undelivered { owner, claim, grant } => lock.take_back(owner, claim, grant),
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
        self.end_hold(host, key, End::Released { owner, portion })
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
        let mut fence = None;
        let released = match entry.content() {
            Content::Lock(lock) => {
                fence = lock.fence_of(end.owner());
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
        match released {
            Released::NotHeld | Released::Same(_) => return Ok(released),
            Released::Fewer(_) => {
                update(&mut entry, Effect::Hold(end.owner()));
                self.note_fewer(key, end.owner(), end.by());
            }
            Released::Gone => {
                if let Some(fence) = fence {
                    self.note_end(host.now, key, end.owner(), fence, end.by());
                }
                if !self.bindings.is_empty() {
                    self.unbind(key, end.owner());
                }
                if !self.shared_leases.is_empty() && is_vacant(&mut entry) {
                    self.shared_leases.forget(key);
                }
                // In a mutex the next hold replaces this one, in one effect; the last holder's end is the key's.
                let is_shared = matches!(entry.content(), Content::Lock(lock) if lock.is_shared());
                if is_shared && (is_handed_over || !is_vacant(&mut entry)) {
                    update(&mut entry, Effect::Drop(end.owner()));
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
                self.put_off(host, queue, gate);
            }
            None => remove_if_vacant(&mut entry),
        }
        Ok(released)
    }
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
