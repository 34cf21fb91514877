//! Commands that end holds or waits, or put the end off: `*.RELEASE`, `*.RENEW`, LOCK.CANCEL, LOCK.BREAK.

use lock::key::KeyRef;
use lock::manager::release::Work;
use lock::manager::session::RenewRequest;
use lock::value::claim::Portion;

use super::{key_arguments, names, refuse_while_paused, Arguments};
use crate::errors::ErrorReply;
use crate::host::{CommandHost, KeyArguments};
use crate::name::Prefix;
use crate::parse::{self, Argument, ReleaseCommand, RenewCommand};
use crate::reply;

/// `*.RELEASE`: gives back, and hands over to the waiters. Inlined: each command has its own copy, which knows its
/// prefix.
#[inline(always)]
pub(super) fn release<'h, 'a, H: CommandHost<'h>, A: Argument<'a>>(
    prefix: Prefix,
    mut host: H,
    strings: &'h [H::Argument],
    args: &'a [A],
) -> Result<(), ErrorReply> {
    let command = ReleaseCommand::parse(prefix, args, host.leases())?;
    let (portion, owner) = (&command.portion, command.owner.as_bytes());
    let keys = key_arguments(host, prefix, strings, command.keys.len())?;
    let released = match (prefix.takes_several_keys(), keys) {
        (false, &[key]) => host.release_uncontended(key, owner, portion),
        _ => None,
    };
    if let Some(released) = released {
        reply::released(&mut host, prefix.family(), released?);
        return Ok(());
    }
    let keys = KeyArguments { arguments: keys, names: &names(command.keys) };
    release_among_others(prefix, host, keys, owner, portion, command.work)
}

#[inline(never)]
fn release_among_others<'h, H: CommandHost<'h>>(
    prefix: Prefix,
    mut host: H,
    keys: KeyArguments<'_, H::Argument>,
    owner: &[u8],
    portion: &Portion,
    work: Work,
) -> Result<(), ErrorReply> {
    let (db, names) = (host.db(), keys.names);
    if let (false, [name]) = (prefix.takes_several_keys(), names) {
        let key = KeyRef { db, name };
        let released = host.decide(keys, None, |manager, rules| manager.release(rules, key, owner, portion, work))?;
        reply::released(&mut host, prefix.family(), released?);
        return Ok(());
    }
    let released = host.decide(keys, None, |manager, rules| manager.release_several(rules, db, names, owner))?;
    reply::released_keys(&mut host, released?);
    Ok(())
}

/// `*.RENEW`: the lease starts again from now.
pub(super) fn renew<'h, H: CommandHost<'h>>(
    prefix: Prefix,
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    let RenewCommand { keys: names, owner, lease } = RenewCommand::parse(prefix, args.bytes, host.leases())?;
    let keys = KeyArguments { arguments: key_arguments(host, prefix, args.strings, names.len())?, names };
    let request = RenewRequest { db: host.db(), names, owner: owner.as_bytes(), family: prefix.family(), lease };
    let renewed = host.decide(keys, None, |manager, rules| manager.renew(rules, &request))?;
    reply::renewed(&mut host, renewed?);
    Ok(())
}

/// `LOCK.CANCEL key token`: takes the requests of a token out of the queue.
pub(super) fn cancel<'h, H: CommandHost<'h>>(
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    let owner = parse::owner(args.bytes[2])?;
    refuse_while_paused(host)?;
    let key = KeyRef { db: host.db(), name: args.bytes[1] };
    let cancelled =
        host.decide(only_key(&args), None, |manager, rules| manager.cancel(rules, key, owner.as_bytes()))?;
    reply::cancelled(&mut host, cancelled?);
    Ok(())
}

/// `LOCK.BREAK key [OWNER owner]`: takes a lock from its holders, and hands over to the waiters.
pub(super) fn break_holds<'h, H: CommandHost<'h>>(
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    let whose = parse::broken_holders(args.bytes)?;
    let key = KeyRef { db: host.db(), name: args.bytes[1] };
    let broken = host.decide(only_key(&args), None, |manager, rules| manager.break_holds(rules, key, whose))?;
    reply::broken(&mut host, broken?);
    Ok(())
}

/// The key of a command that takes one.
fn only_key<'k, A>(args: &Arguments<'k, 'k, A>) -> KeyArguments<'k, A> {
    KeyArguments { arguments: &args.strings[1..2], names: &args.bytes[1..2] }
}
