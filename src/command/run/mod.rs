//! Whole commands: the arguments come in, the rules decide, the reply goes out. The [`CommandHost`] does the rest.

mod acquire;
mod inspect;
mod list;
mod release;

use lock::key::ClientId;
use smallvec::SmallVec;

use crate::catalog::{Action, Command};
use crate::effect;
use crate::errors::{self, ErrorReply};
use crate::host::CommandHost;
use crate::name::Prefix;
use crate::parse::{Argument, LogCommand};
use crate::reply;

pub use inspect::is_held;

/// The arguments of a command, its name the first: as the host has them, and their bytes.
#[derive(Clone, Copy)]
struct Arguments<'s, 'b, A> {
    strings: &'s [A],
    bytes: &'b [&'b [u8]],
}

/// At most this many arguments need no heap.
const FEW: usize = 16;

/// Runs a command. `strings` are its arguments, its name the first. Inlined: each entry of the server has a copy of its
/// own, which knows its command.
///
/// # Errors
/// The error reply, where nothing else was written. Nothing was changed.
#[inline(always)]
pub fn run<'h, H: CommandHost<'h>>(command: &Command, host: H, strings: &'h [H::Argument]) -> Result<(), ErrorReply> {
    if !command.accepts(strings.len()) {
        return Err(errors::wrong_arity(command.name));
    }
    match command.action {
        Action::Acquire(prefix) if !prefix.takes_several_keys() => acquire::acquire(prefix, host, strings, strings),
        Action::Release(prefix) if !prefix.takes_several_keys() => release::release(prefix, host, strings, strings),
        Action::Exec => host.exec(strings),
        action => {
            let bytes: SmallVec<[&[u8]; FEW]> = strings.iter().map(|string| string.bytes()).collect();
            run_with_bytes(action, host, Arguments { strings, bytes: &bytes })
        }
    }
}

#[inline(always)]
fn run_with_bytes<'h, H: CommandHost<'h>>(
    action: Action,
    host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    match action {
        Action::Acquire(prefix) => acquire::acquire(prefix, host, args.strings, args.bytes),
        Action::Release(prefix) => release::release(prefix, host, args.strings, args.bytes),
        Action::Renew(prefix) => release::renew(prefix, host, args),
        Action::Cancel => release::cancel(host, args),
        Action::Break => release::break_holds(host, args),
        Action::Held => inspect::held(host, args),
        Action::Info => inspect::info(host, args),
        Action::Waiters => inspect::waiters(host, args),
        Action::Scan => list::scan(host, args),
        Action::Top => list::top(host, args),
        Action::Log => log(host, args),
        Action::Help => help(host),
        Action::Apply => apply(host, args),
        Action::Exec => host.exec(args.strings),
    }
}

/// `LOCK.LOG GET [n] | LEN | RESET`
fn log<'h, H: CommandHost<'h>>(mut host: H, args: Arguments<'h, '_, H::Argument>) -> Result<(), ErrorReply> {
    let command = LogCommand::parse(args.bytes)?;
    host.with_log(|log| match command {
        LogCommand::Get(length) => {
            let entries: Vec<_> = length.of(log.entries()).collect();
            reply::log(&mut host, entries.into_iter());
        }
        LogCommand::Len => reply::log_len(&mut host, log.entries().len()),
        LogCommand::Reset => {
            log.reset();
            host.status("OK");
        }
    })
}

/// `LOCK.HELP`
fn help<'h>(mut host: impl CommandHost<'h>) -> Result<(), ErrorReply> {
    reply::help(&mut host);
    Ok(())
}

/// `LOCK.APPLY key …`: an effect from the primary or the append-only file.
fn apply<'h, H: CommandHost<'h>>(mut host: H, args: Arguments<'h, '_, H::Argument>) -> Result<(), ErrorReply> {
    if !host.is_replicated() {
        return Err(errors::APPLY_IS_INTERNAL);
    }
    host.receive(args.strings[1], effect::decode(&args.bytes[2..]).ok_or(errors::SYNTAX)?);
    host.status("OK");
    Ok(())
}

/// The key arguments of a command that takes this many keys.
///
/// # Errors
/// In a cluster: this node does not have all of them.
#[inline(always)]
fn key_arguments<'h, H: CommandHost<'h>>(
    host: H,
    prefix: Prefix,
    strings: &'h [H::Argument],
    number: usize,
) -> Result<&'h [H::Argument], ErrorReply> {
    let first = prefix.first_key_argument();
    let keys = &strings[first..first + number];
    if prefix.takes_several_keys() {
        host.check_slots(keys)?;
    }
    Ok(keys)
}

/// The bytes of these keys; of one they need no heap.
#[inline]
fn names<'a, A: Argument<'a>>(keys: &[A]) -> SmallVec<[&'a [u8]; 1]> {
    match keys {
        [key] => SmallVec::from_buf([key.bytes()]),
        keys => keys.iter().map(|key| key.bytes()).collect(),
    }
}

/// A transaction may have paused writes itself. Redis does not delete expired keys then, and asserts if one is
/// overwritten.
#[inline]
fn refuse_while_paused<'h>(host: impl CommandHost<'h>) -> Result<(), ErrorReply> {
    if host.are_writes_paused() {
        return Err(errors::WRITES_PAUSED);
    }
    Ok(())
}

/// The connection that SESSION and NOTIFY need.
fn connection<'h>(host: impl CommandHost<'h>) -> Result<ClientId, ErrorReply> {
    host.connection().ok_or(errors::NO_CONNECTION)
}
