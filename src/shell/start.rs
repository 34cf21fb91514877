//! What happens when the module is loaded.

use redis_module::{raw, Context, RedisString, Status};

use super::background::{command_watch, gate, server_events, stall, timer};
use super::commands::registration;
use super::ffi::context::Ctx;
use super::ffi::info as ffi_info;
use super::ffi::module::{is_valkey, set_options};
use super::ffi::replicate::UNCHECKED_ON_VALKEY;
use super::ffi::slot_migration;
use super::keyspace::datatype::REDISLOCK;
use super::keyspace::{held, key_events, lock_memory};
use super::observe::info;
use super::replication::consumers;
use super::{clock, settings, turn};

/// `REDISMODULE_OPTIONS_HANDLE_IO_ERRORS`: a dump that is cut short is an error of ours, not the end of the server. And
/// `REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED`, which the crate's bindings leave out: keys signal when they
/// changed, not when they are opened.
const OPTIONS: u32 = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | 1 << 1;

/// Called by the server after the data type was registered.
pub fn start(context: &Context, args: &[RedisString]) -> Status {
    // SAFETY: the context of the load that is running.
    let Some(ctx) = (unsafe { Ctx::new(context.ctx) }) else { return Status::Err };
    match try_start(ctx, context, args) {
        Ok(()) => Status::Ok,
        Err(reason) => {
            ctx.warn(&format!("redis-lock: {reason}"));
            Status::Err
        }
    }
}

/// Called when the module is unloaded, which the server refuses as long as it has a data type.
pub fn stop(_: &Context) -> Status {
    timer::stop();
    Status::Ok
}

fn try_start(ctx: Ctx<'_>, context: &Context, args: &[RedisString]) -> Result<(), String> {
    held::start();
    lock_memory::start(*REDISLOCK.raw_type.borrow());
    settings::register(ctx, context, &pairs(args)).map_err(|argument| {
        let settings = settings::described();
        format!("bad module argument '{argument}': give names and values in pairs: {settings}")
    })?;
    // Where the server tells of its slot migrations, it may migrate.
    let migrations = if server_events::subscribe_to_slot_migrations(ctx) { slot_migration::OPTION } else { 0 };
    let unchecked = if is_valkey() { UNCHECKED_ON_VALKEY } else { 0 };
    set_options(ctx, OPTIONS | migrations | unchecked);
    registration::register_all(ctx).map_err(|command| format!("the server refuses the command {command}"))?;
    if !server_events::subscribe(ctx, held::all_flushed) {
        return Err("the server refuses an event: it must be Redis 7.0 or newer, or Valkey".into());
    }
    if !ffi_info::register(ctx, info::on_info) {
        return Err("the server refuses a section of INFO".into());
    }
    gate::start(ctx);
    clock::start();
    timer::start(ctx, turn::on_timer);
    command_watch::start(key_events::on_command);
    consumers::count(ctx);
    stall::count_replicas(ctx);
    server_events::note_begin();
    warn_of_eviction(ctx);
    Ok(())
}

/// The arguments as names and values; a value that is no number, or missing, is none.
fn pairs(args: &[RedisString]) -> Vec<(String, Option<i64>)> {
    let value = |pair: &[RedisString]| pair.get(1).and_then(|value| value.parse_integer().ok());
    args.chunks(2).map(|pair| (pair[0].to_string_lossy(), value(pair))).collect()
}

/// Locks have a time to live, so both volatile-* and allkeys-* may evict them.
fn warn_of_eviction(ctx: Ctx<'_>) {
    if ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_EVICT) {
        ctx.warn(
            "redis-lock: maxmemory-policy may evict locks that are held. \
             Set it to noeviction where a lost lock matters.",
        );
    }
}
