//! The replies of ends and renewals: one integer.

use lock::manager::departure::Cancelled;
use lock::manager::session::Renewed;
use lock::value::claim::Family;
use lock::value::outcome::Released;

use super::number;
use super::reply_writer::ReplyWriter;

/// For one key. A mutex: 1 if it was released, 0 if this owner did not hold it. Other families: the holds (of the mode)
/// or permits that remain, -1 if it did not hold it.
#[inline]
pub fn released(out: &mut impl ReplyWriter, family: Family, released: Released) {
    out.integer(match (family, released) {
        (Family::Mutex, Released::Gone) => 1,
        (Family::Mutex, Released::NotHeld) => 0,
        (_, Released::NotHeld) => -1,
        (_, Released::Gone) => 0,
        (_, Released::Same(left) | Released::Fewer(left)) => i64::from(left),
    });
}

/// For MLOCK: how many of the keys were released.
pub fn released_keys(out: &mut impl ReplyWriter, keys: usize) {
    out.integer(number::of_len(keys));
}

/// For LOCK.BREAK: how many owners lost all their holds.
pub fn broken(out: &mut impl ReplyWriter, owners: usize) {
    out.integer(number::of_len(owners));
}

/// 1 if the owner holds all of the keys, 0 if not.
pub fn renewed(out: &mut impl ReplyWriter, renewed: Renewed) {
    out.integer(match renewed {
        Renewed::All => 1,
        Renewed::NotHeld => 0,
    });
}

/// 1 if requests of the owner were queued, 0 if not.
pub fn cancelled(out: &mut impl ReplyWriter, cancelled: Cancelled) {
    out.integer(match cancelled {
        Cancelled::Some => 1,
        Cancelled::Nothing => 0,
    });
}

#[cfg(test)]
mod tests {
    use super::super::recorder::{record, Written};
    use super::*;

    #[test]
    fn a_mutex_is_released_or_not_and_others_tell_what_remains() {
        let cases = [
            (Family::Mutex, Released::Gone, 1),
            (Family::Mutex, Released::NotHeld, 0),
            (Family::Reentrant, Released::Gone, 0),
            (Family::Reentrant, Released::NotHeld, -1),
            (Family::Reentrant, Released::Fewer(2), 2),
            (Family::Reentrant, Released::Same(3), 3),
            (Family::ReadWrite, Released::NotHeld, -1),
            (Family::ReadWrite, Released::Fewer(0), 0),
            (Family::Semaphore, Released::Gone, 0),
            (Family::Semaphore, Released::Fewer(u32::MAX), i64::from(u32::MAX)),
        ];
        for (family, outcome, number) in cases {
            let written = record(|out| released(out, family, outcome));
            assert_eq!(written, [Written::Integer(number)], "{family:?} {outcome:?}");
        }
    }

    #[test]
    fn several_keys_or_owners_are_counted() {
        assert_eq!(record(|out| released_keys(out, 0)), [Written::Integer(0)]);
        assert_eq!(record(|out| released_keys(out, 128)), [Written::Integer(128)]);
        assert_eq!(record(|out| broken(out, 3)), [Written::Integer(3)]);
    }

    #[test]
    fn a_renewal_is_told_as_yes_or_no() {
        assert_eq!(record(|out| renewed(out, Renewed::All)), [Written::Integer(1)]);
        assert_eq!(record(|out| renewed(out, Renewed::NotHeld)), [Written::Integer(0)]);
    }

    #[test]
    fn a_cancellation_is_told_as_yes_or_no() {
        assert_eq!(record(|out| cancelled(out, Cancelled::Some)), [Written::Integer(1)]);
        assert_eq!(record(|out| cancelled(out, Cancelled::Nothing)), [Written::Integer(0)]);
    }
}
