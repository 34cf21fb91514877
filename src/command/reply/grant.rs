//! The reply of a grant: `[token, fence]` of a mutex, `[owner, fence, holds]` of the other families, with SLOT also the
//! slot.

use lock::host::WaitOutcome;
use lock::value::claim::{Claim, Family};
use lock::value::fence::Fence;
use lock::value::holders::Slot;
use lock::value::owner::OwnerRef;

use super::number;
use super::reply_writer::ReplyWriter;
use crate::errors::{self, ErrorReply};

/// Granted. `holds`: of the mode asked for, or permits. `slot`: if one was asked for.
#[inline(always)]
pub fn grant(
    out: &mut impl ReplyWriter,
    family: Family,
    owner: OwnerRef<'_>,
    fence: Fence,
    holds: u32,
    slot: Option<Slot>,
) {
    row(out, family, owner, number::of_fence(fence), holds, slot.map(|slot| i64::from(slot.number())));
}

/// Queued, with NOTIFY: the same with 0 for the fence and the holds, and -1 for the slot.
pub fn queued(out: &mut impl ReplyWriter, claim: &Claim, owner: OwnerRef<'_>) {
    row(out, claim.family(), owner, 0, 0, matches!(claim, Claim::Slot { .. }).then_some(-1));
}

/// Held by another, or BLOCK ran out.
pub fn not_granted(out: &mut impl ReplyWriter) {
    out.null();
}

/// The work was done, with COALESCE: nil for the token, and the fence of the hold that did it.
pub fn done(out: &mut impl ReplyWriter, fence: Fence) {
    out.array(2);
    out.null_bulk();
    out.integer(number::of_fence(fence));
}

/// How the wait of a blocked client ended.
pub fn wait_outcome(out: &mut impl ReplyWriter, family: Family, owner: OwnerRef<'_>, outcome: WaitOutcome) {
    match outcome {
        WaitOutcome::Granted { fence, holds, slot } => grant(out, family, owner, fence, holds, slot),
        WaitOutcome::Done { fence } => done(out, fence),
        WaitOutcome::TimedOut => not_granted(out),
        WaitOutcome::Cancelled => out.error(&errors::CANCELLED),
        WaitOutcome::Superseded => out.error(&errors::SUPERSEDED),
        WaitOutcome::Impossible(error) => out.error(&ErrorReply::from(error)),
        WaitOutcome::TryAgain => out.error(&errors::TRY_AGAIN),
        WaitOutcome::Demoted => out.error(&errors::DEMOTED),
        WaitOutcome::NotPermitted => out.error(&errors::NOT_PERMITTED),
    }
}

#[inline(always)]
fn row(out: &mut impl ReplyWriter, family: Family, owner: OwnerRef<'_>, fence: i64, holds: u32, slot: Option<i64>) {
    let has_holds = family != Family::Mutex;
    out.array(if has_holds { 3 + usize::from(slot.is_some()) } else { 2 });
    out.bytes(owner.as_bytes());
    out.integer(fence);
    if has_holds {
        out.integer(i64::from(holds));
        slot.into_iter().for_each(|slot| out.integer(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorder::{record, Written};
    use super::*;
    use lock::value::claim::{Count, InvalidClaim, Mode};
    use lock::value::outcome::KeyError;

    const FAMILIES: [Family; 4] = [Family::Mutex, Family::Reentrant, Family::ReadWrite, Family::Semaphore];

    fn owner() -> OwnerRef<'static> {
        OwnerRef::new(b"t").unwrap()
    }

    fn fence() -> Fence {
        Fence::new(7).unwrap()
    }

    /// What is expected of a grant or a queued request.
    fn row(family: Family, fence: i64, holds: i64) -> Vec<Written> {
        match family {
            Family::Mutex => vec![Written::Array(2), "t".into(), fence.into()],
            _ => vec![Written::Array(3), "t".into(), fence.into(), holds.into()],
        }
    }

    #[test]
    fn a_grant_tells_owner_and_fence_and_the_holds_of_all_but_a_mutex() {
        for family in FAMILIES {
            assert_eq!(record(|out| grant(out, family, owner(), fence(), 3, None)), row(family, 7, 3), "{family:?}");
        }
    }

    #[test]
    fn a_slot_is_told_behind_its_permit() {
        let told = |fence: i64, holds: i64, slot: i64| {
            [Written::Array(4), "t".into(), fence.into(), holds.into(), slot.into()]
        };
        let slot = Slot::new(5);
        assert_eq!(record(|out| grant(out, Family::Semaphore, owner(), fence(), 1, slot)), told(7, 1, 5));
        let outcome = WaitOutcome::Granted { fence: fence(), holds: 1, slot };
        assert_eq!(record(|out| wait_outcome(out, Family::Semaphore, owner(), outcome)), told(7, 1, 5));
        assert_eq!(record(|out| queued(out, &Claim::Slot { limit: 2 }, owner())), told(0, 0, -1));
    }

    #[test]
    fn a_queued_request_has_no_fence_and_no_holds_yet() {
        let one = Count::Step(1);
        let permits = Claim::Permits { limit: 1, count: one };
        for claim in [Claim::Mutex, Claim::Reentrant(one), Claim::ReadWrite(Mode::Read, one), permits] {
            assert_eq!(record(|out| queued(out, &claim, owner())), row(claim.family(), 0, 0), "{claim:?}");
        }
    }

    #[test]
    fn no_grant_is_nil() {
        assert_eq!(record(not_granted), [Written::Null]);
    }

    #[test]
    fn a_wait_that_is_granted_is_told_like_a_grant() {
        for family in FAMILIES {
            let outcome = WaitOutcome::Granted { fence: fence(), holds: 3, slot: None };
            assert_eq!(record(|out| wait_outcome(out, family, owner(), outcome)), row(family, 7, 3), "{family:?}");
        }
    }

    #[test]
    fn a_wait_that_a_release_answers_is_nil_with_the_fence_of_the_hold() {
        let written = record(|out| wait_outcome(out, Family::Mutex, owner(), WaitOutcome::Done { fence: fence() }));
        assert_eq!(written, [Written::Array(2), Written::NullBulk, 7.into()]);
    }

    #[test]
    fn a_wait_that_ran_out_is_nil() {
        assert_eq!(record(|out| wait_outcome(out, Family::Mutex, owner(), WaitOutcome::TimedOut)), [Written::Null]);
    }

    #[test]
    fn every_other_end_of_a_wait_is_an_error() {
        let cases = [
            (WaitOutcome::Cancelled, errors::CANCELLED),
            (WaitOutcome::Superseded, errors::SUPERSEDED),
            (WaitOutcome::Demoted, errors::DEMOTED),
            (WaitOutcome::NotPermitted, errors::NOT_PERMITTED),
            (WaitOutcome::TryAgain, errors::TRY_AGAIN),
            (WaitOutcome::Impossible(KeyError::WrongType), errors::WRONG_TYPE),
            (WaitOutcome::Impossible(KeyError::NoFence), errors::NO_FENCE),
            (WaitOutcome::Impossible(InvalidClaim::OverLimit.into()), errors::OVER_LIMIT),
        ];
        for (outcome, error) in cases {
            let written = record(|out| wait_outcome(out, Family::Mutex, owner(), outcome));
            assert_eq!(written, [Written::Error(error.as_str().into())], "{outcome:?}");
        }
    }
}
