//! Adoption: the setting `lock.adopt`, and the command filter that puts `LOCK.ADOPTED` or `LOCK.ADOPTED_RO` in front of
//! the commands of other locks.
//!
//! The filter is called for every command of the server, so it is registered with the first pattern, and most commands
//! leave it after the first byte of their first argument. It has no context and decides nothing: the command looks at
//! the key. Once registered it stays: native locks under former patterns are answered until they have ended.

use std::ffi::c_int;
use std::ptr::null_mut;

use command::adopted::{self, BadPatterns, Original, MOST_PATTERNS, ORIGINALS};
use command::errors::Quoted;
use lock::value::claim::Family;
use redis_module::raw;

use super::background::timer;
use super::ffi::context::{guard, Ctx};
use super::ffi::filter::{self, FilteredCommand};
use super::ffi::module::Text;
use super::ffi::server::version;
use super::ffi::string::OwnedStr;
use super::main_state::MAIN;

pub mod original;
mod subcommands;
pub mod unlock;

pub use subcommands::register;

/// The setting `lock.adopt`.
pub static PATTERNS: Text = Text { get: setting, set: set_patterns };

/// Sets the patterns, for all commands from now on.
///
/// # Errors
/// What to tell the operator.
fn set_patterns(setting: &[u8]) -> Result<(), String> {
    let changed = MAIN.adopt.keys.borrow().change(setting).map_err(|bad| match bad {
        BadPatterns::NoPattern(word) => {
            format!("{} has no pattern: name keys as 'lock:*', or 'hash:lock:*' for locks in a hash", Quoted(&word))
        }
        BadPatterns::TooMany => {
            format!("more than {MOST_PATTERNS} patterns, with those that it had since the start: restart the server")
        }
    })?;
    MAIN.adopt.has_hashes.set(changed.has_hashes());
    for (byte, may_begin_with_it) in (0..=u8::MAX).zip(&MAIN.adopt.may_begin_with) {
        may_begin_with_it.set(changed.may_begin_with(byte));
    }
    MAIN.adopt.keys.replace(changed);
    MAIN.adopt.setting.replace(Some(OwnedStr::new(setting)));
    if let Some(ctx) = timer::own_context() {
        begin(ctx);
    }
    Ok(())
}

/// The setting in the operator's words, for the server. It owns none of it.
fn setting() -> *mut raw::RedisModuleString {
    MAIN.adopt.setting.borrow().as_ref().map_or(null_mut(), |setting| setting.as_str().raw())
}

/// Redis 7.0.6 and 7.0.7: a filter that adds an argument to a command of a script writes behind the end of its
/// arguments (redis/redis#11652).
const FILTER_IS_UNSAFE: [c_int; 2] = [0x0007_0006, 0x0007_0007];

/// Registers the filter, if there is a pattern. The last step of a load: a load that fails leaves no filter behind.
pub fn begin(ctx: Ctx<'_>) {
    if MAIN.adopt.keys.borrow().is_empty() || MAIN.adopt.is_filtering.replace(true) {
        return;
    }
    if FILTER_IS_UNSAFE.contains(&version()) {
        ctx.warn("redis-lock: Redis 7.0.6 and 7.0.7 have no safe command filter: lock.adopt has no effect");
    } else if !filter::register(ctx, on_command) {
        ctx.warn("redis-lock: the server refuses the command filter: lock.adopt has no effect");
    }
}

/// Whether a lock of this family may be granted on the key.
pub fn adopts(key: &[u8], family: Family) -> bool {
    MAIN.adopt.keys.borrow().adopt(key, family)
}

/// Whether the key is or was among the patterns.
pub fn may_hold_adopted(key: &[u8]) -> bool {
    MAIN.adopt.keys.borrow().may_hold_adopted(key)
}

/// Whether the server has this command: `DELIFEQ` and `DELEX` are new, and any may be renamed away.
fn is_known(original: Original) -> bool {
    MAIN.adopt.known.get() & bit(original) != 0
}

fn bit(original: Original) -> u32 {
    const _: () = assert!(ORIGINALS.len() <= 32);
    1 << original as u32
}

unsafe extern "C" fn on_command(command: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: it is what the server passed.
    let command = unsafe { FilteredCommand::new(command) };
    // It stands before the guard, which takes as many instructions: nothing in it can panic.
    if may_be_translated(&command) {
        translate_guarded(command);
    }
}

#[inline(never)]
fn translate_guarded(command: FilteredCommand<'_>) {
    guard("command filter", || translate(&command));
}

/// False of nearly all commands of a server.
#[inline]
fn may_be_translated(command: &FilteredCommand<'_>) -> bool {
    if MAIN.adopt.is_calling_original.get() {
        return true;
    }
    let Some(first) = command.first_byte(1) else { return false };
    let begins = MAIN.adopt.may_begin_with[usize::from(first)].get();
    adopted::may_be_translated(begins, || command.len(), || command.first_byte(0))
}

/// The filter.
fn translate(command: &FilteredCommand<'_>) {
    // The module's own call of an original.
    if MAIN.adopt.is_calling_original.replace(false) {
        return;
    }
    let Some(original) = command.arg(0).and_then(Original::named) else { return };
    let Ok(keys) = MAIN.adopt.keys.try_borrow() else { return };
    if let Some(container) = keys.container_of(original, || command.len(), |position| command.arg(position)) {
        if is_known(original) {
            command.insert_first(container.name().as_bytes());
        }
    }
}
