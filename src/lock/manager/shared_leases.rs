//! The locks with several holders, and when the first of their leases ends.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

use crate::key::{Key, KeyRef};
use crate::value::fence::Fence;
use crate::value::time::{Deadline, Instant, Now, Timestamp};

/// The locks with several holders: when the first of their leases ends.
///
/// The server ends a key by its time to live. It does not end a holder before the key: one of several holders, or all
/// of them, if PERSIST, a long EXPIRE or a RESTORE has given the key a longer life. So each lock with several holders
/// has a deadline here, whether requests wait for it or not. A deadline that comes too early finds nothing to do. A
/// lock with one holder ends with its key and needs none.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedLeases {
    // The table of a database stays when it is empty: databases are few, and the next lock would make it anew.
    by_key: BTreeMap<i32, BTreeMap<Rc<[u8]>, SharedLease>>,
    count: usize,
    by_time: BTreeSet<(Deadline, i32, Rc<[u8]>)>,
    /// The key that was inspected last in this round.
    inspected: Option<(Deadline, i32, Rc<[u8]>)>,
    /// Set when the server refused writes: nothing is due before this time.
    not_before: Option<Instant>,
    /// True if something is due earlier than at the last call of [`SharedLeases::take_sooner`].
    sooner: bool,
}

#[derive(Clone, Copy, Debug)]
struct SharedLease {
    /// When the first lease is over, or earlier.
    due: Deadline,
    /// The fence of the latest grant that is known here.
    fence: Fence,
}

impl SharedLeases {
    /// True if no lock has several holders.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many locks are known to have several holders.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if the key is known to have several holders.
    #[cfg(test)]
    pub fn contains(&self, key: KeyRef<'_>) -> bool {
        self.get(key).is_some()
    }

    /// The first lease of the lock ends with this millisecond, or later.
    pub fn watch(&mut self, key: KeyRef<'_>, fence: Fence, first: Deadline) {
        let due = first.timestamp().map_or(Deadline::Never, |first| Deadline::At(first.plus_ms(1)));
        self.note(key, SharedLease { due, fence });
    }

    /// Makes the lock due now.
    pub fn settle_now(&mut self, key: KeyRef<'_>) {
        let Some(lease) = self.get(key).copied() else { return };
        self.note(key, SharedLease { due: Deadline::At(Timestamp::from_ms(0)), ..lease });
        self.resume();
    }

    fn note(&mut self, key: KeyRef<'_>, new: SharedLease) {
        let names = self.by_key.entry(key.db).or_default();
        // Most changes of holders come while an earlier deadline is known.
        if let Some(known) = names.get_mut(key.name).filter(|known| known.due <= new.due) {
            known.fence = known.fence.max(new.fence);
            return;
        }
        let known = names.get_key_value(key.name).map(|(name, known)| (name.clone(), *known));
        let (name, known) = known.unwrap_or_else(|| (key.name.into(), new));
        self.by_time.remove(&(known.due, key.db, name.clone()));
        self.by_time.insert((new.due, key.db, name.clone()));
        self.sooner = true;
        let lease = SharedLease { due: new.due, fence: known.fence.max(new.fence) };
        if names.insert(name, lease).is_none() {
            self.count += 1;
        }
    }

    /// The key has one holder or none, or its deadline was handled.
    pub fn forget(&mut self, key: KeyRef<'_>) {
        let Some(names) = self.by_key.get_mut(&key.db) else { return };
        let Some((name, lease)) = names.remove_entry(key.name) else { return };
        self.count -= 1;
        self.by_time.remove(&(lease.due, key.db, name));
    }

    /// A lock with the latest fence `last` is gone from the key. The next lock may be there already.
    pub fn leave(&mut self, key: KeyRef<'_>, last: Fence) {
        if self.get(key).is_some_and(|lease| lease.fence <= last) {
            self.forget(key);
        }
    }

    /// The database, or every database, is empty.
    pub fn forget_db(&mut self, db: Option<i32>) {
        let is_flushed = |other: i32| db.is_none_or(|db| db == other);
        self.by_key.retain(|other, _| !is_flushed(*other));
        self.by_time.retain(|(_, other, _)| !is_flushed(*other));
        self.count = self.by_key.values().map(BTreeMap::len).sum();
    }

    /// Two databases have changed places.
    pub fn swap_dbs(&mut self, one: i32, other: i32) {
        let swapped = |db: i32| match db {
            db if db == one => other,
            db if db == other => one,
            db => db,
        };
        self.by_key = mem::take(&mut self.by_key).into_iter().map(|(db, names)| (swapped(db), names)).collect();
        let by_time = mem::take(&mut self.by_time).into_iter();
        self.by_time = by_time.map(|(when, db, name)| (when, swapped(db), name)).collect();
    }

    /// When something is due by the wall clock, unless everything is put off.
    #[inline]
    pub fn next(&self) -> Option<Timestamp> {
        if self.is_empty() {
            return None;
        }
        let (first, ..) = self.by_time.first()?;
        first.timestamp().filter(|_| self.not_before.is_none())
    }

    /// Until when everything is put off.
    #[inline]
    pub fn put_off_until(&self) -> Option<Instant> {
        self.not_before.filter(|_| !self.by_time.is_empty())
    }

    /// All deadlines, the earliest first.
    #[cfg(any(test, feature = "testing"))]
    pub fn all(&self) -> impl Iterator<Item = Timestamp> + '_ {
        self.by_time.iter().filter_map(|(due, ..)| due.timestamp())
    }

    /// A key that is due. It stays due until it is forgotten or put off.
    pub fn first_due(&mut self, now: &Now) -> Option<Key> {
        if self.not_before.is_some_and(|not_before| not_before <= now.instant()) {
            self.resume();
        }
        self.next().filter(|when| *when <= now.timestamp())?;
        self.by_time.first().map(|(_, db, name)| Key { db: *db, name: name.clone() })
    }

    /// The server refuses writes: nothing is due before `until`.
    pub fn put_off_all(&mut self, until: Instant) {
        self.not_before = Some(until);
        self.sooner = true;
    }

    /// True if something is due earlier than at the last call.
    #[inline]
    pub fn take_sooner(&mut self) -> bool {
        std::mem::take(&mut self.sooner)
    }

    /// The server may accept writes again.
    pub fn resume(&mut self) {
        self.sooner |= self.not_before.take().is_some();
    }

    /// The server may not change the key now: it is due again at `when`.
    pub fn put_off(&mut self, key: KeyRef<'_>, when: Timestamp) {
        let Some(lease) = self.get(key).copied() else { return };
        self.forget(key);
        self.note(key, SharedLease { due: Deadline::At(when), ..lease });
    }

    /// The next key to inspect; `None`: the round is over, and the next call begins a new one.
    pub fn next_to_inspect(&mut self) -> Option<Key> {
        let from = self.inspected.take().map_or(Unbounded, Excluded);
        self.inspected = self.by_time.range((from, Unbounded)).next().cloned();
        let (_, db, name) = self.inspected.clone()?;
        Some(Key { db, name })
    }

    /// Ends the round if no key follows, so that the next call begins the next round.
    pub fn end_round_if_over(&mut self) {
        let from = self.inspected.as_ref().map_or(Unbounded, Excluded);
        if self.by_time.range((from, Unbounded)).next().is_none() {
            self.inspected = None;
        }
    }

    fn get(&self, key: KeyRef<'_>) -> Option<&SharedLease> {
        self.by_key.get(&key.db)?.get(key.name)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const K: KeyRef<'_> = KeyRef { db: 0, name: b"k" };
    const L: KeyRef<'_> = KeyRef { db: 0, name: b"l" };
    const ELSEWHERE: KeyRef<'_> = KeyRef { db: 1, name: b"k" };

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    fn due(leases: &mut SharedLeases, ms: u64) -> Option<Key> {
        thread_local!(static US: Cell<u64> = const { Cell::new(0) });
        US.set(ms * 1_000);
        leases.first_due(&Now::by(|| US.get(), || US.get()))
    }

    #[test]
    fn a_key_is_due_at_the_earliest_of_its_ends_until_it_is_forgotten() {
        let mut leases = SharedLeases::default();
        for ms in [29, 19, 39] {
            leases.watch(K, fence(7), Deadline::At(at(ms)));
        }
        leases.watch(L, fence(7), Deadline::Never);
        leases.watch(ELSEWHERE, fence(7), Deadline::At(at(24)));
        assert_eq!(leases.all().collect::<Vec<_>>(), [at(20), at(25)]);
        assert_eq!((due(&mut leases, 19), due(&mut leases, 20)), (None, Some(K.to_key())));
        leases.forget(K);
        assert_eq!((leases.contains(K), leases.contains(L)), (false, true));
        assert_eq!((leases.next(), due(&mut leases, 99)), (Some(at(25)), Some(ELSEWHERE.to_key())));
        leases.forget(ELSEWHERE);
        assert_eq!(leases.next(), None);
        leases.forget(L);
        assert!(leases.is_empty() && leases.by_time.is_empty());
    }

    #[test]
    fn a_lock_that_leaves_its_key_is_forgotten_unless_the_next_is_there_already() {
        let mut leases = SharedLeases::default();
        leases.watch(K, fence(9), Deadline::Never);
        leases.leave(K, fence(8));
        assert!(leases.contains(K), "the next lock is there already");
        leases.leave(K, fence(9));
        assert!(!leases.contains(K));
    }

    #[test]
    fn a_round_inspects_every_key_once_even_if_deadlines_change() {
        let mut leases = SharedLeases::default();
        leases.watch(K, fence(7), Deadline::At(at(9)));
        leases.watch(L, fence(7), Deadline::Never);
        leases.watch(ELSEWHERE, fence(7), Deadline::At(at(19)));
        for _ in 0..2 {
            assert_eq!(leases.next_to_inspect(), Some(K.to_key()));
            leases.settle_now(K);
            assert_eq!(due(&mut leases, 1), Some(K.to_key()));
            leases.forget(K);
            leases.watch(K, fence(7), Deadline::At(at(9)));
            assert_eq!(leases.next_to_inspect(), Some(ELSEWHERE.to_key()));
            assert_eq!((leases.next_to_inspect(), leases.next_to_inspect()), (Some(L.to_key()), None));
        }
        // When a call inspects as many keys as there are, the round ends without one more call.
        let all: Vec<_> = (0..3).map(|_| leases.next_to_inspect()).collect();
        leases.end_round_if_over();
        assert_eq!((all.len(), leases.next_to_inspect()), (3, all[0].clone()));
        leases.end_round_if_over();
        assert_eq!(leases.next_to_inspect(), all[1], "the round goes on");
    }

    #[test]
    fn keys_that_are_put_off_are_due_later() {
        let mut leases = SharedLeases::default();
        leases.watch(K, fence(7), Deadline::At(at(9)));
        leases.watch(L, fence(7), Deadline::At(at(10)));
        leases.put_off_all(Instant::from_ms(50));
        assert_eq!((leases.next(), leases.put_off_until()), (None, Some(Instant::from_ms(50))));
        assert_eq!((due(&mut leases, 49), due(&mut leases, 50)), (None, Some(K.to_key())));
        leases.resume();
        assert_eq!(leases.next(), Some(at(10)));
        leases.put_off_all(Instant::from_ms(50));
        leases.settle_now(K);
        assert_eq!(due(&mut leases, 20), Some(K.to_key()), "a client wrote: writes are accepted");
        leases.put_off(K, at(70));
        assert_eq!(due(&mut leases, 20), Some(L.to_key()));
    }

    #[test]
    fn what_is_due_sooner_is_reported_once() {
        let mut leases = SharedLeases::default();
        type Change = fn(&mut SharedLeases);
        let rows: [(&str, Change, bool); 8] = [
            ("nothing is put off", SharedLeases::resume, false),
            ("the first", |leases| leases.watch(K, fence(7), Deadline::At(at(20))), true),
            ("a later end", |leases| leases.watch(K, fence(7), Deadline::At(at(30))), false),
            ("an earlier end", |leases| leases.watch(K, fence(7), Deadline::At(at(10))), true),
            ("put off", |leases| leases.put_off_all(Instant::from_ms(50)), true),
            ("no longer put off", SharedLeases::resume, true),
            ("nothing is put off any more", SharedLeases::resume, false),
            ("due now", |leases| leases.settle_now(K), true),
        ];
        for (row, change, is_sooner) in rows {
            change(&mut leases);
            assert_eq!((leases.take_sooner(), leases.take_sooner()), (is_sooner, false), "{row}");
        }
    }

    #[test]
    fn databases_are_emptied_and_swapped() {
        let mut leases = SharedLeases::default();
        leases.watch(K, fence(7), Deadline::At(at(10)));
        leases.watch(KeyRef { db: 1, ..L }, fence(7), Deadline::At(at(20)));
        leases.watch(KeyRef { db: 2, ..K }, fence(7), Deadline::At(at(30)));
        leases.swap_dbs(0, 1);
        assert!(leases.contains(KeyRef { db: 2, ..K }), "database 2 is not swapped");
        leases.forget_db(Some(2));
        assert!(leases.contains(ELSEWHERE) && leases.contains(L) && !leases.contains(K));
        assert_eq!(due(&mut leases, 11), Some(ELSEWHERE.to_key()));
        leases.forget_db(Some(1));
        assert_eq!((leases.contains(ELSEWHERE), leases.contains(L)), (false, true));
        assert_eq!(leases.next(), Some(at(21)));
        leases.forget_db(None);
        assert!(leases.is_empty() && leases.by_time.is_empty());
    }
}
