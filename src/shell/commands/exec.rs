//! `LOCK.EXEC key token command [arg …]`: the server runs a command, if the token holds the lock.
//!
//! The command may be any of the module's own, and may release, delete or overwrite the lock: while it runs, neither
//! the state is borrowed nor a key open. What it does is noticed as if a client had sent it.

use std::cell::Cell;
use std::ffi::CString;

use command::catalog::{Access, CATALOG};
use command::errors::{self, ErrorReply};
use command::name::Prefix;
use command::parse::key_positions;

use super::arguments::Arguments;
use super::inspect;
use crate::shell::background::gate;
use crate::shell::background::slots::slot_of;
use crate::shell::ffi::call::{call_again, CallAs, CallReply, Refusal};
use crate::shell::ffi::command_keys::{key_flags, keys_of, KeyArgument};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::module::is_valkey;
use crate::shell::ffi::string::Str;
use crate::shell::turn;

/// Which argument is the command's name.
const COMMAND_ARGUMENT: usize = 3;

/// Runs the command.
pub fn run(ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    let _innermost = Innermost::enter(&RUNNING).ok_or(errors::EXEC_WITHIN_EXEC)?;
    let (key, command) = (args.strings[1], &args.strings[COMMAND_ARGUMENT..]);
    let keys = inner_keys(ctx, key, command)?;
    if !inspect::is_held(ctx, key, args.bytes[2])? {
        turn::of_count(|statistics| statistics.execs_not_held += 1);
        return Err(errors::NOT_HELD);
    }
    check_all_keys(ctx, key, command, &keys)?;
    let reply = call(ctx, command, &keys)?;
    if reply.refusal().is_none() {
        turn::of_count(|statistics| statistics.execs += 1);
    }
    if ctx.reply_with(&reply) {
        Ok(())
    } else {
        Err(errors::UNTELLABLE)
    }
}

/// The server asks for the keys of a LOCK.EXEC: the lock's, then its command's.
pub fn tell_keys(ctx: Ctx<'_>, strings: &[Str<'_>]) {
    ctx.tell_key(KeyArgument { position: 1, flags: key_flags(Access::Read) });
    // A command that has keys of a further LOCK.EXEC, directly or by way of another module, would have us called within
    // us, as deep as there are arguments.
    let (Some(_outermost), Some(command)) = (Innermost::enter(&TELLING), strings.get(COMMAND_ARGUMENT..)) else {
        return;
    };
    for key in all_keys_of(ctx, command) {
        ctx.tell_key(KeyArgument { position: key.position + COMMAND_ARGUMENT, ..key });
    }
}

/// The keys of a command. Of those that count their keys the server knows the first only: see `key_specs`.
fn all_keys_of(ctx: Ctx<'_>, command: &[Str<'_>]) -> Vec<KeyArgument> {
    let is_named =
        |name: &str| command.first().is_some_and(|first| first.bytes().eq_ignore_ascii_case(name.as_bytes()));
    let counted = CATALOG.iter().find(|own| own.action.takes_several_keys() && is_named(own.name));
    match counted.and_then(|own| own.access) {
        Some(access) => {
            let flags = key_flags(access);
            key_positions(Prefix::Mlock, command).map(|position| KeyArgument { position, flags }).collect()
        }
        None => keys_of(ctx, command),
    }
}

/// The keys of the command, in a cluster: they have the lock's slot.
///
/// # Errors
/// In a cluster: some have another. The server says so itself where it was told of them. It must not find out when it
/// is called: see [`call_again`].
fn inner_keys(ctx: Ctx<'_>, key: Str<'_>, command: &[Str<'_>]) -> Result<Vec<KeyArgument>, ErrorReply> {
    if !gate::is_in_cluster() {
        return Ok(Vec::new());
    }
    let (own_slot, keys) = (slot_of(key.bytes()), all_keys_of(ctx, command));
    if keys.iter().any(|key| slot_of(command[key.position].bytes()) != own_slot) {
        return Err(errors::CROSS_SLOT);
    }
    Ok(keys)
}

/// In a cluster of Valkeys: whether this node has the command's keys and the lock's. The server was told of the lock's
/// only.
///
/// # Errors
/// Their slot is on its way to this node, and some have not come. The call would not find out: it is made with the
/// client's ASKING, which was meant for the lock, and would write a key here that is still at the slot's old node.
fn check_all_keys(ctx: Ctx<'_>, key: Str<'_>, command: &[Str<'_>], keys: &[KeyArgument]) -> Result<(), ErrorReply> {
    if keys.is_empty() || !is_valkey() {
        return Ok(());
    }
    let all: Vec<_> = std::iter::once(key).chain(keys.iter().map(|key| command[key.position])).collect();
    gate::check_slots(ctx, &all)
}

fn call(ctx: Ctx<'_>, command: &[Str<'_>], keys: &[KeyArgument]) -> Result<CallReply, ErrorReply> {
    let (name, args) = command.split_first().ok_or(errors::SYNTAX)?;
    let name = CString::new(name.bytes()).map_err(|_| errors::UNKNOWN_COMMAND)?;
    let call_as = |call_as| ctx.call(call_as, &name, args).ok_or(errors::INTERNAL_ERROR);
    let call = || {
        let reply = call_as(CallAs::Caller)?;
        match reply.refusal() {
            Some(Refusal::NoUser) => call_as(CallAs::Module),
            _ => Ok(reply),
        }
    };
    let mut reply = call()?;
    if gate::is_in_cluster() && reply.refusal() == Some(Refusal::NotMySlot) {
        reply = call_again(ctx, call)?;
        // The node has the lock's slot, and the keys have no other.
        if !keys.is_empty() && reply.refusal() == Some(Refusal::NotMySlot) {
            return Err(errors::TRY_AGAIN);
        }
    }
    match reply.error().and_then(errors::refused_by_server) {
        Some(refusal) => Err(refusal),
        None => Ok(reply),
    }
}

static RUNNING: MainThread<Cell<bool>> = MainThread(Cell::new(false));
static TELLING: MainThread<Cell<bool>> = MainThread(Cell::new(false));

/// What must not happen within itself happens as long as this lives.
struct Innermost(&'static Cell<bool>);

impl Innermost {
    /// `None`: it happens already.
    fn enter(happens: &'static MainThread<Cell<bool>>) -> Option<Innermost> {
        (!happens.0.replace(true)).then_some(Innermost(&happens.0))
    }
}

impl Drop for Innermost {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
