//! Looks up the holders of keys, to position requests and to detect deadlocks. A hold with an expired lease or an ended
//! session does not count, even if the stored lock still has it.

use crate::host::{Content, Entry, Keys};
use crate::key::KeyRef;
use crate::value::claim::LockType;
use crate::value::outcome::Hold;
use crate::value::time::{Deadline, Timestamp};

/// Holds that have ended although the stored lock still has them.
pub trait EndedHolds {
    /// Whether the hold has ended, because its session has or because its grant was not delivered.
    fn has_ended(&self, key: KeyRef<'_>, owner: &[u8]) -> bool;
}

/// The holders of keys: the only place that decides whether an owner holds a key.
pub struct HolderLookup<'a, K> {
    keys: &'a mut K,
    ended: &'a dyn EndedHolds,
    now: Timestamp,
}

/// What a key stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredValue {
    /// Nothing, or a lock of this type.
    Lock(Option<LockType>),
    /// A value of another type.
    Foreign,
}

impl<'a, K: Keys> HolderLookup<'a, K> {
    /// The holders of these keys at this time.
    pub fn new(keys: &'a mut K, ended: &'a dyn EndedHolds, now: Timestamp) -> HolderLookup<'a, K> {
        HolderLookup { keys, ended, now }
    }

    /// Whether this owner holds the key.
    pub fn is_held_by(&mut self, key: KeyRef<'_>, owner: &[u8]) -> bool {
        let now = self.now;
        let mut entry = self.keys.open(key);
        let hold = entry.content().lock().and_then(|lock| lock.hold(owner, Deadline::Never));
        hold.is_some_and(|hold| !hold.until.has_passed(now)) && !self.ended.has_ended(key, owner)
    }

    /// Visits the holds of the key, in no particular order.
    pub(super) fn visit(&mut self, key: KeyRef<'_>, mut visit: impl FnMut(Hold<'_>)) -> StoredValue {
        let (now, ended) = (self.now, self.ended);
        let mut entry = self.keys.open(key);
        match entry.content() {
            Content::Free => StoredValue::Lock(None),
            Content::Foreign => StoredValue::Foreign,
            Content::Lock(lock) => {
                let live = lock.live_holds(now).filter(|hold| !ended.has_ended(key, hold.owner.as_bytes()));
                live.for_each(&mut visit);
                StoredValue::Lock(lock.lock_type())
            }
        }
    }
}
