//! Whole commands: parse the arguments, let the engine decide, write the reply. The [`CommandHost`] does the rest.

mod adopted;
mod adopted_hash;
mod adoption;
mod inspect;
mod request;

use smallvec::SmallVec;

use crate::catalog::{Action, Command};
use crate::effect;
use crate::errors::{self, ErrorReply};
use crate::host::CommandHost;
use crate::parse::Argument;

pub use inspect::is_held;

/// The arguments of a command, beginning with its name: as the host has them, and their bytes.
#[derive(Clone, Copy)]
struct Arguments<'s, 'b, A> {
    strings: &'s [A],
    bytes: &'b [&'b [u8]],
}

/// Up to this many arguments are collected without heap allocation.
const FEW: usize = 16;

/// Runs a command. `strings` are its arguments, beginning with its name. Inlined, so that each entry point of the
/// server has a copy specialized for its command.
///
/// Acquiring and releasing one key reads the arguments in place; all other commands collect their bytes first. If
/// collected, an acquire/release pair would cost 1.08 times the bare module API instead of 1.05 (480 of 14,000
/// instructions, callgrind, Redis 7.0.15, 2026-11-25).
///
/// # Errors
/// The error reply, if nothing else was written. Nothing was changed.
#[inline(always)]
pub fn run<'h, H: CommandHost<'h>>(command: &Command, host: H, strings: &'h [H::Argument]) -> Result<(), ErrorReply> {
    if !command.accepts(strings.len()) {
        return Err(errors::wrong_arity(command.name));
    }
    match command.action {
        Action::Acquire(prefix) if !prefix.takes_multiple_keys() => request::acquire(prefix, host, strings, strings),
        Action::Release(prefix) if !prefix.takes_multiple_keys() => request::release(prefix, host, strings, strings),
        Action::Exec => host.exec(strings),
        Action::Adopted(container) => adopted::run(container, host, strings),
        action => {
            let bytes: SmallVec<[&[u8]; FEW]> = strings.iter().map(|string| string.bytes()).collect();
            run_with_bytes(action, host, Arguments { strings, bytes: &bytes })
        }
    }
}

#[inline(always)]
fn run_with_bytes<'h, H: CommandHost<'h>>(
    action: Action,
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    match action {
        Action::Acquire(prefix) => request::acquire(prefix, host, args.strings, args.bytes),
        Action::Release(prefix) => request::release(prefix, host, args.strings, args.bytes),
        Action::Renew(prefix) => request::renew(prefix, host, args),
        Action::Cancel => request::cancel(host, args),
        Action::Break => request::break_holds(host, args),
        Action::Held => inspect::held(host, args),
        Action::Info => inspect::info(host, args),
        Action::Waiters => inspect::waiters(host, args),
        Action::Scan => inspect::scan(host, args),
        Action::Top => inspect::top(host, args),
        Action::Log => inspect::log(host, args),
        Action::Help => inspect::help(&mut host, &args.bytes[1..]),
        Action::Apply => apply(host, args),
        Action::Exec => host.exec(args.strings),
        Action::Adopted(container) => adopted::run(container, host, args.strings),
        Action::Adoption => adoption::run(host, args),
    }
}

/// `LOCK.APPLY key …`: an effect from the primary or the append-only file.
fn apply<'h, H: CommandHost<'h>>(mut host: H, args: Arguments<'h, '_, H::Argument>) -> Result<(), ErrorReply> {
    if !host.is_replicated() {
        return Err(errors::APPLY_IS_INTERNAL);
    }
    let Some(effect) = effect::decode(&args.bytes[2..]) else {
        host.update(|manager| manager.observer.statistics.effects_not_applied += 1);
        return Err(match effect::other_version(&args.bytes[2..]) {
            Some(version) => errors::effect_of_other_version(version, effect::FORMAT_VERSION),
            None => errors::syntax("not an effect that this version supports"),
        });
    };
    host.apply_effect(args.strings[1], effect);
    host.status("OK");
    Ok(())
}
