//! Applies an effect from the primary or a file to a lock. Makes no decisions and reads no clock.

use super::fence::Fence;
use super::holders::Holder;
use super::lock::Lock;
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
    fn each_effect_returns_the_deadline_of_the_key() {
        let (mutex, semaphore) = (kind(Family::Mutex, 1), kind(Family::Semaphore, 3));
        let drop = |name: &'static str| Received::Drop(OwnerRef::new(name.as_bytes()).unwrap());
        let rows = [
            (hold(mutex, "a", 1, 50), KeyAfter::Until(ms(50)), "a 1 50"),
            (drop("b"), KeyAfter::Same, "a 1 50"),
            (hold(mutex, "b", 2, 40), KeyAfter::Until(ms(40)), "b 2 40"),
            (drop("b"), KeyAfter::Removed, ""),
            (hold(semaphore, "a", 3, 90), KeyAfter::Until(ms(90)), "a 3 90"),
            (hold(semaphore, "b", 4, 60), KeyAfter::Until(ms(90)), "a 3 90, b 4 60"),
            (Received::Clamp(ms(70)), KeyAfter::Same, "a 3 70, b 4 60"),
            (Received::Fence(Fence::new(9).unwrap()), KeyAfter::Same, "a 3 70, b 4 60"),
            (Received::Limit(7), KeyAfter::Same, "a 3 70, b 4 60"),
            (drop("a"), KeyAfter::Until(ms(60)), "b 4 60"),
        ];
        let (mut lock, mut key_until) = (Lock::Vacant, Deadline::Never);
        for (effect, after, holders) in rows {
            let row = format!("{effect:?}");
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
