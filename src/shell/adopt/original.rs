//! Commands of the server that are run as they came, and the right to them.

use command::errors::{self, ErrorReply};
use command::host::Ran;

use crate::shell::clients::connection_of;
use crate::shell::ffi::call::{self, CallFlags, CallReply};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::{has_user, may_run_as_caller};
use crate::shell::ffi::string::Str;
use crate::shell::main_state::MAIN;

/// Checks that the caller may run the command with its keys. The server has checked LOCK.ADOPTED only.
pub fn check_permission(ctx: Ctx<'_>, args: &[Str<'_>]) -> Result<(), ErrorReply> {
    // A connection always has a user. A call by another module may have none: that module is not restricted.
    if connection_of(ctx).is_none() && !has_user(ctx, c"lock.exec") {
        return Ok(());
    }
    // SAFETY: it has a user.
    match unsafe { may_run_as_caller(ctx, args) } {
        true => Ok(()),
        false => Err(errors::ORIGINAL_NOT_PERMITTED),
    }
}

/// Runs the command, untranslated. Its reply is the reply.
pub fn run(ctx: Ctx<'_>, args: &[Str<'_>]) -> Result<Ran, ErrorReply> {
    let reply = call_original(ctx, args)?;
    if reply.error().is_some_and(|words| words.starts_with(b"WRONGTYPE")) {
        return Ok(Ran::WrongType);
    }
    match ctx.reply_with(&reply) {
        true => Ok(Ran::Answered),
        false => Err(errors::NOT_IN_PROTOCOL),
    }
}

/// The elements of an array of strings; `None` in it: nil.
pub fn strings(ctx: Ctx<'_>, args: &[Str<'_>]) -> Result<Vec<Option<Vec<u8>>>, ErrorReply> {
    let reply = call_original(ctx, args)?;
    let keys = args.iter().skip(1).enumerate();
    Ok(keys.map(|(index, _)| reply.text(&[index]).map(<[u8]>::to_vec)).collect())
}

fn call_original(ctx: Ctx<'_>, args: &[Str<'_>]) -> Result<CallReply, ErrorReply> {
    let (name, args) = args.split_first().ok_or(errors::UNKNOWN_COMMAND)?;
    let name = std::ffi::CString::new(name.bytes()).map_err(|_| errors::UNKNOWN_COMMAND)?;
    MAIN.adopt.is_calling_original.set(true);
    let reply = call::call(ctx, &name, CallFlags::ORIGINAL, args);
    // Where no filter is registered, nothing has taken it back.
    MAIN.adopt.is_calling_original.set(false);
    reply.map_err(|_| errors::INTERNAL_ERROR)
}
