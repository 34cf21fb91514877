//! What ends without a command: leases in a shared lock, and holds of connections that ended. A command that opens such
//! a key takes them out first. The lease of a mutex is the time to live of its key: the server ends it.

use super::lock_manager::LockManager;
use super::observer::EndedBy;
use super::release::{is_vacant, remove_if_vacant, update};
use super::timers::ELSEWHERE_RETRY_MS;
use crate::host::{Content, Effect, Entry, Gate, Host, Keys};
use crate::key::KeyRef;
use crate::value::holders::Holder;
use crate::value::outcome::Released;
use crate::value::time::Now;

/// Milliseconds until a server that refused to end leases is asked again. No request waits for these ends.
const REFUSED_RETRY_MS: u64 = 100;

impl LockManager {
    /// Takes ended holds out of the lock. Replicas get the drop of each holder, or the removal of the key if no holder
    /// is left. Waiters are served by the drain, not here: the caller has the key open.
    #[inline]
    pub(super) fn settle<E: Entry>(&mut self, now: &Now, key: KeyRef<'_>, entry: &mut E) {
        let is_shared = matches!(entry.content(), Content::Lock(lock) if lock.is_shared());
        if matches!(entry.content(), Content::Free) {
            if let Some((owner, fence)) = entry.take_expired() {
                self.record_end(now, key, owner.as_bytes(), fence, EndedBy::Expired);
            }
            return;
        }
        if !is_shared && self.ended.is_empty() {
            return;
        }
        let Some((lock, until)) = entry.lock_and_until() else { return };
        let is_clamped = lock.clamp(until, until);
        if is_clamped {
            entry.update(Effect::Clamp, None);
        }
        let Content::Lock(lock) = entry.content() else { return };
        let before = lock.held_family();
        let ended = |holder: Holder| (holder.owner, holder.fence, EndedBy::LeaseEnd);
        let mut gone: Vec<_> = lock.settle(now.timestamp()).into_iter().map(ended).collect();
        if !self.ended.is_empty() {
            for (owner, client) in self.bindings.owners_of(key) {
                let Some(fence) = lock.fence_of(owner.as_bytes()) else { continue };
                if self.ended.contains_key(&client) && lock.evict(owner.as_bytes()) == Released::Gone {
                    let by = self.end_with_connection(key, owner.as_bytes());
                    gone.push((owner, fence, by));
                }
            }
        }
        self.statistics.count_stored(before, lock.held_family());
        if gone.is_empty() {
            if is_clamped {
                self.watch_holders(key, entry);
            }
            return;
        }
        // A write is allowed here: the timer may write too.
        self.shared_leases.resume();
        for (owner, fence, by) in &gone {
            self.count_and_record_end(now, key, owner.as_bytes(), *fence, *by);
            self.bindings.unbind(key, owner.as_bytes());
        }
        match is_vacant(entry) {
            true => {
                entry.remove();
                self.shared_leases.forget(key);
            }
            false => gone.iter().for_each(|(owner, ..)| update(entry, Effect::Drop(owner.as_bytes()))),
        }
        self.watch_holders(key, entry);
        self.due.extend(self.queues.id_of(key));
    }

    /// Sets the timer for the end of the first of several holders, whether requests wait or not.
    pub(super) fn watch_holders<E: Entry>(&mut self, key: KeyRef<'_>, entry: &mut E) {
        if !matches!(entry.content(), Content::Lock(lock) if lock.has_several_holders()) {
            return;
        }
        let Some((lock, until)) = entry.lock_and_until() else { return };
        if let Some(ends) = lock.several_ends(until) {
            self.shared_leases.watch(key, ends.fence, ends.first);
        }
    }

    /// Takes out holders at the end of their leases, as many as fit into the turn. While the server refuses writes, and
    /// on a replica, nothing ends.
    pub(super) fn end_leases<K: Keys, C>(&mut self, host: &mut Host<'_, K, C>) {
        while let Some(key) = self.shared_leases.first_due(host.now) {
            let key = key.as_ref();
            match host.keys.gate(key) {
                Gate::Open => {
                    let mut entry = host.keys.open(key);
                    self.settle(host.now, key, &mut entry);
                    // A bug in the middle of a hand-off may have left the lock vacant.
                    remove_if_vacant(&mut entry);
                    self.shared_leases.forget(key);
                    self.watch_holders(key, &mut entry);
                }
                Gate::Closed => {
                    return self.shared_leases.put_off_all(host.now.instant().plus_ms(REFUSED_RETRY_MS));
                }
                Gate::Elsewhere => self.shared_leases.put_off(key, host.now.timestamp().plus_ms(ELSEWHERE_RETRY_MS)),
            }
            if host.now.spends_turn() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {

    use crate::host::simulated::{Stored, Told};
    use crate::key::ClientId;
    use crate::manager::fixture::{key, owner, Fixture};
    use crate::value::claim::{Claim, Count, Mode, Portion};
    use crate::value::outcome::Released;
    use crate::value::time::{Deadline, Lease, Timestamp};

    const READ: Claim = Claim::ReadWrite(Mode::Read, Count::Step(1));
    const GIVE_READ: Portion = Portion::ReadWrite(Mode::Read, Count::Step(1));

    #[test]
    fn the_hold_of_an_ended_connection_ends_and_its_key_is_deleted() {
        for (claim, portion) in [(Claim::Mutex, Portion::Mutex), (READ, GIVE_READ)] {
            let mut fixture = Fixture::default();
            fixture.acquire("a", claim, Some(ClientId(7)), Lease::from_ms(300).unwrap());
            fixture.effects();
            fixture.manager.end_session(ClientId(7));
            assert_eq!(fixture.release("b", portion), Ok(Released::NotHeld));
            assert_eq!(fixture.effects(), [Told::Delete], "{claim:?}");
            assert!(fixture.server.keyspace.primary.is_empty() && fixture.manager.bindings().is_empty());
        }
    }

    #[test]
    fn one_of_several_holders_ends_with_its_lease_though_no_request_waits() {
        let mut fixture = Fixture::default();
        for (name, lease_ms) in [("a", 100), ("b", 900)] {
            fixture.acquire(name, READ, None, Lease::from_ms(lease_ms).unwrap());
        }
        for (now_ms, holders) in [(1_100, "a b"), (1_101, "b")] {
            fixture.server.keyspace.now_ms = now_ms;
            fixture.tick();
            assert_eq!(fixture.holders(), holders, "{now_ms}");
        }
    }

    #[test]
    fn replicas_get_a_drop_for_each_holder_that_ends() {
        let mut fixture = Fixture::default();
        for (name, lease_ms) in [("a", 100), ("b", 200), ("c", 900)] {
            fixture.acquire(name, READ, None, Lease::from_ms(lease_ms).unwrap());
        }
        fixture.effects();
        fixture.server.keyspace.now_ms += 201;
        assert_eq!(fixture.release("z", GIVE_READ), Ok(Released::NotHeld));
        assert_eq!(fixture.effects(), [Told::Drop(owner("a")), Told::Drop(owner("b"))]);
        assert_eq!(fixture.holders(), "c");
        // EXPIRE has moved the end of the key: replicas have to apply that too.
        let sooner = Deadline::At(Timestamp::from_ms(5_000));
        match fixture.server.keyspace.primary.get_mut(&key()) {
            Some(Stored::Lock(_, until)) => *until = sooner,
            other => panic!("{other:?}"),
        }
        assert_eq!(fixture.release("z", GIVE_READ), Ok(Released::NotHeld));
        assert_eq!(fixture.effects(), [Told::Clamp]);
        let (lock, until) = fixture.stored();
        assert_eq!((until, lock.last_deadline()), (sooner, Some(sooner)));
    }
}
