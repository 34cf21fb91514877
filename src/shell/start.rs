//! Loads the module.
//!
//! A failed load must leave nothing behind. The server removes what was registered, but Redis 7.0 keeps calling the
//! module for events, and no server stops its timers. So steps that may be refused come first and events last. No timer
//! is armed, because a server that rejects a setting unloads the module right after this.

use std::ffi::{c_int, CStr};

use redis_module::raw;

use super::background::{events, server_events, stall, timer, write_check};
use super::commands::dispatch;
use super::ffi::command_info::keys_of;
use super::ffi::context::{guard, Ctx};
use super::ffi::module::{introduce, is_valkey, set_options};
use super::ffi::replicate::UNCHECKED_ON_VALKEY;
use super::ffi::string::{arguments, OwnedStr, Str};
use super::ffi::{functions, main_thread, module};
use super::keyspace::{datatype, held_counts};
use super::observe::info;
use super::replication;
use super::{adopt, clock, engine_pass, settings};

/// The module's name in MODULE LIST.
const NAME: &CStr = c"lock";

/// The module's version in MODULE LIST: 1.0.0 is 10,000, 1.2.3 is 10,203. Cargo.toml is its only source.
const VERSION: i32 = 10_000 * number(env!("CARGO_PKG_VERSION_MAJOR"))
    + 100 * number(env!("CARGO_PKG_VERSION_MINOR"))
    + number(env!("CARGO_PKG_VERSION_PATCH"));

/// Parses digits, which Cargo has validated (`str::parse` cannot be called at compile time).
const fn number(digits: &str) -> i32 {
    let digits = digits.as_bytes();
    let (mut number, mut index) = (0, 0);
    while index < digits.len() {
        number = 10 * number + (digits[index] - b'0') as i32;
        index += 1;
    }
    assert!(number < 100, "minor and patch have two digits of the number each");
    number
}

/// `REDISMODULE_OPTIONS_HANDLE_IO_ERRORS`: the module returns an error for a truncated dump; without it the server
/// would exit. `REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED`, which is missing in the crate's bindings: keys are
/// signaled when they change, not when they are opened.
const OPTIONS: u32 = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | 1 << 1;

/// # Safety
/// Only the server may call it, when it loads the module.
#[no_mangle]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the context of this callback.
    if !unsafe { functions::find(ctx) } {
        return raw::REDISMODULE_ERR as c_int;
    }
    let started = guard("the load", || {
        // SAFETY: the context and arguments of this callback; without arguments `argv` may be null.
        let (ctx, args) = unsafe { (Ctx::new(ctx), if argc > 0 { arguments(argv, argc) } else { &[] }) };
        let Some(ctx) = ctx else { return false };
        start(ctx, args).inspect_err(|reason| ctx.warn(&format!("redis-lock: not loaded: {reason}"))).is_ok()
    });
    match started {
        Some(true) => raw::REDISMODULE_OK as c_int,
        Some(false) | None => raw::REDISMODULE_ERR as c_int,
    }
}

/// # Safety
/// Only the server may call it, before it unloads the module: Redis 8 does so after a MODULE LOADEX with settings that
/// the module does not have. MODULE UNLOAD is refused, because the module has a data type.
#[no_mangle]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnUnload(_: *mut raw::RedisModuleCtx) -> c_int {
    guard("the unload", timer::stop);
    raw::REDISMODULE_OK as c_int
}

fn start(ctx: Ctx<'_>, args: &[Str<'_>]) -> Result<(), String> {
    if !introduce(ctx, NAME, VERSION) {
        return Err("a module with this name is already loaded. CONFIG REWRITE adds a loadmodule line to the main \
                    configuration file even if an included file or an argument has one: keep only the line in \
                    the main file"
            .into());
    }
    settings::register(ctx, &pairs(args), [&adopt::PATTERNS, &adopt::OBSERVED])?;
    write_check::start(ctx);
    find_commands(ctx)?;
    if !datatype::register(ctx) {
        return Err("the server refused to register the data type".into());
    }
    dispatch::register_all(ctx).map_err(|command| format!("the server refused to register the command {command}"))?;
    if !module::register_info(ctx, info::on_info) {
        return Err("the server refused to register a section of INFO".into());
    }
    if !server_events::subscribe(ctx, held_counts::all_flushed) {
        return Err("the server refused to subscribe to an event: it must be Redis 7.0.5 or newer, or Valkey".into());
    }
    // If the server reports slot migrations, they may be allowed.
    let migrations = if server_events::subscribe_to_slot_migrations(ctx) { module::MAY_MIGRATE_SLOTS } else { 0 };
    let unchecked = if is_valkey() { UNCHECKED_ON_VALKEY } else { 0 };
    set_options(ctx, OPTIONS | migrations | unchecked);
    main_thread::start();
    clock::start();
    timer::start(ctx, engine_pass::on_timer);
    replication::count_consumers(ctx);
    stall::count_replicas(ctx);
    events::set_replica(!ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_MASTER));
    server_events::record_start();
    warn_of_eviction(ctx);
    adopt::begin(ctx);
    Ok(())
}

/// Checks for required commands that `rename-command` can remove.
///
/// # Errors
/// A command is missing; the error says why the module needs it.
fn find_commands(ctx: Ctx<'_>) -> Result<(), String> {
    let knows = |command: &str| {
        let words = [command, "key"].map(|word| OwnedStr::new(word.as_bytes()));
        !keys_of(ctx, &[words[0].as_str(), words[1].as_str()]).is_empty()
    };
    // Releases, and leases that the server ends, are replicated as DEL. A separate effect would not help: a server
    // without DEL cannot load an append-only file that contains one.
    if !knows("DEL") {
        return Err("the server has no DEL command (rename-command), which is needed to replicate releases: \
                    use ACL rules instead of rename-command"
            .into());
    }
    // While a slot is moving, a command with multiple keys uses EXISTS to find out whether all of them are here.
    if write_check::is_in_cluster() && !knows("EXISTS") {
        return Err("the server has no EXISTS command (rename-command), which requests for multiple keys need in a \
                    cluster: \
                    use ACL rules instead of rename-command"
            .into());
    }
    Ok(())
}

/// Groups the arguments into names and values; the last value may be missing. CONFIG REWRITE does not quote, so the
/// patterns of `adopt` extend up to the next name of a setting.
fn pairs(args: &[Str<'_>]) -> Vec<(String, Option<String>)> {
    let text = |arg: &Str<'_>| String::from_utf8_lossy(arg.bytes()).into_owned();
    let mut words = args.iter().map(text).peekable();
    let mut pairs = Vec::new();
    while let Some(name) = words.next() {
        let mut value = words.next();
        while let (Some(patterns), true) = (&mut value, settings::takes_patterns(&name)) {
            let Some(more) = words.next_if(|word| !settings::is_name(word)) else { break };
            *patterns += " ";
            *patterns += &more;
        }
        pairs.push((name, value));
    }
    pairs
}

/// Locks have an expiry, so both volatile-* and allkeys-* policies may evict them.
fn warn_of_eviction(ctx: Ctx<'_>) {
    if ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_EVICT) {
        ctx.warn("redis-lock: maxmemory-policy may evict held locks. Set it to noeviction if losing a lock matters.");
    }
}
