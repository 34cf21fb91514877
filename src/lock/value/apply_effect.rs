//! Applies an effect from the primary or a file to a lock. Makes no decisions and reads no clock.

use super::fence::Fence;
use super::holders::Holder;
use super::lock::Lock;
use super::outcome::Hold;
use super::owner::OwnerRef;
use super::rebuild::FamilyAndLimit;
use super::time::Deadline;

/// An effect from the primary or a file.
#[derive(Debug)]
pub enum Received<'a> {
    /// This owner's hold, valid for the family.
    Hold(FamilyAndLimit, Holder),
    /// This owner's hold has ended.
    Drop(OwnerRef<'a>),
    /// The semaphore's limit.
    Limit(u32),
    /// The holders end no later than the key, and no later than this.
    Clamp(Deadline),
    /// The fence of the latest grant.
    Fence(Fence),
}

/// What to do with the key after an effect was applied to its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAfter {
    /// It stays as it is.
    Same,
    /// Its new deadline.
    Until(Deadline),
    /// The lock has no holder left: the key is removed.
    Removed,
}

impl Lock {
    /// True if the effect changes which owners hold the lock, or how often: WATCH sees that. A renewal does not.
    pub fn is_changed_by(&self, effect: &Received<'_>) -> bool {
        match effect {
            Received::Hold(_, holder) => {
                let before = self.hold(holder.owner.as_bytes(), Deadline::Never);
                let is_same =
                    |hold: Hold<'_>| (hold.fence, hold.holds, hold.reads) == (holder.fence, holder.holds, holder.reads);
                !before.is_some_and(is_same)
            }
            Received::Drop(owner) => self.fence_of(owner.as_bytes()).is_some(),
            Received::Limit(_) | Received::Clamp(_) | Received::Fence(_) => false,
        }
    }

    /// Applies an effect. A hold is applied to [`Lock::Vacant`] too, for a key that was free. The key ends at
    /// `key_until`.
    pub fn apply(&mut self, effect: Received<'_>, key_until: Deadline) -> KeyAfter {
        match effect {
            Received::Hold(kind, holder) => {
                let until = holder.until;
                self.apply_hold(kind, holder);
                KeyAfter::Until(self.last_deadline().unwrap_or(until))
            }
            Received::Drop(owner) => {
                self.evict(owner.as_bytes());
                match self.is_vacant() {
                    true => KeyAfter::Removed,
                    false => self.last_deadline().map_or(KeyAfter::Same, KeyAfter::Until),
                }
            }
            Received::Limit(limit) => {
                self.set_limit(limit);
                KeyAfter::Same
            }
            Received::Clamp(at_most) => {
                self.clamp(key_until, at_most);
                KeyAfter::Same
            }
            Received::Fence(fence) => {
                self.raise_fence(fence);
                KeyAfter::Same
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::claim::Family;
    use crate::value::owner::Owner;
    use crate::value::time::{Lease, Timestamp};

    fn ms(ms: u64) -> Deadline {
        Deadline::At(Timestamp::from_ms(ms))
    }

    fn hold<'a>(kind: FamilyAndLimit, name: &str, fence: u64, until: u64) -> Received<'a> {
        let (holds, reads) = if kind.family == Family::ReadWrite { (0, 1) } else { (1, 0) };
        Received::Hold(
            kind,
            Holder {
                owner: Owner::new(name.as_bytes()).unwrap(),
                fence: Fence::new(fence).unwrap(),
                lease: Lease::Persist,
                until: ms(until),
                holds,
                reads,
                slot: None,
            },
        )
    }

    fn kind(family: Family, limit: u32) -> FamilyAndLimit {
        FamilyAndLimit::new(family, limit).unwrap()
    }

    #[test]
    fn each_effect_returns_the_deadline_of_the_key_and_only_changes_of_holds_are_seen_by_watchers() {
        let (mutex, semaphore) = (kind(Family::Mutex, 1), kind(Family::Semaphore, 3));
        let drop = |name: &'static str| Received::Drop(OwnerRef::new(name.as_bytes()).unwrap());
        let rows = [
            (hold(mutex, "a", 1, 40), true, KeyAfter::Until(ms(40)), "a 1 40"),
            (hold(mutex, "a", 1, 50), false, KeyAfter::Until(ms(50)), "a 1 50"),
            (drop("b"), false, KeyAfter::Same, "a 1 50"),
            (hold(mutex, "b", 2, 40), true, KeyAfter::Until(ms(40)), "b 2 40"),
            (drop("b"), true, KeyAfter::Removed, ""),
            (hold(semaphore, "a", 3, 90), true, KeyAfter::Until(ms(90)), "a 3 90"),
            (hold(semaphore, "b", 4, 60), true, KeyAfter::Until(ms(90)), "a 3 90, b 4 60"),
            (Received::Clamp(ms(70)), false, KeyAfter::Same, "a 3 70, b 4 60"),
            (Received::Fence(Fence::new(9).unwrap()), false, KeyAfter::Same, "a 3 70, b 4 60"),
            (Received::Limit(7), false, KeyAfter::Same, "a 3 70, b 4 60"),
            (drop("a"), true, KeyAfter::Until(ms(60)), "b 4 60"),
        ];
        let (mut lock, mut key_until) = (Lock::Vacant, Deadline::Never);
        for (effect, is_seen_by_watchers, after, holders) in rows {
            let row = format!("{effect:?}");
            assert_eq!(lock.is_changed_by(&effect), is_seen_by_watchers, "{row}");
            assert_eq!(lock.apply(effect, key_until), after, "{row}");
            if let KeyAfter::Until(until) = after {
                key_until = until;
            }
            let holds = lock.holds(key_until).into_iter();
            let shown = holds.map(|hold| {
                let name = String::from_utf8_lossy(hold.owner.as_bytes()).into_owned();
                format!("{name} {} {}", hold.fence.get(), hold.until.timestamp().map_or(0, Timestamp::ms))
            });
            assert_eq!(shown.collect::<Vec<_>>().join(", "), holders, "{row}");
        }
        assert_eq!((lock.fence().map(Fence::get), lock.semaphore_limit()), (Some(9), Some(7)));
    }
}
