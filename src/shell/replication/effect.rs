//! An effect as replicas and the append-only file get it: `LOCK.APPLY key WORD …`. Who holds a lock, until when, with
//! which fence; never a request.
//!
//! | effect                                                  | meaning                                 |
//! | ------------------------------------------------------- | --------------------------------------- |
//! | `HOLD owner "kind limit holds reads fence lease until"` | this owner holds it so                  |
//! | `DROP owner`                                            | this owner holds it no more             |
//! | `LIMIT n`                                               | the semaphore's limit                   |
//! | `CLAMP`                                                 | the holders' deadlines follow the key's |
//! | `CLAMP ms`                                              | no holder ends later than this          |
//! | `FENCE n`                                               | the fence of the latest grant           |
//!
//! `lease` and `until` in ms, -1 for never; a mutex' holder replaces the one before. When the last holder goes, the
//! server's own `DEL` is sent. Effects are applied as they come: whoever applies them judges nothing and reads no
//! clock.

use std::ffi::CStr;

use command::parse::integer;
use lock::value::claim::Family;
use lock::value::fence::Fence;
use lock::value::holders::Holder;
use lock::value::lock::Lock;
use lock::value::outcome::Hold;
use lock::value::owner::{Owner, OwnerRef};
use lock::value::rebuild::FamilyAndLimit;
use lock::value::time::{Deadline, Lease, Timestamp};

/// The internal command.
pub const APPLY: &CStr = c"LOCK.APPLY";

/// An effect that came from the primary or out of a file.
#[derive(Debug)]
pub enum Received<'a> {
    /// This owner holds it so.
    Hold(FamilyAndLimit, Holder),
    /// This owner holds it no more.
    Drop(OwnerRef<'a>),
    /// The semaphore's limit.
    Limit(u32),
    /// The holders' deadlines follow the key's, and this one.
    Clamp(Deadline),
    /// The fence of the latest grant.
    Fence(Fence),
}

/// `kind limit holds reads fence lease until` in one argument: it costs the server a third of what seven cost. `None`
/// for a vacant lock.
pub fn encode_hold(lock: &Lock, hold: &Hold<'_>) -> Option<String> {
    let FamilyAndLimit { family, limit } = lock.family_and_limit()?;
    let until = hold.until.timestamp().map_or(-1, Timestamp::signed_ms);
    let Hold { holds, reads, fence, lease, .. } = hold;
    Some(format!("{} {limit} {holds} {reads} {} {} {until}", family.word(), fence.get(), lease.as_ms()))
}

/// Reads an effect; `args` follow the key. `None`: these are no arguments of an effect.
pub fn decode<'a>(args: &[&'a [u8]]) -> Option<Received<'a>> {
    match args {
        [b"HOLD", owner, fields] => decode_hold(owner, fields),
        [b"DROP", owner] => OwnerRef::new(owner).map(Received::Drop),
        [b"LIMIT", limit] => integer(limit).and_then(|limit| u32::try_from(limit).ok()).map(Received::Limit),
        [b"CLAMP"] => Some(Received::Clamp(Deadline::Never)),
        [b"CLAMP", at_most] => {
            let ms = integer(at_most).and_then(|ms| u64::try_from(ms).ok());
            ms.map(|ms| Received::Clamp(Deadline::At(Timestamp::from_ms(ms))))
        }
        [b"FENCE", fence] => {
            let number = integer(fence).and_then(|fence| u64::try_from(fence).ok());
            number.and_then(Fence::new).map(Received::Fence)
        }
        _ => None,
    }
}

fn decode_hold<'a>(owner: &[u8], fields: &[u8]) -> Option<Received<'a>> {
    let mut fields = fields.split(|byte| *byte == b' ');
    let family = match fields.next()? {
        b"mutex" => Family::Mutex,
        b"reentrant" => Family::Reentrant,
        b"rw" => Family::ReadWrite,
        b"semaphore" => Family::Semaphore,
        _ => return None,
    };
    let mut number = || fields.next().and_then(integer);
    let small = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
    let (limit, holds, reads) = (small(number())?, small(number())?, small(number())?);
    let (fence, lease, until) = (number()?, number()?, number()?);
    let holder = Holder {
        owner: Owner::new(owner)?,
        fence: Fence::new(u64::try_from(fence).ok()?)?,
        lease: Lease::from_ms(lease)?,
        until: match until {
            -1 => Deadline::Never,
            ms => Deadline::At(Timestamp::from_ms(u64::try_from(ms).ok()?)),
        },
        holds,
        reads,
    };
    Some(Received::Hold(FamilyAndLimit::new(family, limit)?, holder))
}
