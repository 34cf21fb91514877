//! `*.RELEASE`: gives back, and hands over to who waits.

use command::errors::ErrorReply;
use command::name::Prefix;
use command::parse::{Argument, ReleaseCommand};
use command::reply;
use lock::key::KeyRef;
use lock::value::claim::Portion;
use lock::value::outcome::{KeyError, Released};

use super::arguments::{key_arguments, names};
use crate::shell::background::events::Step;
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
    let keys = key_arguments(ctx, prefix, strings, command.keys.len())?;
    let released = match (prefix.takes_several_keys(), keys) {
        (false, &[key]) => release_alone(ctx, key, owner, portion),
        _ => None,
    };
    if let Some(released) = released {
        reply::released(&mut ctx, prefix.family(), released?);
        return Ok(());
    }
    let keys = KeyArguments { strings: keys, names: &names(command.keys) };
    release_among_others(prefix, ctx, keys, owner, portion)
}

/// `None`: it meets others.
#[inline(always)]
fn release_alone(ctx: Ctx<'_>, key: Str<'_>, owner: &[u8], portion: &Portion) -> Option<Result<Released, KeyError>> {
    AloneTurn::begin(ctx, key, Step::End)?.release(owner, portion)
}

#[inline(never)]
fn release_among_others(
    prefix: Prefix,
    mut ctx: Ctx<'_>,
    keys: KeyArguments<'_>,
    owner: &[u8],
    portion: &Portion,
) -> Result<(), ErrorReply> {
    let names = keys.names;
    if let (false, [name]) = (prefix.takes_several_keys(), names) {
        let released = turn::of_command(ctx, keys, None, |manager, host| {
            let key = KeyRef { db: host.keys.db(), name };
            manager.release(host, key, owner, portion)
        })?;
        reply::released(&mut ctx, prefix.family(), released?);
        return Ok(());
    }
    let released = turn::of_command(ctx, keys, None, |manager, host| {
        let db = host.keys.db();
        manager.release_several(host, db, names, owner)
    })?;
    reply::released_keys(&mut ctx, released?);
    Ok(())
}
