//! How a command comes in: its arguments are taken from the server, its arity is checked, its kind is found.

use std::ffi::c_int;

use command::catalog::{Action, Command, CATALOG, COUNT};
use command::errors::{self, ErrorReply};
use command::reply::ReplyWriter;
use redis_module::raw;
use seq_macro::seq;
use smallvec::SmallVec;

use super::arguments::Arguments;
use super::{acquire, apply, breaking, cancel, exec, help, inspect, log, release, renew, scan, top};
use crate::shell::ffi::command_info::CommandEntry;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::guard::guard;
use crate::shell::ffi::string::{arguments, Str};

// The server passes no data to a command's function, so each command of the catalog has one of its own.
seq!(INDEX in 0..26 {
    /// The entry of every command of the catalog, in its order.
    pub const ENTRIES: [CommandEntry; COUNT] = [#(enter::<INDEX>,)*];
});

/// At most this many arguments need no heap.
const FEW: usize = 16;

unsafe extern "C" fn enter<const INDEX: usize>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the context and the arguments of the command that is running.
    let (Some(mut ctx), strings) = (unsafe { (Ctx::new(ctx), arguments(argv, argc)) }) else {
        return raw::REDISMODULE_ERR as c_int;
    };
    let ran = guard(CATALOG[INDEX].name, || {
        if CATALOG[INDEX].action == Action::Exec && ctx.is_asked_for_keys() {
            exec::tell_keys(ctx, strings);
            return;
        }
        if let Err(error) = dispatch(&CATALOG[INDEX], ctx, strings) {
            ctx.error(&error);
        }
    });
    if ran.is_none() {
        ctx.error(&errors::INTERNAL_ERROR);
    }
    raw::REDISMODULE_OK as c_int
}

#[inline(always)]
fn dispatch<'a>(command: &Command, ctx: Ctx<'a>, strings: &'a [Str<'a>]) -> Result<(), ErrorReply> {
    if !command.accepts(strings.len()) {
        ctx.reply_wrong_arity();
        return Ok(());
    }
    match command.action {
        Action::Acquire(prefix) if !prefix.takes_several_keys() => acquire::run(prefix, ctx, strings, strings),
        Action::Release(prefix) if !prefix.takes_several_keys() => release::run(prefix, ctx, strings, strings),
        action => {
            let bytes: SmallVec<[&[u8]; FEW]> = strings.iter().map(|string| string.bytes()).collect();
            let args = Arguments { strings, bytes: &bytes };
            match action {
                Action::Acquire(prefix) => acquire::run(prefix, ctx, strings, args.bytes),
                Action::Release(prefix) => release::run(prefix, ctx, strings, args.bytes),
                Action::Renew(prefix) => renew::run(prefix, ctx, args),
                Action::Cancel => cancel::run(ctx, args),
                Action::Held => inspect::held(ctx, args),
                Action::Exec => exec::run(ctx, args),
                Action::Info => inspect::info(ctx, args),
                Action::Waiters => inspect::waiters(ctx, args),
                Action::Log => log::run(ctx, args),
                Action::Scan => scan::run(ctx, args),
                Action::Top => top::run(ctx, args),
                Action::Break => breaking::run(ctx, args),
                Action::Help => help::run(ctx),
                Action::Apply => apply::run(ctx, args),
            }
        }
    }
}
