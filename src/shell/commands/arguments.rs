//! What all commands need of their arguments, and of the server before they change anything.

use command::errors::{self, ErrorReply};
use command::name::Prefix;
use command::parse::Argument;
use smallvec::SmallVec;

use crate::shell::background::gate;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::string::Str;

/// A command's arguments, its name the first.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// As the server passed them.
    pub strings: &'a [Str<'a>],
    /// Their bytes, in the same order.
    pub bytes: &'a [&'a [u8]],
}

/// The bytes of these keys; of one they need no heap.
#[inline]
pub fn names<'a, A: Argument<'a>>(keys: &[A]) -> SmallVec<[&'a [u8]; 1]> {
    match keys {
        [key] => SmallVec::from_buf([key.bytes()]),
        keys => keys.iter().map(|key| key.bytes()).collect(),
    }
}

/// The key arguments of a command that takes so many keys.
///
/// # Errors
/// In a cluster: this node does not have all of them.
#[inline(always)]
pub fn key_arguments<'a>(
    ctx: Ctx<'_>,
    prefix: Prefix,
    strings: &'a [Str<'a>],
    number: usize,
) -> Result<&'a [Str<'a>], ErrorReply> {
    let first = prefix.first_key_argument();
    let keys = &strings[first..first + number];
    if prefix.takes_several_keys() {
        gate::check_slots(ctx, keys)?;
    }
    Ok(keys)
}

/// Only a transaction that paused the server itself comes here while writes are paused. Redis does not delete expired
/// keys then, and asserts if we overwrite one.
#[inline]
pub fn refuse_while_paused(ctx: Ctx<'_>) -> Result<(), ErrorReply> {
    if ctx.avoids_replica_traffic() {
        return Err(errors::WRITES_PAUSED);
    }
    Ok(())
}
