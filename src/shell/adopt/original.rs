//! Runs server commands without translation, and checks the permission for them.

use command::errors::{self, ErrorReply};
use command::host::{OriginalOutcome, VisitedKey};

use super::ADOPTION;
use crate::shell::background::write_check;
use crate::shell::connections::connection_of;
use crate::shell::ffi::call::{self, CallFlags, CallReply};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::{has_user, may_run_as_caller, User};
use crate::shell::ffi::string::{OwnedStr, Str};

/// Checks that the caller may run the command with its keys. The server has only checked LOCK.ADOPTED.
pub fn check_permission(ctx: Ctx<'_>, args: &[Str<'_>]) -> Result<(), ErrorReply> {
    // A connection always has a user. A call by another module may have none, and such a module is not restricted.
    if connection_of(ctx).is_none() && !has_user(ctx, c"lock.exec") {
        return Ok(());
    }
    // SAFETY: the client has a user.
    if unsafe { may_run_as_caller(ctx, args) } {
        Ok(())
    } else {
        Err(errors::ORIGINAL_NOT_PERMITTED)
    }
}

/// Runs the command without translation; its reply becomes the reply.
pub fn run(ctx: Ctx<'_>, args: &[Str<'_>]) -> Result<OriginalOutcome, ErrorReply> {
    let reply = call_original(ctx, args)?;
    if reply.error().is_some_and(|words| words.starts_with(b"WRONGTYPE")) {
        return Ok(OriginalOutcome::WrongType);
    }
    if ctx.reply_with(&reply) {
        Ok(OriginalOutcome::Replied)
    } else {
        Err(errors::NOT_IN_PROTOCOL)
    }
}

/// Runs the command without translation, and discards its reply.
pub fn call(ctx: Ctx<'_>, words: &[&[u8]]) -> Result<(), ErrorReply> {
    let words: Vec<_> = words.iter().map(|word| OwnedStr::new(word)).collect();
    let args: Vec<Str<'_>> = words.iter().map(OwnedStr::as_str).collect();
    match call_original(ctx, &args)?.error() {
        None => Ok(()),
        Some(_) => Err(errors::NOT_RETURNED),
    }
}

/// The COUNT of each SCAN.
const KEYS_AT_ONCE: &[u8] = b"1000";

/// The first keys of the database, at most about `most`, and the data types of the wanted ones.
///
/// # Errors
/// The server does not run SCAN.
pub fn keys_and_types(
    ctx: Ctx<'_>,
    most: usize,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<Vec<VisitedKey>, ErrorReply> {
    let (mut cursor, mut all) = (b"0".to_vec(), Vec::new());
    loop {
        let scan = || call::scan(ctx, &[&cursor, b"COUNT", KEYS_AT_ONCE]);
        let found = match scan() {
            // As in LOCK.SCAN: an earlier call with keys of multiple slots may have left its client in a bad state.
            Err(_) if write_check::is_in_cluster() => call::call_again(ctx, scan),
            found => found,
        };
        let found = found.map_err(|_| errors::NO_SCAN)?;
        for key in found.keys {
            let kind = is_wanted(&key).then(|| call::type_of(ctx, OwnedStr::new(&key).as_str())).flatten();
            all.push(VisitedKey { name: key, kind });
        }
        cursor = found.cursor;
        if cursor == b"0" || all.len() >= most {
            return Ok(all);
        }
    }
}

/// The users that may run one of `commands` but not the same command in the module's container.
pub fn refused_users(ctx: Ctx<'_>, commands: &[Vec<&[u8]>], containers: &[Vec<&[u8]>]) -> Vec<String> {
    let strings = |words: &[&[u8]]| -> Vec<OwnedStr> { words.iter().map(|word| OwnedStr::new(word)).collect() };
    let pairs: Vec<_> = commands.iter().zip(containers).map(|(one, other)| (strings(one), strings(other))).collect();
    let is_refused = |name: &Vec<u8>| {
        let Some(user) = User::named(OwnedStr::new(name)) else { return false };
        let may = |words: &[OwnedStr]| user.may_run(&words.iter().map(OwnedStr::as_str).collect::<Vec<_>>());
        pairs.iter().any(|(original, container)| may(original) && !may(container))
    };
    let users = call::users(ctx).into_iter().filter(is_refused);
    users.map(|name| String::from_utf8_lossy(&name).into_owned()).collect()
}

/// The elements of an array of strings; `None` for nil.
pub fn strings(ctx: Ctx<'_>, args: &[Str<'_>]) -> Result<Vec<Option<Vec<u8>>>, ErrorReply> {
    let reply = call_original(ctx, args)?;
    let keys = args.iter().skip(1).enumerate();
    Ok(keys.map(|(index, _)| reply.text(&[index]).map(<[u8]>::to_vec)).collect())
}

fn call_original(ctx: Ctx<'_>, args: &[Str<'_>]) -> Result<CallReply, ErrorReply> {
    let (name, args) = args.split_first().ok_or(errors::UNKNOWN_COMMAND)?;
    let name = std::ffi::CString::new(name.bytes()).map_err(|_| errors::UNKNOWN_COMMAND)?;
    ADOPTION.is_calling_original.set(true);
    let reply = call::call(ctx, &name, CallFlags::ORIGINAL, args);
    // If no filter is registered, nothing else has reset it.
    ADOPTION.is_calling_original.set(false);
    reply.map_err(|_| errors::INTERNAL_ERROR)
}
