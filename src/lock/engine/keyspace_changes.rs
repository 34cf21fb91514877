//! Changes of keys from outside the module: DEL, expiry, eviction, EXPIRE, RENAME, FLUSHDB, SWAPDB and so on.
//!
//! The server allows no write in the callback that reports a change. So an event only marks queues as due, and
//! [`Engine::drain`] reads their keys. Inspection rounds find changes that have no event, and mark queues as due too.

use super::lock_manager::LockManager;
use super::observer::EndedBy;
use super::step::Engine;
use super::waits::Waits;
use crate::host::{Content, Entry, Keys};
use crate::key::KeyRef;
use crate::queue::request::QueueId;
use crate::queue::wait_queue::WaitQueue;
use crate::value::fence::Fence;
use crate::value::owner::Owner;
use crate::value::time::Now;

/// Why the server has removed a lock, as the host reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRemoval {
    /// The lease that was granted had expired. The host does not know of a deadline that EXPIRE has set.
    LeaseExpired,
    /// A command such as DEL or RENAME.
    Command,
    /// The DEL by which an adopted client releases its lock.
    Release,
}

impl LockManager {
    /// A lock with the latest fencing token `last` was removed from the key.
    pub fn key_removed(&mut self, key: KeyRef<'_>, last: Fence) {
        self.bindings.unbind_key(key, last);
        self.lock_removed();
        self.waits.key_removed(key);
    }

    /// Many locks were removed from keys of the database. None of their holds was bound to a connection.
    pub fn many_removed(&mut self, db: i32) {
        self.lock_removed();
        self.waits.db_changed(Some(db));
    }

    /// A lock was removed from a key that no request waits for. It may have been moved to a waited-for key.
    pub fn lock_removed(&mut self) {
        self.waits.queues.lock_may_have_moved();
    }

    /// A held lock was removed from the key. Records its end if its lease had expired or an adopted client released it.
    /// `owner` is its holder, or the one with the latest grant if there were several. The host counts these removals.
    pub fn hold_removed(&mut self, now: &Now, key: KeyRef<'_>, owner: &Owner, fence: Fence, why: LockRemoval) {
        // If requests wait for the key, the queue knows the deadline; otherwise the reason of the host decides. It also
        // does once the queue's timer has fired and the queue is due: while writes are refused, the server may remove
        // the expired key first.
        let (queues, backlog) = (&self.waits.queues, &self.waits.backlog);
        let waited_for = queues.id_of(key).and_then(|id| Some((id, queues.get(id)?)));
        let has_expired = match waited_for.filter(|(_, queue)| queue.waiters() > 0) {
            Some((_, WaitQueue { lease_end: Some(end), .. })) => *end <= now.timestamp(),
            Some((id, _)) => why == LockRemoval::LeaseExpired && backlog.queues.contains(id),
            None => why == LockRemoval::LeaseExpired,
        };
        if has_expired {
            self.hold_expired(now, key, owner, fence);
        } else if why == LockRemoval::Release {
            self.record_end(now, key, owner.as_bytes(), fence, EndedBy::Released);
        }
    }

    /// A held lock was removed from the key because its lease had expired.
    pub fn hold_expired(&mut self, now: &Now, key: KeyRef<'_>, owner: &Owner, fence: Fence) {
        self.record_end(now, key, owner.as_bytes(), fence, EndedBy::Expired);
    }

    /// Records that an owner no longer holds the key. `fence` is the fencing token of its grant.
    pub(super) fn record_end(&mut self, now: &Now, key: KeyRef<'_>, owner: &[u8], fence: Fence, by: EndedBy) {
        self.observer.ended(&self.waits.queues, &self.bindings, now, key, owner, fence, by);
    }

    /// The key may have changed.
    pub fn key_changed(&mut self, key: KeyRef<'_>) {
        self.waits.key_changed(key);
    }

    /// Every key of the database, or of all databases, may have changed.
    pub fn db_changed(&mut self, db: Option<i32>) {
        self.bindings.unbind_db(db);
        self.waits.db_changed(db);
    }
}

/// Inspection rounds. No event reports that EXPIRE made a lease shorter, or what a command stored under a free key. So
/// all waited-for keys are opened in rounds, a few at a time. A key that has not changed costs nothing more, even if
/// thousands of requests wait for it.
impl<K: Keys, C> Engine<'_, '_, K, C> {
    /// Continues the inspection round, or starts the next one. Inspects at most `max_keys` keys.
    pub fn inspect_some(&mut self, max_keys: usize) {
        let waits = &mut self.manager.waits;
        for _ in 0..max_keys {
            let Some((id, queue)) = waits.queues.next_from(waits.backlog.inspected()) else { break };
            waits.backlog.inspected = Some(id);
            let (key, is_waited_for) = (queue.key.clone(), queue.waiters() > 0);
            if waits.has_changed_unnoticed(&mut self.host.keys.open(key.as_ref()), id) {
                waits.queues.mark_holders_unknown(id);
                if is_waited_for {
                    waits.backlog.queues.insert(id);
                }
            }
        }
        if waits.queues.next_from(waits.backlog.inspected()).is_none() {
            waits.backlog.inspected = None;
            waits.queues.end_round();
        }
    }
}

impl Waits {
    /// Whether the key differs from what its queue has seen: another value, a lease that expires sooner, or a key that
    /// expires before one of several holders.
    fn has_changed_unnoticed<E: Entry>(&self, entry: &mut E, queue: QueueId) -> bool {
        let queue = self.queues.get(queue);
        let seen = queue.and_then(|queue| queue.seen);
        match entry.lock_and_until() {
            None => seen.is_some() || matches!(entry.content(), Content::Foreign),
            Some((lock, until)) => {
                let end = lock.first_deadline(until).timestamp();
                let watched = queue.and_then(|queue| queue.lease_end);
                lock.fence() != seen
                    || lock.outlives_key(until)
                    || end.is_some_and(|end| watched.is_none_or(|watched| end.plus_ms(1) < watched))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::fixture::{key, owner, Fixture};
    use crate::engine::lock_manager::LockError;
    use crate::engine::observer::{EndedBy, Occurrence};
    use crate::host::simulated::{KeyEvent, SentEffect, Stored};
    use crate::host::{WaitOutcome, WriteCheck};
    use crate::key::{ClientId, Key};
    use crate::value::claim::{Claim, Count, ReleaseAmount};
    use crate::value::fence::Fence;
    use crate::value::outcome::KeyError;
    use crate::value::time::{Deadline, Instant, Lease, Timestamp};

    const MUTEX: Claim = Claim::Mutex;

    /// Rows: the database that is flushed, and whether b, which waits for the key k of database 0, is granted it.
    #[test]
    fn a_flush_serves_the_waiters_of_its_database_only() {
        for (db, is_granted) in [(None, true), (Some(0), true), (Some(1), false)] {
            let mut fixture = Fixture::default();
            fixture.acquire("a", MUTEX, Some(ClientId(7)), Lease::from_ms(3_000).unwrap());
            fixture.acquire("b", MUTEX, None, Lease::Persist);
            fixture.server.keyspace.delete(&key());
            fixture.manager.db_changed(db);
            assert_eq!(fixture.manager.bindings().is_empty(), is_granted, "{db:?}");
            fixture.drain();
            assert_eq!(fixture.holders(), if is_granted { "b" } else { "" }, "{db:?}");
            assert_eq!(fixture.next_timer().is_none(), is_granted, "{db:?}: nothing is to be renewed");
        }
    }

    #[test]
    fn a_removed_key_loses_its_binding_and_is_handed_off() {
        let mut fixture = Fixture::default();
        fixture.acquire("a", MUTEX, Some(ClientId(7)), Lease::from_ms(3_000).unwrap());
        assert_eq!(fixture.manager.bindings().client_of(key().as_ref(), b"a"), Some(ClientId(7)));
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        fixture.server.keyspace.delete(&key());
        let event = fixture.server.keyspace.events.pop();
        let Some(KeyEvent::Removed(removed, fence)) = event else { panic!("{event:?}") };
        fixture.manager.key_removed(removed.as_ref(), fence);
        assert!(fixture.manager.bindings().is_empty());
        fixture.drain();
        assert_eq!(fixture.holders(), "b");
        assert_eq!(fixture.next_timer(), None, "nothing is to be renewed");
    }

    #[test]
    fn many_removed_keys_are_handed_off_and_other_holds_stay_bound() {
        for (db, is_granted) in [(0, true), (1, false)] {
            let mut fixture = Fixture::default();
            fixture.acquire_all("s", &[b"bound"], MUTEX, Some(ClientId(7)), Lease::Persist);
            fixture.acquire("a", MUTEX, None, Lease::Persist);
            fixture.acquire("b", MUTEX, None, Lease::Persist);
            fixture.server.keyspace.delete(&key());
            fixture.manager.many_removed(db);
            fixture.drain();
            assert_eq!(fixture.holders(), if is_granted { "b" } else { "" }, "{db}");
            assert!(fixture.manager.bindings().has_key(Key::new(0, b"bound").as_ref()), "{db}");
            assert!(!fixture.manager.bindings().has_key(key().as_ref()), "{db}");
        }
    }

    /// Rows: what is in the queue of the key, the lease of its holder, when the key is removed, why as far as the host
    /// knows, and whether a lease expiry is recorded.
    #[test]
    fn a_hold_that_is_removed_with_its_key_has_expired_if_a_request_waits_and_its_lease_has_expired() {
        use super::LockRemoval::{Command, LeaseExpired};
        let lease = Lease::from_ms(100).unwrap();
        for (waiter, lease, at_ms, why, has_expired) in [
            ("", lease, 1_101, Command, false),
            ("", lease, 1_100, LeaseExpired, true),
            ("a reserved position", lease, 1_101, Command, false),
            ("a reserved position", lease, 1_100, LeaseExpired, true),
            ("b", lease, 1_100, LeaseExpired, false),
            ("b", lease, 1_101, Command, true),
            ("b", lease, 1_102, Command, true),
            ("b", Lease::Persist, 9_999, LeaseExpired, false),
        ] {
            let mut fixture = Fixture::default();
            fixture.manager.observer.settings.changes = true;
            fixture.acquire("a", MUTEX, None, lease);
            let fence = fixture.stored().0.fence().unwrap();
            if !waiter.is_empty() {
                fixture.acquire("b", MUTEX, None, Lease::Persist);
            }
            if waiter == "a reserved position" {
                reserve_positions(&mut fixture);
            }
            fixture.server.keyspace.now_ms = at_ms;
            let now = fixture.server.now();
            fixture.manager.observer.occurrences.take();
            fixture.manager.hold_removed(&now, key().as_ref(), &owner("a"), fence, why);
            let last = fixture.manager.observer.occurrences.take().pop();
            let is_recorded = matches!(last, Some(Occurrence::Ended { by: EndedBy::Expired, .. }));
            assert_eq!(is_recorded, has_expired, "{waiter}, {lease:?}, {at_ms}, {why:?}: {last:?}");
        }
    }

    #[test]
    fn a_lease_that_expires_while_writes_are_refused_is_recorded_when_the_server_removes_its_key() {
        let mut fixture = Fixture::default();
        fixture.acquire("a", MUTEX, None, Lease::from_ms(100).unwrap());
        let fence = fixture.stored().0.fence().unwrap();
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        fixture.server.keyspace.write_check = WriteCheck::Refused;
        fixture.server.keyspace.now_ms = 1_101;
        fixture.tick();
        fixture.manager.observer.occurrences.take();
        let now = fixture.server.now();
        fixture.manager.hold_removed(&now, key().as_ref(), &owner("a"), fence, super::LockRemoval::LeaseExpired);
        let recorded = fixture.manager.observer.occurrences.take();
        assert!(matches!(recorded[..], [Occurrence::Ended { by: EndedBy::Expired, .. }]), "{recorded:?}");
    }

    /// Reserves the positions of all requests.
    fn reserve_positions(fixture: &mut Fixture) {
        let ids: Vec<_> = fixture.manager.queues().requests().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| fixture.manager.waits.queues.reserve_position(id, Instant::from_ms(60_000)));
    }

    /// The holders a and b, and a waiting request. EXPIRE shortens the key's life, but a still expires first.
    #[test]
    fn one_of_several_holders_expires_no_later_than_the_waited_for_key_whatever_deadline_follows() {
        let mut fixture = Fixture::default();
        let permits = |limit| Claim::Permits { limit, count: Count::Delta(1) };
        for (name, lease_ms) in [("a", 100), ("b", 900), ("c", 100)] {
            fixture.acquire(name, permits(2), None, Lease::from_ms(lease_ms).unwrap());
        }
        fixture.effects();
        for (until, effects, last) in [
            (Deadline::At(Timestamp::from_ms(1_900)), vec![], 1_900),
            (Deadline::At(Timestamp::from_ms(1_500)), vec![SentEffect::Clamp], 1_500),
            (Deadline::Never, vec![], 1_500),
        ] {
            match fixture.server.keyspace.primary.get_mut(&key()) {
                Some(Stored::Lock(_, deadline)) => *deadline = until,
                other => panic!("{other:?}"),
            }
            inspect(&mut fixture);
            let last_deadline = fixture.stored().0.last_deadline();
            assert_eq!((fixture.effects(), last_deadline), (effects, Some(Deadline::At(Timestamp::from_ms(last)))));
        }
    }

    /// Swaps two databases.
    fn swap_dbs(fixture: &mut Fixture, one: i32, other: i32) {
        for db in [one, other] {
            fixture.manager.db_changed(Some(db));
        }
    }

    #[test]
    fn waiters_in_swapped_databases_are_served() {
        for (one, other) in [(0, 1), (1, 0)] {
            let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
            fixture.server.keyspace.delete(&key());
            swap_dbs(&mut fixture, one, other);
            fixture.drain();
            assert_eq!(fixture.holders(), "b");
        }
    }

    /// RESTORE copies a lock with its fencing token.
    #[test]
    fn a_copy_of_the_lock_that_comes_with_swapdb_brings_its_own_limit() {
        let permits = |limit| Claim::Permits { limit, count: Count::Delta(1) };
        let mut fixture = Fixture::of(&[("a", permits(2))]);
        let copy = fixture.server.keyspace.primary[&key()].clone();
        fixture.acquire("b", permits(1), None, Lease::Persist);
        assert_eq!(fixture.holders(), "a");
        fixture.server.keyspace.primary.insert(key(), copy);
        swap_dbs(&mut fixture, 0, 1);
        fixture.drain();
        assert_eq!(fixture.holders(), "a b");
    }

    /// Inspects all keys once, two at a time. Returns how many have changed.
    fn inspect(fixture: &mut Fixture) -> usize {
        let now = fixture.server.now();
        for _ in 0..fixture.manager.queues().len().div_ceil(2) {
            fixture.manager.with_host(&mut fixture.server.host(&now)).inspect_some(2);
        }
        let changed = fixture.manager.waits.backlog.queues.len();
        fixture.drain();
        changed
    }

    #[test]
    fn a_round_finds_a_lease_that_was_made_shorter() {
        let mut fixture = Fixture::default();
        fixture.acquire("a", MUTEX, None, Lease::from_ms(9_000).unwrap());
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        let set_deadline = |fixture: &mut Fixture, when| match fixture.server.keyspace.primary.get_mut(&key()) {
            Some(Stored::Lock(_, until)) => *until = when,
            other => panic!("{other:?}"),
        };
        assert_eq!(inspect(&mut fixture), 0);
        for (when, changed, fires) in [
            (Deadline::At(Timestamp::from_ms(1_200)), 1, 1_201),
            (Deadline::At(Timestamp::from_ms(1_199)), 1, 1_200),
            // A timer that fires too early finds the new deadline.
            (Deadline::At(Timestamp::from_ms(1_900)), 0, 1_200),
            (Deadline::Never, 0, 1_200),
        ] {
            set_deadline(&mut fixture, when);
            assert_eq!((inspect(&mut fixture), fixture.next_timer()), (changed, Some(fires)), "{when:?}");
        }
    }

    #[test]
    fn a_round_finds_a_free_key_that_got_a_value_and_a_key_that_was_freed() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        let free = Key::new(0, b"free");
        fixture.acquire_all("b", &[b"k", b"free"], MUTEX, None, Lease::Persist);
        fixture.acquire("c", MUTEX, None, Lease::Persist);
        assert_eq!(inspect(&mut fixture), 0);
        assert!(fixture.server.inbox.replies.is_empty());
        fixture.server.keyspace.primary.insert(free.clone(), Stored::Foreign);
        assert_eq!(inspect(&mut fixture), 1);
        let replies: Vec<_> = fixture.server.inbox.replies.iter().map(|(_, outcome)| *outcome).collect();
        assert_eq!(replies, [WaitOutcome::Impossible(KeyError::WrongType)]);
        fixture.server.keyspace.primary.remove(&key());
        assert_eq!((inspect(&mut fixture), fixture.holders()), (1, "c".into()));
    }

    #[test]
    fn a_round_ignores_a_key_with_only_reserved_positions() {
        for (is_detached, changed) in [(false, 1), (true, 0)] {
            let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
            if is_detached {
                reserve_positions(&mut fixture);
            }
            fixture.server.keyspace.primary.insert(key(), Stored::Foreign);
            assert_eq!(inspect(&mut fixture), changed, "{is_detached}");
        }
    }

    #[test]
    fn a_lock_moved_to_a_free_key_completes_a_deadlock_before_its_waiters_are_served() {
        type Event = fn(&mut Fixture);
        let rows: [(&str, Event); 3] = [
            ("RENAME", |fixture| {
                fixture.manager.key_removed(key().as_ref(), Fence::new(u64::MAX >> 11).unwrap());
            }),
            ("SWAPDB", |fixture| swap_dbs(fixture, 0, 1)),
            ("SWAPDB while writes are refused", |fixture| {
                swap_dbs(fixture, 0, 1);
                fixture.server.keyspace.write_check = WriteCheck::Refused;
                while !fixture.manager.waits.backlog.rescans.is_empty() {
                    fixture.drain();
                }
                fixture.server.keyspace.write_check = WriteCheck::Allowed;
            }),
        ];
        for (row, event) in rows {
            let mut fixture = Fixture::of(&[("a", MUTEX)]);
            fixture.acquire_all("b", &[b"held by b"], MUTEX, None, Lease::Persist);
            fixture.acquire_all("c", &[b"held by c"], MUTEX, None, Lease::Persist);
            fixture.acquire_all("b", &[b"free", b"held by c"], MUTEX, None, Lease::Persist);
            let lock = fixture.server.keyspace.primary.remove(&key()).unwrap();
            fixture.server.keyspace.primary.insert(Key::new(0, b"free"), lock);
            event(&mut fixture);
            let refused = fixture.try_acquire("a", &[b"held by b"], MUTEX);
            assert!(matches!(refused, Err(LockError::Deadlock(_))), "{row}: {refused:?}");
        }
    }

    /// The hold that leaves the key free belongs to a connection that has ended. A command notices that, and RENAME
    /// stores another lock there before the queue is served.
    #[test]
    fn a_lock_moved_to_a_key_that_a_command_has_just_freed_completes_a_deadlock() {
        let mut fixture = Fixture::default();
        fixture.acquire("a", MUTEX, Some(ClientId(7)), Lease::Persist);
        fixture.acquire_all("b", &[b"held by b"], MUTEX, None, Lease::Persist);
        fixture.acquire_all("c", &[b"other"], MUTEX, None, Lease::Persist);
        fixture.acquire("b", MUTEX, None, Lease::Persist);
        fixture.manager.end_session(ClientId(7));
        fixture.release("z", ReleaseAmount::Mutex).unwrap();
        assert!(!fixture.server.keyspace.primary.contains_key(&key()), "it is free, and not handed off yet");
        let other = Key::new(0, b"other");
        let lock = fixture.server.keyspace.primary.remove(&other).unwrap();
        fixture.server.keyspace.primary.insert(key(), lock);
        fixture.manager.key_removed(other.as_ref(), Fence::new(u64::MAX >> 11).unwrap());
        let refused = fixture.try_acquire("c", &[b"held by b"], MUTEX);
        assert!(matches!(refused, Err(LockError::Deadlock(_))), "b waits for c: {refused:?}");
    }

    #[test]
    fn holders_are_known_again_when_all_queues_have_been_visited() {
        let mut fixture = Fixture::of(&[("a", MUTEX), ("b", MUTEX)]);
        let is_unknown = |fixture: &Fixture| fixture.manager.queues().may_be_waited_for(0, b"anybody", None);
        fixture.manager.db_changed(None);
        assert!(is_unknown(&fixture));
        fixture.drain();
        assert!(!is_unknown(&fixture));
    }

    #[test]
    fn a_round_continues_where_it_stopped_until_all_keys_were_inspected() {
        let mut fixture = Fixture::of(&[("a", MUTEX)]);
        fixture.acquire_all("b", &[b"k", b"l", b"m"], MUTEX, None, Lease::Persist);
        for name in [b"l", b"m"] {
            fixture.server.keyspace.primary.insert(Key::new(0, name), Stored::Foreign);
        }
        fixture.server.keyspace.primary.remove(&key());
        let now = fixture.server.now();
        for due in [2, 3, 3] {
            fixture.manager.with_host(&mut fixture.server.host(&now)).inspect_some(2);
            assert_eq!(fixture.manager.waits.backlog.queues.len(), due);
        }
    }
}
