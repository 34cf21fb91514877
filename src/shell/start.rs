//! What happens when the module is loaded.

use redis_module::{raw, Context, RedisString, Status};

use super::api::{api, Ctx};
use super::config;
use super::drain;
use super::events;
use super::gate;
use super::listen;
use super::register;
use super::state::{self, Mark};

/// `REDISMODULE_OPTIONS_HANDLE_IO_ERRORS`: a dump that is cut short is an error of ours, not the end of the server. And
/// `REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED`, which the crate's bindings leave out: keys signal when they changed, not when opened.
const OPTIONS: u32 = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | 1 << 1;

/// Called by the server after the data type and the settings were registered.
pub fn start(context: &Context, args: &[RedisString]) -> Status {
    // SAFETY: the context of the load that is running.
    let Some(ctx) = (unsafe { Ctx::new(context.ctx) }) else { return Status::Err };
    if let Err(argument) = check_args(args) {
        ctx.log(
            c"warning",
            &format!(
                "redis-lock: bad module argument '{argument}': give names and values in pairs: {}",
                config::described()
            ),
        );
        return Status::Err;
    }
    // SAFETY: the context is valid.
    unsafe { api!(RedisModule_SetModuleOptions(ctx.raw(), OPTIONS as i32)) };
    if let Err(command) = register::all(ctx) {
        ctx.log(c"warning", &format!("redis-lock: the server refuses the command {command}"));
        return Status::Err;
    }
    if !events::subscribe(ctx) {
        ctx.log(c"warning", "redis-lock: the server refuses an event: it must be Redis 7.0 or newer, or Valkey");
        return Status::Err;
    }
    gate::start(ctx);
    drain::start(ctx);
    listen::look_again(ctx);
    state::mark(Mark::Began(state::now().at()));
    warn_of_eviction(ctx);
    Status::Ok
}

/// Called when the module is unloaded, which the server refuses as long as it has a data type.
pub fn stop(_: &Context) -> Status {
    drain::stop();
    Status::Ok
}

/// The arguments are names and values in pairs; a name that is none of ours is an error rather than a surprise.
fn check_args(args: &[RedisString]) -> Result<(), String> {
    for pair in args.chunks(2) {
        let name = pair[0].to_string_lossy();
        let value = pair.get(1).and_then(|value| value.parse_integer().ok());
        if !value.is_some_and(|value| config::accepts(&name, value)) {
            return Err(name);
        }
    }
    Ok(())
}

/// Locks have a time to live, so both volatile-* and allkeys-* may evict them.
fn warn_of_eviction(ctx: Ctx) {
    if ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_EVICT) {
        ctx.log(
            c"warning",
            "redis-lock: maxmemory-policy may evict locks that are held. Set it to noeviction where a lost lock matters.",
        );
    }
}
