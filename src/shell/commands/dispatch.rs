//! Registers the commands of the catalog, and contains their entry points.

use std::ffi::c_int;

use command::catalog::{Action, CATALOG, COUNT};
use command::errors;
use command::reply::ReplyWriter;
use command::run::run;
use redis_module::raw;
use seq_macro::seq;

use super::exec;
use crate::shell::adopt;
use crate::shell::background::write_check;
use crate::shell::ffi::command_info::{add_acl_category, register, CommandEntry};
use crate::shell::ffi::context::{guard, Ctx};
use crate::shell::ffi::string::arguments;

/// The ACL category of the module's commands.
const CATEGORY: &str = "lock";

/// Registers all commands.
///
/// # Errors
/// The name of the command that the server rejected.
pub fn register_all(ctx: Ctx<'_>) -> Result<(), &'static str> {
    if !add_acl_category(ctx, CATEGORY) {
        ctx.warn(
            "redis-lock: the ACL category 'lock' exists already, from another module or a load that failed: \
             rules with @lock apply to the commands of both",
        );
    }
    CATALOG.iter().zip(ENTRIES).try_for_each(|(command, entry)| {
        let registered = match command.action.container() {
            Some(_) => adopt::register(ctx, command, entry, CATEGORY),
            None => register(ctx, command, entry, CATEGORY),
        };
        registered.ok_or(command.name)
    })
}

// The server passes no data to a command's function, so each command of the catalog needs its own function.
seq!(INDEX in 0..29 {
    /// The entry points, in the order of the catalog.
    const ENTRIES: [CommandEntry; COUNT] = [#(enter::<INDEX>,)*];
});

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
        if CATALOG[INDEX].action == Action::Exec && ctx.is_keys_request() {
            exec::report_keys(ctx, strings);
            return;
        }
        // The probe of the write check: nothing is written.
        if CATALOG[INDEX].action == Action::Apply && write_check::is_probing() {
            ctx.status("OK");
            return;
        }
        if let Err(error) = run(&CATALOG[INDEX], ctx, strings) {
            ctx.error(&error);
        }
    });
    if ran.is_none() {
        ctx.error(&errors::INTERNAL_ERROR);
    }
    raw::REDISMODULE_OK as c_int
}
