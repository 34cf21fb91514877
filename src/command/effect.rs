//! The encoding of replicated effects, `LOCK.APPLY key …`, for replicas and the append-only file. An effect states the
//! holders of a lock, their deadlines and fencing tokens; it is never a request.
//!
//! | effect                                    | meaning                                                       |
//! | ----------------------------------------- | ------------------------------------------------------------- |
//! | `m fence lease until owner`               | one argument: this owner holds the mutex, with these values   |
//! | `r fence lease until holds owner`         | the same for a reentrant mutex                                |
//! | `a fence lease until owner`, `h fence lease until holds owner` | `m` and `r` of an adopted hold           |
//! | `w fence lease until holds reads owner`   | a read/write lock: `holds` to write, `reads` to read          |
//! | `s fence lease until holds limit owner`   | a semaphore: `holds` are permits                              |
//! | `n fence lease until slot limit owner`    | a semaphore, one permit: the slot with this number            |
//! | `DROP owner`                              | two arguments: this owner no longer holds the lock            |
//! | `ENDED ms`                                | all holders whose leases had expired at that time are removed |
//! | `LIMIT n`                                 | the semaphore's limit                                         |
//! | `CLAMP`                                   | the holders' deadlines follow the key's                       |
//! | `FENCE n`                                 | the fencing token of the latest grant                         |
//!
//! `lease` and `until` are in milliseconds, -1 for never. The new holder of a mutex replaces the previous one. When the
//! last holder goes, the server's own `DEL` is sent instead. Effects are applied as received, without reading the clock
//! or making a decision. They may come from a damaged file, however, so a hold is only decoded if a lock can have it.
//!
//! A hold is a single argument because each argument costs the server as much as formatting all of these numbers costs
//! the module. It is text because people read it after an incident, in an append-only file or with MONITOR on a
//! replica.
//!
//! These are the effects of format version 1. Effects of a later version begin with its number, as in `2 …`. This
//! release does not apply them: it counts them and names the version in its error reply, which the server logs.

use std::ffi::CStr;
use std::io::{self, Write};

use lock::value::claim::{LockType, Origin};
use lock::value::fence::Fence;
use lock::value::holders::{Holder, Slot};
use lock::value::lock::Lock;
use lock::value::outcome::Hold;
use lock::value::owner::{Owner, OwnerRef, MAX_OWNER};
use lock::value::rebuild::{LockTypeAndLimit, ReplicatedEffect};
use lock::value::time::{Deadline, Lease, Timestamp};

use crate::parse::integer;

/// The format version of effects sent and applied.
pub const FORMAT_VERSION: u32 = 1;

/// The internal command.
pub const APPLY: &CStr = c"LOCK.APPLY";

/// The longest encoding of a hold: the letter, a fence below 2^53, two numbers below 2^63, two below 2^32, each with a
/// space after it, and the owner.
const MAX_HOLD_BYTES: usize = 2 + 17 + 20 + 20 + 11 + 11 + MAX_OWNER;

/// Encodes a hold and calls back with the arguments after the key; `None` for a vacant lock.
#[inline]
pub fn encode_hold<R>(lock: &Lock, hold: &Hold<'_>, send: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let kind = lock.lock_type_and_limit()?;
    let mut room = [0; MAX_HOLD_BYTES];
    let mut free = &mut room[..];
    write_hold(&mut free, kind, hold).expect("there is room for the longest hold");
    let len = MAX_HOLD_BYTES - free.len();
    room.get(..len).map(send)
}

fn write_hold(out: &mut &mut [u8], kind: LockTypeAndLimit, hold: &Hold<'_>) -> io::Result<()> {
    let (letter, counts): (u8, &[u32]) = match (kind.lock_type, hold.origin, hold.slot) {
        (LockType::Mutex, Origin::Native, _) => (b'm', &[]),
        (LockType::Mutex, Origin::Adopted, _) => (b'a', &[]),
        (LockType::Reentrant, Origin::Native, _) => (b'r', &[hold.holds]),
        (LockType::Reentrant, Origin::Adopted, _) => (b'h', &[hold.holds]),
        (LockType::ReadWrite, ..) => (b'w', &[hold.holds, hold.reads]),
        (LockType::Semaphore, _, None) => (b's', &[hold.holds, kind.limit]),
        (LockType::Semaphore, _, Some(slot)) => (b'n', &[slot.number(), kind.limit]),
    };
    out.write_all(&[letter, b' '])?;
    let until = hold.until.timestamp().map_or(-1, Timestamp::signed_ms);
    for number in [hold.fence.signed(), hold.lease.as_ms(), until] {
        write_number(out, number)?;
    }
    for count in counts {
        write_number(out, i64::from(*count))?;
    }
    out.write_all(hold.owner.as_bytes())
}

fn write_number(out: &mut &mut [u8], number: i64) -> io::Result<()> {
    out.write_all(itoa::Buffer::new().format(number).as_bytes())?;
    out.write_all(b" ")
}

/// Decodes an effect; `args` follow the key. `None`: these arguments are not an effect.
pub fn decode<'a>(args: &[&'a [u8]]) -> Option<ReplicatedEffect<'a>> {
    match args {
        [[letter, b' ', fields @ ..]] => decode_hold(*letter, fields),
        [b"DROP", owner] => OwnerRef::new(owner).map(ReplicatedEffect::Drop),
        [b"ENDED", ms] => integer(ms).and_then(timestamp_of).map(ReplicatedEffect::Ended),
        [b"LIMIT", limit] => integer(limit).and_then(|limit| u32::try_from(limit).ok()).map(ReplicatedEffect::Limit),
        [b"CLAMP"] => Some(ReplicatedEffect::Clamp),
        [b"FENCE", fence] => integer(fence).and_then(fence_of).map(ReplicatedEffect::Fence),
        _ => None,
    }
}

/// The format version of an effect sent by another release; `args` follow the key. `None`: the version is this one, or
/// the arguments are not an effect.
pub fn other_version(args: &[&[u8]]) -> Option<u32> {
    let number = args.first()?.split(|byte| *byte == b' ').next()?;
    integer(number).and_then(|version| u32::try_from(version).ok()).filter(|version| *version > FORMAT_VERSION)
}

fn decode_hold<'a>(letter: u8, mut fields: &[u8]) -> Option<ReplicatedEffect<'a>> {
    let fields = &mut fields;
    let (fence, lease, until) = (take_number(fields)?, take_number(fields)?, take_number(fields)?);
    let mut slot = None;
    let (kind, holds, reads) = match letter {
        b'm' | b'a' => (LockTypeAndLimit::new(LockType::Mutex, 1)?, 1, 0),
        b'r' | b'h' => (LockTypeAndLimit::new(LockType::Reentrant, 1)?, take_count(fields)?, 0),
        b'w' => (LockTypeAndLimit::new(LockType::ReadWrite, 0)?, take_count(fields)?, take_count(fields)?),
        b's' => {
            let holds = take_count(fields)?;
            (LockTypeAndLimit::new(LockType::Semaphore, take_count(fields)?)?, holds, 0)
        }
        b'n' => {
            slot = Some(Slot::new(take_count(fields)?)?);
            (LockTypeAndLimit::new(LockType::Semaphore, take_count(fields)?)?, 1, 0)
        }
        _ => return None,
    };
    let (fence, lease, until) = (fence_of(fence)?, Lease::from_ms(lease)?, deadline_of(until)?);
    let origin = if matches!(letter, b'a' | b'h') { Origin::Adopted } else { Origin::Native };
    if_valid(kind, Holder { owner: Owner::new(fields)?, fence, lease, until, holds, reads, slot, origin })
}

/// The decoded hold; `None` if no lock of this kind can have such a holder.
fn if_valid<'a>(kind: LockTypeAndLimit, holder: Holder) -> Option<ReplicatedEffect<'a>> {
    kind.allows(&holder).then_some(ReplicatedEffect::Hold(kind, holder))
}

/// Consumes a number and the space after it.
fn take_number(fields: &mut &[u8]) -> Option<i64> {
    let mut split = fields.splitn(2, |byte| *byte == b' ');
    let (number, rest) = (split.next()?, split.next()?);
    *fields = rest;
    integer(number)
}

fn take_count(fields: &mut &[u8]) -> Option<u32> {
    take_number(fields).and_then(|number| u32::try_from(number).ok())
}

fn timestamp_of(ms: i64) -> Option<Timestamp> {
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Timestamp::from_ms)
}

fn fence_of(number: i64) -> Option<Fence> {
    u64::try_from(number).ok().and_then(Fence::new)
}

/// The deadline of a hold. No hold is encoded with a deadline at or before the epoch.
fn deadline_of(ms: i64) -> Option<Deadline> {
    match ms {
        -1 => Some(Deadline::Never),
        1.. => u64::try_from(ms).ok().map(|ms| Deadline::At(Timestamp::from_ms(ms))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [(LockType, u8); 7] = [
        (LockType::Mutex, b'm'),
        (LockType::Mutex, b'a'),
        (LockType::Reentrant, b'r'),
        (LockType::Reentrant, b'h'),
        (LockType::ReadWrite, b'w'),
        (LockType::Semaphore, b's'),
        (LockType::Semaphore, b'n'),
    ];

    /// A lock of any type with one holder, in any state that requests can produce.
    fn held() -> impl Strategy<Value = (LockTypeAndLimit, Holder)> {
        let owner = prop_oneof![prop::collection::vec(any::<u8>(), 1..60), Just(vec![b' '; MAX_OWNER])];
        let ms = || prop_oneof![Just(-1), 1..=9i64, 1..=i64::MAX, Just(i64::MAX)];
        let count = || prop_oneof![1..=9u32, any::<u32>(), Just(u32::MAX)];
        let fence = prop_oneof![1..=9u64, 1..1u64 << 53, Just((1 << 53) - 1)];
        (0..7usize, owner, fence, ms(), ms(), count(), count()).prop_filter_map(
            "no lock can be held so",
            |(lock_type, owner, fence, lease, until, holds, other)| {
                let (lock_type, letter) = ALL[lock_type];
                let slot = if letter == b'n' { Some(Slot::new(holds % 1_000_000)?) } else { None };
                let (holds, reads, limit) = match lock_type {
                    _ if slot.is_some() => (1, 0, other),
                    LockType::Mutex => (1, 0, 1),
                    LockType::Reentrant => (holds, 0, 1),
                    LockType::ReadWrite => (holds, other, 0),
                    LockType::Semaphore => (holds, 0, other),
                };
                let kind = LockTypeAndLimit::new(lock_type, limit)?;
                let (lease, until) = (Lease::from_ms(lease)?, deadline_of(until)?);
                let owner = Owner::new(&owner)?;
                let origin = if matches!(letter, b'a' | b'h') { Origin::Adopted } else { Origin::Native };
                let holder = Holder { owner, fence: Fence::new(fence)?, lease, until, holds, reads, slot, origin };
                kind.allows(&holder).then_some((kind, holder))
            },
        )
    }

    fn encoded((kind, holder): &(LockTypeAndLimit, Holder)) -> Vec<u8> {
        let mut lock = Lock::Vacant;
        assert!(lock.apply_hold(*kind, holder.clone()), "{kind:?} {holder:?}");
        let hold = lock.hold(holder.owner.as_bytes(), holder.until).expect("it holds");
        encode_hold(&lock, &hold, <[u8]>::to_vec).expect("it is held")
    }

    /// The decoded effect, encoded again.
    fn encoded_again(bytes: &[u8]) -> Option<Vec<u8>> {
        match decode(&[bytes])? {
            ReplicatedEffect::Hold(kind, holder) => Some(encoded(&(kind, holder))),
            _ => None,
        }
    }

    #[test]
    fn the_longest_hold_exactly_fits_the_buffer() {
        let holder = Holder {
            owner: Owner::new(&[b' '; MAX_OWNER]).unwrap(),
            fence: Fence::new((1 << 53) - 1).unwrap(),
            lease: Lease::from_ms(i64::MAX).unwrap(),
            until: deadline_of(i64::MAX).unwrap(),
            holds: u32::MAX,
            reads: u32::MAX,
            slot: None,
            origin: Origin::Native,
        };
        let kind = LockTypeAndLimit::new(LockType::ReadWrite, 0).unwrap();
        assert_eq!(encoded(&(kind, holder)).len(), MAX_HOLD_BYTES);
    }

    #[test]
    fn a_hold_has_the_documented_text() {
        let rows = [
            (LockType::Mutex, 1, 1, 0, None, "m 1763778000000000 30000 1763778030000 worker 7"),
            (LockType::Mutex, 1, 1, 0, None, "a 1763778000000000 30000 1763778030000 worker 7"),
            (LockType::Reentrant, 1, 3, 0, None, "r 1763778000000000 30000 1763778030000 3 worker 7"),
            (LockType::Reentrant, 1, 3, 0, None, "h 1763778000000000 30000 1763778030000 3 worker 7"),
            (LockType::ReadWrite, 0, 0, 2, None, "w 1763778000000000 30000 1763778030000 0 2 worker 7"),
            (LockType::Semaphore, 5, 4, 0, None, "s 1763778000000000 30000 1763778030000 4 5 worker 7"),
            (LockType::Semaphore, 5, 1, 0, Slot::new(4), "n 1763778000000000 30000 1763778030000 4 5 worker 7"),
        ];
        for (lock_type, limit, holds, reads, slot, text) in rows {
            let holder = Holder {
                owner: Owner::new(b"worker 7").unwrap(),
                fence: Fence::new(1_763_778_000_000_000).unwrap(),
                lease: Lease::from_ms(30_000).unwrap(),
                until: deadline_of(1_763_778_030_000).unwrap(),
                holds,
                reads,
                slot,
                origin: if text.starts_with(['a', 'h']) { Origin::Adopted } else { Origin::Native },
            };
            let forever = Holder { lease: Lease::Persist, until: Deadline::Never, ..holder.clone() };
            let kind = LockTypeAndLimit::new(lock_type, limit).unwrap();
            assert_eq!(String::from_utf8(encoded(&(kind, holder))).unwrap(), text);
            let text = text.replace("30000 1763778030000", "-1 -1");
            assert_eq!(String::from_utf8(encoded(&(kind, forever))).unwrap(), text);
        }
    }

    proptest! {
        #[test]
        fn sent_effects_are_applied_unchanged(held in held()) {
            let bytes = encoded(&held);
            match decode(&[&bytes]) {
                Some(ReplicatedEffect::Hold(kind, holder)) => {
                    prop_assert_eq!(format!("{kind:?} {holder:?}"), format!("{:?} {:?}", held.0, held.1));
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }

        /// Bytes that can be decoded are a valid hold in its only encoding.
        #[test]
        fn arbitrary_bytes_do_not_crash_it(bytes in prop::collection::vec(any::<u8>(), 0..80), letter in 0..7usize) {
            let bytes = [&[ALL[letter].1, b' '][..], &bytes].concat();
            prop_assert!(encoded_again(&bytes).is_none_or(|again| again == bytes));
        }

        #[test]
        fn mutations_of_a_valid_input_do_not_crash_it(
            held in held(), position in 0..2000usize, to in "[0-9 amrhwsn-]|[\\x00-\\xff]", cut in 0..2000usize,
        ) {
            let mut bytes = encoded(&held);
            let len = bytes.len();
            bytes[position % len] = to.as_bytes()[0];
            bytes.truncate(len - cut % len);
            prop_assert!(encoded_again(&bytes).is_none_or(|again| again == bytes));
        }

        #[test]
        fn arbitrary_words_do_not_crash_it(words in prop::collection::vec(
            prop_oneof![Just("DROP"), Just("ENDED"), Just("LIMIT"), Just("CLAMP"), Just("FENCE"), Just("-1"), Just("0"),
                Just("2"), Just("m 1 1 1 a")],
            0..5,
        )) {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            if let Some(ReplicatedEffect::Hold(kind, holder)) = decode(&words) {
                prop_assert!(Lock::Vacant.apply_hold(kind, holder));
            }
        }
    }

    /// Primaries and append-only files of 1.0.0 contain these effects. They must be applied and sent unchanged as long
    /// as the format version is 1.
    #[test]
    fn holds_of_format_version_1_are_unchanged() {
        assert_eq!(FORMAT_VERSION, 1);
        for hold in [
            "m 11 500 1500 a b",
            "a 11 500 1500 a b",
            "r 12 -1 -1 3 a",
            "h 12 -1 -1 0 a",
            "w 13 500 1500 1 2 a",
            "s 14 500 1500 3 5 a",
            "n 15 1 9 0 5 a",
        ] {
            assert_eq!(encoded_again(hold.as_bytes()).as_deref(), Some(hold.as_bytes()), "{hold}");
        }
    }

    #[test]
    fn effects_with_keywords_are_decoded() {
        let rows: [(&[&str], ReplicatedEffect<'_>); 5] = [
            (&["DROP", "a b"], ReplicatedEffect::Drop(OwnerRef::new(b"a b").unwrap())),
            (&["ENDED", "5"], ReplicatedEffect::Ended(Timestamp::from_ms(5))),
            (&["LIMIT", "7"], ReplicatedEffect::Limit(7)),
            (&["CLAMP"], ReplicatedEffect::Clamp),
            (&["FENCE", "9"], ReplicatedEffect::Fence(Fence::new(9).unwrap())),
        ];
        for (words, means) in rows {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            assert_eq!(format!("{:?}", decode(&words)), format!("{:?}", Some(means)));
        }
    }

    /// Each one differs from a valid effect in a single respect.
    #[test]
    fn impossible_holds_are_not_decoded() {
        for good in [
            "m 9 9 9 a",
            "r 9 9 9 1 a",
            "w 9 9 9 0 1 a",
            "w 9 9 9 1 0 a",
            "s 9 9 9 1 1 a",
            "s 9 9 9 2 1 a",
            "n 9 9 9 0 1 a",
            "n 9 9 9 999999 1 a",
        ] {
            assert!(decode(&[good.as_bytes()]).is_some(), "{good}");
        }
        for bad in [
            "",
            "m",
            "m ",
            "m 9",
            "m 9 9 9",
            "m 9 9 9 ",
            "M 9 9 9 a",
            "x 9 9 9 a",
            "m  9 9 9 a",
            " m 9 9 9 a",
            "m 0 9 9 a",
            "m 9007199254740992 9 9 a",
            "m -1 9 9 a",
            "m 09 9 9 a",
            "m +9 9 9 a",
            "m 9 0 9 a",
            "m 9 -2 9 a",
            "m 9 9 0 a",
            "m 9 9 -2 a",
            "m 9 9 9223372036854775808 a",
            "r 9 9 9 a",
            "r 9 9 9 4294967296 a",
            "r 9 9 9 -1 a",
            "w 9 9 9 0 0 a",
            "w 9 9 9 1 a",
            "s 9 9 9 0 1 a",
            "s 9 9 9 1 0 a",
            "s 9 9 9 1 a",
            "n 9 9 9 0 a",
            "n 9 9 9 0 0 a",
            "n 9 9 9 -1 1 a",
            "n 9 9 9 1000000 1 a",
        ] {
            assert!(decode(&[bad.as_bytes()]).is_none(), "{bad}");
        }
        assert!(decode(&[&[&b"m 9 9 9 "[..], &[b'a'; MAX_OWNER]].concat()]).is_some());
        assert!(decode(&[&[&b"m 9 9 9 "[..], &[b'a'; MAX_OWNER + 1]].concat()]).is_none());
        for bad in [
            &["CLAMP", "5"][..],
            &["DROP"],
            &["DROP", ""],
            &["ENDED", "0"],
            &["ENDED", "x"],
            &["LIMIT", "-1"],
            &["FENCE", "0"],
            &["HOLD", "a", "m"],
        ] {
            let words: Vec<&[u8]> = bad.iter().map(|word| word.as_bytes()).collect();
            assert!(decode(&words).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn an_effect_of_a_later_format_version_is_not_decoded_and_returns_its_number() {
        for (words, version) in [
            (&["2 m 9 9 9 a"][..], Some(2)),
            (&["2", "DROP", "a"], Some(2)),
            (&["4294967295"], Some(u32::MAX)),
            (&["4294967296"], None),
            (&["1 m 9 9 9 a"], None),
            (&["0"], None),
            (&["-2"], None),
            (&["02"], None),
            (&["x"], None),
            (&[], None),
        ] {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            assert_eq!((other_version(&words), decode(&words).is_none()), (version, true), "{words:?}");
        }
    }
}
