//! Holds that end without a command: expired leases in a shared lock, and holds of ended connections. They are removed
//! when the key is opened next, by a command or for a waiting request. The lease of a mutex is the time to live of its
//! key, so the server expires it.

use super::lock_manager::LockManager;
use super::observer::EndedBy;
use super::open_key::OpenKey;
use crate::host::{Content, Effect, Entry};
use crate::value::fence::Fence;
use crate::value::holders::Holder;
use crate::value::lock::Lock;
use crate::value::outcome::Released;
use crate::value::owner::Owner;

impl<E: Entry, C> OpenKey<'_, E, C> {
    /// Removes ended holds from the lock. Replicas get one effect for all expired leases and one for each holder whose
    /// connection has ended, or DEL if no holder is left. The drain serves the waiters, because the caller still uses
    /// the open key.
    #[inline]
    pub fn remove_ended_holds(&mut self) {
        match self.entry.content() {
            Content::Free => {
                if let Some((owner, fence)) = self.entry.take_expired() {
                    self.record_end(owner.as_bytes(), fence, EndedBy::Expired);
                }
            }
            Content::Lock(lock) if lock.is_shared() || self.manager.bindings.has_any_ended() => {
                self.remove_ended_holders()
            }
            Content::Lock(_) | Content::Foreign => {}
        }
    }

    fn remove_ended_holders(&mut self) {
        let Some((lock, until)) = self.entry.lock_and_until() else { return };
        if lock.clamp(until) {
            self.entry.update(Effect::Clamp, None);
        }
        let Content::Lock(lock) = self.entry.content() else { return };
        let (before, now) = (lock.held_lock_type(), self.now);
        let ended = |holder: Holder| {
            let end = holder.until.timestamp().unwrap_or(now.timestamp());
            (holder.owner, holder.fence, EndedBy::LeaseExpired(end))
        };
        let mut removed: Vec<_> = lock.remove_expired(now.timestamp()).into_iter().map(ended).collect();
        let leases = removed.len();
        let disconnected = self.disconnected_owners();
        let Content::Lock(lock) = self.entry.content() else { return };
        removed.extend(disconnected.into_iter().filter_map(|(owner, by)| remove_holder(lock, owner, by)));
        self.manager.observer.statistics.count_stored(before, lock.held_lock_type());
        if removed.is_empty() {
            return;
        }
        for (owner, fence, by) in &removed {
            self.count_and_record_end(owner.as_bytes(), *fence, *by);
            self.manager.bindings.unbind(self.key, owner.as_bytes());
        }
        if self.is_vacant() {
            self.remove();
        } else {
            if leases > 0 {
                self.update(Effect::Ended(now.timestamp()));
            }
            for (owner, ..) in &removed[leases..] {
                self.update(Effect::Drop(owner.as_bytes()));
            }
        }
        self.manager.waits.backlog.queues.extend(self.queue);
    }

    /// The owners whose holds of this key were bound to connections that have ended.
    fn disconnected_owners(&mut self) -> Vec<(Owner, EndedBy)> {
        let LockManager { bindings, deliveries, .. } = &mut *self.manager;
        if !bindings.has_any_ended() {
            return Vec::new();
        }
        let owners = bindings.owners_of(self.key).into_iter().filter(|(_, client)| bindings.is_ended(*client));
        let mut with_cause = |owner: Owner| {
            let by = deliveries.end_with_connection(self.key, owner.as_bytes());
            (owner, by)
        };
        owners.map(|(owner, _)| with_cause(owner)).collect()
    }

    /// Counts and records that an owner no longer holds the key. `fence` is the fencing token of its grant.
    pub fn count_and_record_end(&mut self, owner: &[u8], fence: Fence, by: EndedBy) {
        self.manager.observer.statistics.count_end(by);
        self.record_end(owner, fence, by);
    }

    fn record_end(&mut self, owner: &[u8], fence: Fence, by: EndedBy) {
        let LockManager { waits, bindings, observer, .. } = &mut *self.manager;
        observer.ended(&waits.queues, bindings, self.now, self.key, owner, fence, by);
    }
}

/// Removes an owner from the lock; returns the fencing token of its grant. `None` if it holds nothing.
fn remove_holder(lock: &mut Lock, owner: Owner, by: EndedBy) -> Option<(Owner, Fence, EndedBy)> {
    let fence = lock.fence_of(owner.as_bytes())?;
    (lock.remove_holder(owner.as_bytes()) == Released::Gone).then_some((owner, fence, by))
}

#[cfg(test)]
mod tests {

    use crate::engine::fixture::{key, owner, Fixture};
    use crate::host::simulated::{SentEffect, Stored};
    use crate::key::ClientId;
    use crate::value::claim::{Claim, Count, Mode, ReleaseAmount};
    use crate::value::outcome::Released;
    use crate::value::time::{Deadline, Lease, Timestamp};

    const READ: Claim = Claim::ReadWrite(Mode::Read, Count::Delta(1));
    const WRITE: Claim = Claim::ReadWrite(Mode::Write, Count::Delta(1));
    const GIVE_READ: ReleaseAmount = ReleaseAmount::ReadWrite(Mode::Read, Count::Delta(1));

    #[test]
    fn the_hold_of_an_ended_connection_ends_and_its_key_is_deleted() {
        for (claim, amount) in [(Claim::Mutex, ReleaseAmount::Mutex), (READ, GIVE_READ)] {
            let mut fixture = Fixture::default();
            fixture.acquire("a", claim, Some(ClientId(7)), Lease::from_ms(300).unwrap());
            fixture.effects();
            fixture.manager.end_session(ClientId(7));
            assert_eq!(fixture.release("b", amount), Ok(Released::NotHeld));
            assert_eq!(fixture.effects(), [SentEffect::Delete], "{claim:?}");
            assert!(fixture.server.keyspace.primary.is_empty() && fixture.manager.bindings().is_empty());
        }
    }

    /// Rows: what happens after the lease of a has expired, and the holders that are stored then.
    #[test]
    fn an_ended_holder_of_several_stays_stored_until_the_lock_is_accessed_or_waited_for() {
        type Then = fn(&mut Fixture);
        let rows: [(&str, Then, &str); 4] = [
            ("nothing", |_| {}, "a b"),
            ("a release by another owner", |fixture| _ = fixture.release("z", GIVE_READ), "b"),
            ("a request that waits", |fixture| _ = fixture.acquire("z", WRITE, None, Lease::Persist), "b"),
            ("a request that is granted", |fixture| _ = fixture.acquire("c", READ, None, Lease::Persist), "b c"),
        ];
        for (row, then, holders) in rows {
            let mut fixture = Fixture::default();
            for (name, lease_ms) in [("a", 100), ("b", 900)] {
                fixture.acquire(name, READ, None, Lease::from_ms(lease_ms).unwrap());
            }
            assert_eq!(fixture.next_timer(), None, "no request waits");
            fixture.server.keyspace.now_ms = 1_101;
            then(&mut fixture);
            assert_eq!(fixture.holders(), holders, "{row}");
        }
    }

    #[test]
    fn one_of_several_holders_of_a_waited_for_lock_is_removed_when_its_lease_expires() {
        let mut fixture = Fixture::default();
        for (name, claim, lease_ms) in [("a", READ, 100), ("b", READ, 900), ("w", WRITE, 900)] {
            fixture.acquire(name, claim, None, Lease::from_ms(lease_ms).unwrap());
        }
        for (now_ms, holders, next) in [(1_100, "a b", 1_101), (1_101, "b", 1_901), (1_901, "w", 0)] {
            fixture.server.keyspace.now_ms = now_ms;
            fixture.tick();
            fixture.drain();
            assert_eq!((fixture.holders(), fixture.next_timer().unwrap_or(0)), (holders.into(), next), "{now_ms}");
        }
    }

    #[test]
    fn replicas_get_one_effect_for_all_expired_leases_and_a_drop_for_each_holder_without_a_connection() {
        let mut fixture = Fixture::default();
        for (name, session, lease_ms) in [("a", None, 100), ("b", None, 200), ("c", None, 900), ("d", Some(7), 900)] {
            fixture.acquire(name, READ, session.map(ClientId), Lease::from_ms(lease_ms).unwrap());
        }
        fixture.effects();
        fixture.server.keyspace.now_ms += 201;
        fixture.manager.end_session(ClientId(7));
        assert_eq!(fixture.release("z", GIVE_READ), Ok(Released::NotHeld));
        assert_eq!(fixture.effects(), [SentEffect::Ended(Timestamp::from_ms(1_201)), SentEffect::Drop(owner("d"))]);
        assert_eq!(fixture.holders(), "c");
        // EXPIRE has changed the deadline of the key, which replicas must apply as well.
        let sooner = Deadline::At(Timestamp::from_ms(5_000));
        match fixture.server.keyspace.primary.get_mut(&key()) {
            Some(Stored::Lock(_, until)) => *until = sooner,
            other => panic!("{other:?}"),
        }
        assert_eq!(fixture.release("z", GIVE_READ), Ok(Released::NotHeld));
        assert_eq!(fixture.effects(), [SentEffect::Clamp]);
        let (lock, until) = fixture.stored();
        assert_eq!((until, lock.last_deadline()), (sooner, Some(sooner)));
    }
}
