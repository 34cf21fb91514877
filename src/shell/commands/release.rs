//! `*.RELEASE`: gives back, and hands over to who waits.

use command::errors::ErrorReply;
use command::name::Prefix;
use command::parse::{Argument, ReleaseCommand};
use command::reply;
use lock::key::KeyRef;
use lock::value::claim::Portion;
use lock::value::outcome::{KeyError, Released};

use super::arguments::{key_arguments, names};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::string::Str;
use crate::shell::keyspace::store::KeyArguments;
use crate::shell::settings;
use crate::shell::turn::{self, AloneTurn};

/// Runs the command. Inlined: each command has its own copy, which knows its prefix.
#[inline(always)]
pub fn run<'a, A: Argument<'a>>(
    prefix: Prefix,
    mut ctx: Ctx<'a>,
    strings: &'a [Str<'a>],
    args: &'a [A],
) -> Result<(), ErrorReply> {
    let command = ReleaseCommand::parse(prefix, args, settings::leases())?;
    let (portion, owner) = (&command.portion, command.owner.as_bytes());
    let names = &*names(command.keys);
    let keys = key_arguments(ctx, prefix, strings, names)?;
    let db = ctx.db();
    if let (false, &[name]) = (prefix.takes_several_keys(), names) {
        let key = KeyRef { db, name };
        let released = match release_alone(ctx, keys, key, owner, portion) {
            Some(released) => released,
            None => release_among_others(ctx, keys, key, owner, portion)?,
        };
        reply::released(&mut ctx, prefix.family(), released?);
        return Ok(());
    }
    let released = turn::of_command(ctx, keys, None, |manager, host| manager.release_several(host, db, names, owner))?;
    reply::released_keys(&mut ctx, released?);
    Ok(())
}

/// `None`: it meets others.
#[inline(always)]
fn release_alone(
    ctx: Ctx<'_>,
    keys: KeyArguments<'_>,
    key: KeyRef<'_>,
    owner: &[u8],
    portion: &Portion,
) -> Option<Result<Released, KeyError>> {
    AloneTurn::begin(ctx, keys)?.release(key, owner, portion)
}

#[inline(never)]
fn release_among_others(
    ctx: Ctx<'_>,
    keys: KeyArguments<'_>,
    key: KeyRef<'_>,
    owner: &[u8],
    portion: &Portion,
) -> Result<Result<Released, KeyError>, ErrorReply> {
    turn::of_command(ctx, keys, None, |manager, host| manager.release(host, key, owner, portion))
}
