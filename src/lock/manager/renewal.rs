//! Renewals: a lease starts again from now, on request or because a session's connection lives.

use super::lock_manager::{LockManager, Timer};
use crate::host::{Content, Effect, Entry, Host, Keys};
use crate::key::KeyRef;
use crate::value::claim::{Family, InvalidClaim};
use crate::value::outcome::KeyError;
use crate::value::time::{Lease, Now};

/// A request to renew the leases of one or several locks of one database.
#[derive(Debug)]
pub struct RenewRequest<'a> {
    /// The number of the database.
    pub db: i32,
    /// Distinct; more than one only for mutexes.
    pub names: &'a [&'a [u8]],
    /// Whose leases.
    pub owner: &'a [u8],
    /// Of which locks.
    pub family: Family,
    /// `None`: of the length last given.
    pub lease: Option<Lease>,
}

/// What became of a request to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// All of the leases start again.
    All,
    /// The owner does not hold all of the keys: nothing was changed.
    NotHeld,
}

impl LockManager {
    /// Starts a lease again on all of the keys, or on none.
    pub fn renew<K: Keys, C>(
        &mut self,
        host: &mut Host<'_, K, C>,
        request: &RenewRequest<'_>,
    ) -> Result<Renewed, KeyError> {
        let RenewRequest { db, names, .. } = *request;
        if let [name] = names {
            let key = KeyRef { db, name };
            let mut entry = host.keys.open(key);
            if !self.holds(host.now, key, &mut entry, request)? {
                return Ok(Renewed::NotHeld);
            }
            return Ok(self.renew_open(host.now, key, &mut entry, request.owner, request.lease));
        }
        let mut holds_all = true;
        for name in names {
            let key = KeyRef { db, name };
            holds_all &= self.holds(host.now, key, &mut host.keys.open(key), request)?;
        }
        if !holds_all {
            return Ok(Renewed::NotHeld);
        }
        for name in names {
            let key = KeyRef { db, name };
            self.renew_open(host.now, key, &mut host.keys.open(key), request.owner, request.lease);
        }
        Ok(Renewed::All)
    }

    /// Starts the owner's lease on an open key again, with `lease` or the length that it had.
    pub(super) fn renew_open<E: Entry>(
        &mut self,
        now: &Now,
        key: KeyRef<'_>,
        entry: &mut E,
        owner: &[u8],
        lease: Option<Lease>,
    ) -> Renewed {
        let Content::Lock(lock) = entry.content() else { return Renewed::NotHeld };
        let Some(until) = lock.renew(owner, lease, now.timestamp()) else { return Renewed::NotHeld };
        let lease = lock.hold(owner, until).map(|hold| hold.lease);
        entry.update(Effect::Renew(owner), Some(until));
        if let Some(queue) = self.queues.id_of(key) {
            self.watch_open(entry, queue);
        }
        if let Some(lease) = lease {
            self.renew_after_a_third(now, key, owner, lease);
        }
        Renewed::All
    }

    /// A hold that is bound to a connection is renewed when a third of its lease is over.
    pub(super) fn renew_after_a_third(&mut self, now: &Now, key: KeyRef<'_>, owner: &[u8], lease: Lease) {
        let Some(id) = self.bindings.binding_of(key, owner) else { return };
        match lease.third_ms() {
            Some(third_ms) => self.timers.set(Timer::RenewalDue(id), now.timestamp().plus_ms(third_ms)),
            None => self.timers.clear(Timer::RenewalDue(id)),
        }
    }

    fn holds<E: Entry>(
        &mut self,
        now: &Now,
        key: KeyRef<'_>,
        entry: &mut E,
        request: &RenewRequest<'_>,
    ) -> Result<bool, KeyError> {
        self.settle(now, key, entry);
        match entry.content() {
            Content::Foreign => Err(KeyError::WrongType),
            Content::Free => {
                self.check_family_of_queue(key, request.family)?;
                Ok(false)
            }
            Content::Lock(lock) => match lock.family() {
                Some(other) if other != request.family => Err(InvalidClaim::WrongFamily(other).into()),
                _ => Ok(lock.is_held_by(request.owner)),
            },
        }
    }
}
