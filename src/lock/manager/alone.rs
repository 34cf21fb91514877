//! The short road of a request that meets nobody: one key, for which nobody waits. Nearly all requests take it.
//!
//! It asks the lock the same as the long road does (`acquire`, `release`), and leaves out only what concerns others. What
//! it does changes nothing that the rules remember but the last fence: nothing has to be scheduled after it.

use super::acquire::AcquireRequest;
use super::lock_manager::LockManager;
use super::release::update;
use crate::host::{Content, Effect, Entry, Keys};
use crate::key::KeyRef;
use crate::value::claim::Portion;
use crate::value::outcome::{Grant, KeyError, Released};
use crate::value::time::Now;

impl LockManager {
    /// Grants a key that is free. `None`: it is not, or somebody else has a say; nothing was changed, and the long road
    /// decides.
    #[inline(always)]
    pub fn acquire_alone<K: Keys>(
        &mut self,
        keys: &mut K,
        now: &Now,
        request: &AcquireRequest<'_>,
    ) -> Option<Result<Grant, KeyError>> {
        let AcquireRequest { db, names: &[name], session: None, .. } = *request else { return None };
        let key = KeyRef { db, name };
        if !self.grace.is_none() || !self.is_left_alone(key) {
            return None;
        }
        let mut entry = keys.open(key);
        match entry.content() {
            Content::Free => Some(self.create(now, &mut entry, &request.request)),
            Content::Lock(_) | Content::Foreign => None,
        }
    }

    /// Gives back holds of a mutex or reentrant mutex. `None`: it is none, or somebody else has a say; nothing was
    /// changed, and the long road decides.
    #[inline(always)]
    pub fn release_alone<K: Keys>(
        &mut self,
        keys: &mut K,
        key: KeyRef<'_>,
        owner: &[u8],
        portion: &Portion,
    ) -> Option<Result<Released, KeyError>> {
        if !self.bindings.is_empty() || !self.is_left_alone(key) {
            return None;
        }
        let mut entry = keys.open(key);
        // The leases of a shared one may have ended.
        let lock = match entry.content() {
            Content::Lock(lock) if !lock.is_shared() => lock,
            _ => return None,
        };
        let released = lock.release(owner, portion);
        match released {
            Ok(Released::Gone) => entry.remove(),
            Ok(Released::Fewer(_)) => update(&mut entry, Effect::Hold(owner)),
            Ok(Released::NotHeld | Released::Same(_)) | Err(_) => {}
        }
        Some(released.map_err(KeyError::from))
    }

    /// Nobody waits for the key, and no connection has ended whose hold it may be.
    #[inline(always)]
    fn is_left_alone(&self, key: KeyRef<'_>) -> bool {
        self.ended.is_empty() && self.queues.id_of(key).is_none()
    }
}
