//! The structure of replies, in terms common to RESP2 and RESP3. Writes outcomes; decides nothing.

#[cfg(test)]
pub(crate) mod recorder;

use lock::engine::leave::Cancelled;
use lock::engine::session::Renewed;
use lock::host::WaitOutcome;
use lock::key::ClientId;
use lock::value::claim::{Claim, LockType};
use lock::value::fence::Fence;
use lock::value::holders::Slot;
use lock::value::outcome::Released;
use lock::value::owner::OwnerRef;

use crate::errors::{self, ErrorReply};

/// The destination of a reply. After starting an array or a map, write its elements; these may be arrays and maps.
pub trait ReplyWriter {
    /// Starts an array of `len` elements.
    fn array(&mut self, len: usize);

    /// Starts a map of `len` names, each followed by its value; a flat array in RESP2.
    fn map(&mut self, len: usize);

    /// Writes an integer.
    fn integer(&mut self, n: i64);

    /// Writes a bulk string of any bytes.
    fn bytes(&mut self, bytes: &[u8]);

    /// Writes a status line such as `+OK`. It must not contain a NUL or a line break.
    fn status(&mut self, line: &str);

    /// Writes nil: in RESP2 a null array, in RESP3 `_`.
    fn null(&mut self);

    /// Writes nil as the value of a string, as GET does: a null string in RESP2, `_` in RESP3.
    fn null_string(&mut self);

    /// Writes an error.
    fn error(&mut self, error: &ErrorReply);
}

/// A grant. `holds`: of the requested mode, or permits. `slot`: if one was requested.
#[inline(always)]
pub fn grant(
    out: &mut impl ReplyWriter,
    lock_type: LockType,
    owner: OwnerRef<'_>,
    fence: Fence,
    holds: u32,
    slot: Option<Slot>,
) {
    write_row(out, lock_type, owner, fence.signed(), holds, slot.map(|slot| i64::from(slot.number())));
}

/// Queued with NOTIFY: the reply of a grant, with 0 for the fencing token and the holds, and -1 for the slot.
pub fn queued(out: &mut impl ReplyWriter, claim: &Claim, owner: OwnerRef<'_>) {
    write_row(out, claim.lock_type(), owner, 0, 0, matches!(claim, Claim::Slot { .. }).then_some(-1));
}

/// COALESCE: the work was done. Nil for the token, then the fencing token of the hold that did it.
fn done(out: &mut impl ReplyWriter, fence: Fence) {
    out.array(2);
    out.null();
    out.integer(fence.signed());
}

/// How the wait of a SET … NX ended: OK if it was granted, nil if not. An error where neither would be true.
pub fn adopted_wait_outcome(out: &mut impl ReplyWriter, outcome: WaitOutcome) {
    match outcome {
        WaitOutcome::Granted { .. } => out.status("OK"),
        WaitOutcome::TryAgain => out.error(&errors::TRY_AGAIN),
        WaitOutcome::Demoted => out.error(&errors::DEMOTED),
        WaitOutcome::NotPermitted => out.error(&errors::NOT_PERMITTED),
        WaitOutcome::Done { .. }
        | WaitOutcome::TimedOut
        | WaitOutcome::Cancelled
        | WaitOutcome::Superseded
        | WaitOutcome::Deadlock
        | WaitOutcome::Impossible(_) => out.null_string(),
    }
}

/// How the wait of a blocked client ended.
pub fn wait_outcome(out: &mut impl ReplyWriter, lock_type: LockType, owner: OwnerRef<'_>, outcome: WaitOutcome) {
    match outcome {
        WaitOutcome::Granted { fence, holds, slot } => grant(out, lock_type, owner, fence, holds, slot),
        WaitOutcome::Done { fence } => done(out, fence),
        WaitOutcome::TimedOut => out.null(),
        WaitOutcome::Cancelled => out.error(&errors::CANCELLED),
        WaitOutcome::Superseded => out.error(&errors::SUPERSEDED),
        WaitOutcome::Impossible(error) => out.error(&ErrorReply::from(error)),
        WaitOutcome::Deadlock => out.error(&errors::DEADLOCK_AFTER_LOSS),
        WaitOutcome::TryAgain => out.error(&errors::TRY_AGAIN),
        WaitOutcome::Demoted => out.error(&errors::DEMOTED),
        WaitOutcome::NotPermitted => out.error(&errors::NOT_PERMITTED),
    }
}

#[inline(always)]
fn write_row(
    out: &mut impl ReplyWriter,
    lock_type: LockType,
    owner: OwnerRef<'_>,
    fence: i64,
    holds: u32,
    slot: Option<i64>,
) {
    let has_holds = lock_type != LockType::Mutex;
    out.array(if has_holds { 3 + usize::from(slot.is_some()) } else { 2 });
    out.bytes(owner.as_bytes());
    out.integer(fence);
    if has_holds {
        out.integer(i64::from(holds));
        if let Some(slot) = slot {
            out.integer(slot);
        }
    }
}

/// The reply for one key. A mutex: 1 if it was released, 0 if this owner did not hold it. Other types: the remaining
/// holds (of the mode) or permits, -1 if this owner did not hold it.
#[inline]
pub fn released(out: &mut impl ReplyWriter, lock_type: LockType, released: Released) {
    out.integer(match (lock_type, released) {
        (LockType::Mutex, Released::Gone) => 1,
        (LockType::Mutex, Released::NotHeld) => 0,
        (_, Released::NotHeld) => -1,
        (_, Released::Gone) => 0,
        (_, Released::Same(left) | Released::Fewer(left)) => i64::from(left),
    });
}

/// 1 if the owner holds all the keys, 0 if not.
pub fn renewed(out: &mut impl ReplyWriter, renewed: Renewed) {
    out.integer(match renewed {
        Renewed::All => 1,
        Renewed::NotHeld => 0,
    });
}

/// 1 if the owner had queued requests, 0 if not.
pub fn cancelled(out: &mut impl ReplyWriter, cancelled: Cancelled) {
    out.integer(match cancelled {
        Cancelled::Some => 1,
        Cancelled::Nothing => 0,
    });
}

pub(crate) fn text_field(out: &mut impl ReplyWriter, name: &str, value: &[u8]) {
    out.bytes(name.as_bytes());
    out.bytes(value);
}

pub(crate) fn integer_field(out: &mut impl ReplyWriter, name: &str, value: i64) {
    out.bytes(name.as_bytes());
    out.integer(value);
}

/// A client id; 0 for none.
pub(crate) fn client_number(client: Option<ClientId>) -> i64 {
    client.map_or(0, |ClientId(id)| i64::try_from(id).expect("the server counts its clients up from 1"))
}

/// The length of something that is in memory.
pub(crate) fn count(len: usize) -> i64 {
    i64::try_from(len).expect("no collection has more than isize::MAX elements")
}

/// A time in milliseconds, or a sequence number.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).expect("no timestamp and no running number reaches 2^63")
}

#[cfg(test)]
mod tests {
    use super::recorder::{record, Written};
    use super::*;
    use lock::value::claim::{Count, InvalidClaim, Mode};
    use lock::value::outcome::KeyError;

    #[test]
    fn every_number_is_written_as_it_is() {
        assert_eq!((client_number(None), client_number(Some(ClientId(7)))), (0, 7));
        assert_eq!((count(0), count(7)), (0, 7));
        assert_eq!((signed(0), signed(i64::MAX as u64)), (0, i64::MAX));
    }

    const LOCK_TYPES: [LockType; 4] = [LockType::Mutex, LockType::Reentrant, LockType::ReadWrite, LockType::Semaphore];

    fn owner() -> OwnerRef<'static> {
        OwnerRef::new(b"t").unwrap()
    }

    fn fence() -> Fence {
        Fence::new(7).unwrap()
    }

    /// The expected reply of a grant or a queued request.
    fn row(lock_type: LockType, fence: i64, holds: i64) -> Vec<Written> {
        match lock_type {
            LockType::Mutex => vec![Written::Array(2), "t".into(), fence.into()],
            _ => vec![Written::Array(3), "t".into(), fence.into(), holds.into()],
        }
    }

    #[test]
    fn a_grant_contains_owner_fence_and_except_for_a_mutex_the_holds() {
        for lock_type in LOCK_TYPES {
            assert_eq!(
                record(|out| grant(out, lock_type, owner(), fence(), 3, None)),
                row(lock_type, 7, 3),
                "{lock_type:?}"
            );
        }
    }

    #[test]
    fn a_slot_follows_its_permit() {
        let expected = |fence: i64, holds: i64, slot: i64| {
            [Written::Array(4), "t".into(), fence.into(), holds.into(), slot.into()]
        };
        let slot = Slot::new(5);
        assert_eq!(record(|out| grant(out, LockType::Semaphore, owner(), fence(), 1, slot)), expected(7, 1, 5));
        let outcome = WaitOutcome::Granted { fence: fence(), holds: 1, slot };
        assert_eq!(record(|out| wait_outcome(out, LockType::Semaphore, owner(), outcome)), expected(7, 1, 5));
        assert_eq!(record(|out| queued(out, &Claim::Slot { limit: 2 }, owner())), expected(0, 0, -1));
    }

    #[test]
    fn a_queued_request_has_no_fence_and_no_holds_yet() {
        let one = Count::Delta(1);
        let permits = Claim::Permits { limit: 1, count: one };
        for claim in [Claim::Mutex, Claim::Reentrant(one), Claim::ReadWrite(Mode::Read, one), permits] {
            assert_eq!(record(|out| queued(out, &claim, owner())), row(claim.lock_type(), 0, 0), "{claim:?}");
        }
    }

    #[test]
    fn a_granted_wait_has_the_reply_of_a_grant() {
        for lock_type in LOCK_TYPES {
            let outcome = WaitOutcome::Granted { fence: fence(), holds: 3, slot: None };
            assert_eq!(
                record(|out| wait_outcome(out, lock_type, owner(), outcome)),
                row(lock_type, 7, 3),
                "{lock_type:?}"
            );
        }
    }

    #[test]
    fn a_wait_completed_by_a_release_is_nil_with_the_fence_of_the_hold() {
        let written = record(|out| wait_outcome(out, LockType::Mutex, owner(), WaitOutcome::Done { fence: fence() }));
        assert_eq!(written, [Written::Array(2), Written::Null, 7.into()]);
    }

    #[test]
    fn a_wait_that_timed_out_is_nil() {
        assert_eq!(record(|out| wait_outcome(out, LockType::Mutex, owner(), WaitOutcome::TimedOut)), [Written::Null]);
    }

    #[test]
    fn every_other_end_of_a_wait_is_an_error() {
        let cases = [
            (WaitOutcome::Cancelled, errors::CANCELLED),
            (WaitOutcome::Superseded, errors::SUPERSEDED),
            (WaitOutcome::Demoted, errors::DEMOTED),
            (WaitOutcome::NotPermitted, errors::NOT_PERMITTED),
            (WaitOutcome::Deadlock, errors::DEADLOCK_AFTER_LOSS),
            (WaitOutcome::TryAgain, errors::TRY_AGAIN),
            (WaitOutcome::Impossible(KeyError::WrongType), errors::WRONG_TYPE),
            (WaitOutcome::Impossible(KeyError::NoFence), errors::NO_FENCE),
            (WaitOutcome::Impossible(InvalidClaim::OverLimit.into()), errors::OVER_LIMIT),
        ];
        for (outcome, error) in cases {
            let written = record(|out| wait_outcome(out, LockType::Mutex, owner(), outcome));
            assert_eq!(written, [Written::Error(error.as_str().into())], "{outcome:?}");
        }
    }

    #[test]
    fn a_mutex_is_released_or_not_and_others_return_what_remains() {
        let cases = [
            (LockType::Mutex, Released::Gone, 1),
            (LockType::Mutex, Released::NotHeld, 0),
            (LockType::Reentrant, Released::Gone, 0),
            (LockType::Reentrant, Released::NotHeld, -1),
            (LockType::Reentrant, Released::Fewer(2), 2),
            (LockType::Reentrant, Released::Same(3), 3),
            (LockType::ReadWrite, Released::NotHeld, -1),
            (LockType::ReadWrite, Released::Fewer(0), 0),
            (LockType::Semaphore, Released::Gone, 0),
            (LockType::Semaphore, Released::Fewer(u32::MAX), i64::from(u32::MAX)),
        ];
        for (lock_type, outcome, number) in cases {
            let written = record(|out| released(out, lock_type, outcome));
            assert_eq!(written, [Written::Integer(number)], "{lock_type:?} {outcome:?}");
        }
    }

    #[test]
    fn a_renewal_returns_1_or_0() {
        assert_eq!(record(|out| renewed(out, Renewed::All)), [Written::Integer(1)]);
        assert_eq!(record(|out| renewed(out, Renewed::NotHeld)), [Written::Integer(0)]);
    }

    #[test]
    fn a_cancellation_returns_1_or_0() {
        assert_eq!(record(|out| cancelled(out, Cancelled::Some)), [Written::Integer(1)]);
        assert_eq!(record(|out| cancelled(out, Cancelled::Nothing)), [Written::Integer(0)]);
    }
}
