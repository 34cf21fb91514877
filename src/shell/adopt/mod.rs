//! Adoption: the settings `lock.adopt` and `lock.adopt-observe`, and the command filter that prefixes the commands of
//! other lock libraries with `LOCK.ADOPTED` or `LOCK.ADOPTED_RO`.
//!
//! The server calls a filter for every command, so the filter is registered only with the first pattern, and it rejects
//! most commands by the first byte of their first argument. It has no context and decides nothing: the command itself
//! looks at the key. Once registered it stays, because native locks under former patterns are served until they have
//! ended.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::ptr::null_mut;

use command::adopted::seen::{self, ObservedCaller, Seen};
use command::adopted::{self, AdoptedKeys, BadPatterns, Original, PatternMode, PatternRow, MOST_PATTERNS, ORIGINALS};
use command::errors::Quoted;
use command::host::VisitedKey;
use lock::value::claim::LockType;
use redis_module::raw;
use smallvec::SmallVec;

use super::background::timer;
use super::clock;
use super::ffi::context::{guard, Ctx};
use super::ffi::filter::{self, FilteredCommand};
use super::ffi::main_thread::MainThread;
use super::ffi::module::TextSetting;
use super::ffi::server::version;
use super::ffi::string::OwnedStr;
use super::settings;

pub mod original;
mod subcommands;
pub mod unlock;

pub use subcommands::register;

static ADOPTION: MainThread<Adopt> = MainThread::new(Adopt {
    keys: RefCell::new(AdoptedKeys::none()),
    observed: RefCell::new(AdoptedKeys::none()),
    is_observing: Cell::new(false),
    may_begin_with: [const { Cell::new(false) }; 256],
    has_hashes: Cell::new(false),
    setting: RefCell::new(None),
    observed_setting: RefCell::new(None),
    known: Cell::new(0),
    is_filtering: Cell::new(false),
    is_calling_original: Cell::new(false),
    released: Cell::new(0),
});

/// Commands of other lock libraries.
struct Adopt {
    keys: RefCell<AdoptedKeys>,
    /// The patterns that are only observed.
    observed: RefCell<AdoptedKeys>,
    is_observing: Cell<bool>,
    /// Whether a matching key, including observed ones, may begin with this byte.
    may_begin_with: [Cell<bool>; 256],
    /// Whether any pattern is for locks in a hash.
    has_hashes: Cell<bool>,
    /// The settings as the operator wrote them.
    setting: RefCell<Option<OwnedStr>>,
    observed_setting: RefCell<Option<OwnedStr>>,
    /// The original commands that the server has, one bit each.
    known: Cell<u32>,
    is_filtering: Cell<bool>,
    /// Whether the next command that the filter sees was called by the module itself.
    is_calling_original: Cell<bool>,
    /// How many locks were released by DEL.
    released: Cell<u64>,
}

pub static PATTERNS: TextSetting = TextSetting { get: || text_of(&ADOPTION.setting), set: set_patterns };

pub static OBSERVED: TextSetting = TextSetting { get: || text_of(&ADOPTION.observed_setting), set: set_observed };

/// Sets the patterns, effective from the next command.
///
/// # Errors
/// The error message for the operator.
fn set_patterns(setting: &[u8]) -> Result<(), String> {
    let changed = ADOPTION.keys.borrow().change(setting).map_err(|bad| error_text(&bad))?;
    ADOPTION.has_hashes.set(changed.has_hashes());
    ADOPTION.keys.replace(changed);
    ADOPTION.setting.replace(Some(OwnedStr::new(setting)));
    changed_patterns(PatternMode::Adopt);
    Ok(())
}

/// Sets the patterns that are only observed, effective from the next command.
///
/// # Errors
/// See `set_patterns`.
fn set_observed(setting: &[u8]) -> Result<(), String> {
    let changed = ADOPTION.observed.borrow().observe(setting).map_err(|bad| error_text(&bad))?;
    ADOPTION.is_observing.set(!changed.is_empty());
    ADOPTION.observed.replace(changed);
    ADOPTION.observed_setting.replace(Some(OwnedStr::new(setting)));
    changed_patterns(PatternMode::Observe);
    Ok(())
}

fn error_text(bad: &BadPatterns) -> String {
    match bad {
        BadPatterns::NoPattern(word) => {
            format!(
                "{} contains no pattern: use patterns such as 'lock:*', or 'hash:lock:*' for locks stored in hashes",
                Quoted(word)
            )
        }
        BadPatterns::TooMany => {
            format!(
                "more than {MOST_PATTERNS} patterns, including those set since the server started: restart the server"
            )
        }
    }
}

fn changed_patterns(mode: PatternMode) {
    let (keys, observed) = (ADOPTION.keys.borrow(), ADOPTION.observed.borrow());
    for (byte, may_begin_with_it) in (0..=u8::MAX).zip(&ADOPTION.may_begin_with) {
        may_begin_with_it.set(keys.may_begin_with(byte) || observed.may_begin_with(byte));
    }
    let rows: Vec<_> =
        if mode == PatternMode::Adopt { keys.rows(mode).collect() } else { observed.rows(mode).collect() };
    drop((keys, observed));
    if let Some(ctx) = timer::own_context() {
        begin(ctx);
        warn(ctx, mode, &rows);
    }
}

/// At most this many keys are visited when a pattern is set.
const MOST_VISITED: usize = 10_000;

/// Warns about patterns that are probably mistakes. They are accepted, and LOCK.ADOPTION REPORT says the same.
fn warn(ctx: Ctx<'_>, mode: PatternMode, rows: &[PatternRow]) {
    let set: Vec<_> = rows.iter().filter(|row| row.mode == mode).collect();
    let setting = if mode == PatternMode::Adopt { "lock.adopt" } else { "lock.adopt-observe" };
    if set.is_empty() {
        return;
    }
    let matching = |key: &[u8]| set.iter().any(|row| row.matches(key));
    let visited = original::keys_and_types(ctx, MOST_VISITED, matching).unwrap_or_default();
    for row in set {
        let pattern = row.text();
        let pattern = Quoted(&pattern);
        if row.matches_all() {
            ctx.warn(&format!("redis-lock: {setting}: the pattern {pattern} matches every key"));
            continue;
        }
        let wanted = [Some("redislock"), Some(if row.is_hash { "hash" } else { "string" })];
        let is_other =
            |key: &&VisitedKey| key.kind.is_some() && row.matches(&key.name) && !wanted.contains(&key.kind.as_deref());
        if let Some(VisitedKey { name, kind: Some(kind) }) = visited.iter().find(is_other) {
            let key = Quoted(name);
            ctx.warn(&format!("redis-lock: {setting}: the pattern {pattern} matches the key {key} of type {kind}"));
        }
    }
}

/// A setting as the operator wrote it. The server only borrows it.
fn text_of(setting: &RefCell<Option<OwnedStr>>) -> *mut raw::RedisModuleString {
    setting.borrow().as_ref().map_or(null_mut(), |setting| setting.as_str().raw())
}

/// Redis 7.0.6 and 7.0.7: a filter that adds an argument to a command of a script writes past the end of its argument
/// array (redis/redis#11652).
const FILTER_IS_UNSAFE: [c_int; 2] = [0x0007_0006, 0x0007_0007];

/// Registers the filter if there is a pattern. This is the last step of a load, so a failed load leaves no filter
/// behind.
pub fn begin(ctx: Ctx<'_>) {
    let is_none = ADOPTION.keys.borrow().is_empty() && ADOPTION.observed.borrow().is_empty();
    if is_none || ADOPTION.is_filtering.replace(true) {
        return;
    }
    if FILTER_IS_UNSAFE.contains(&version()) {
        ctx.warn("redis-lock: command filters are unsafe in Redis 7.0.6 and 7.0.7: lock.adopt has no effect");
    } else if !filter::register(ctx, on_command) {
        ctx.warn("redis-lock: the server refused to register the command filter: lock.adopt has no effect");
    }
}

/// Whether a lock of this type may be granted on the key.
pub fn adopts(key: &[u8], lock_type: LockType) -> bool {
    ADOPTION.keys.borrow().adopt(key, lock_type)
}

/// Whether native holds of the key are protected.
pub fn protects(key: &[u8]) -> bool {
    ADOPTION.keys.borrow().is_among(key)
}

/// Whether a current or former pattern matches the key.
pub fn may_hold_adopted(key: &[u8]) -> bool {
    ADOPTION.keys.borrow().may_hold_adopted(key)
}

/// Whether a SET may wait for this key.
#[inline]
pub fn may_be_waited_for(key: &[u8]) -> bool {
    settings::adopt_wait().is_some() && may_hold_adopted(key)
}

/// Whether any pattern is for locks in a hash.
#[inline]
pub fn has_hashes() -> bool {
    ADOPTION.has_hashes.get()
}

/// An old client has released its lock by DEL.
pub fn count_release() {
    ADOPTION.released.set(released() + 1);
}

/// How many locks were released by DEL.
pub fn released() -> u64 {
    ADOPTION.released.get()
}

/// Whether the server has this command: `DELIFEQ` and `DELEX` are recent, and any command may have been renamed.
fn is_known(original: Original) -> bool {
    ADOPTION.known.get() & bit(original) != 0
}

fn bit(original: Original) -> u32 {
    const _: () = assert!(ORIGINALS.len() <= 32);
    1 << original as u32
}

unsafe extern "C" fn on_command(command: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: the server passed it to this callback.
    let command = unsafe { FilteredCommand::new(command) };
    // Checked before the panic guard, which takes as many instructions: nothing here can panic.
    if may_be_translated(&command) {
        translate_guarded(command);
    }
}

#[inline(never)]
fn translate_guarded(command: FilteredCommand<'_>) {
    guard("command filter", || translate(&command));
}

/// False for nearly every command of a server.
#[inline]
fn may_be_translated(command: &FilteredCommand<'_>) -> bool {
    if ADOPTION.is_calling_original.get() {
        return true;
    }
    let Some(first) = command.first_byte(1) else { return false };
    let begins = ADOPTION.may_begin_with[usize::from(first)].get();
    adopted::may_be_translated(begins, || command.len(), || command.first_byte(0))
}

fn translate(command: &FilteredCommand<'_>) {
    // The module itself is calling an original command.
    if ADOPTION.is_calling_original.replace(false) {
        return;
    }
    let Some(name) = command.arg(0) else { return };
    let original = Original::named(name);
    if original.is_some_and(|original| put_in_front(command, original)) {
        return;
    }
    // Skipped for module commands such as LOCK.ACQUIRE, so that they cost no more than without adoption.
    if original.is_none() && !name.contains(&b'.') && seen::has_type(name) {
        see(command, |words| ADOPTION.keys.borrow_mut().see_wrong_type(words));
    }
    if ADOPTION.is_observing.get() && !name.contains(&b'.') {
        observe(command);
    }
}

/// Prefixes a command with its container if it is to be translated. False: it is not.
fn put_in_front(command: &FilteredCommand<'_>, original: Original) -> bool {
    let Ok(keys) = ADOPTION.keys.try_borrow() else { return false };
    let Some(container) = keys.container_of(original, || command.len(), |position| command.arg(position)) else {
        return false;
    };
    if matches!(original, Original::Del | Original::Unlink) && filter::is_in_script_or_follows() || !is_known(original)
    {
        return false;
    }
    drop(keys);
    command.insert_first(container.name().as_bytes());
    true
}

/// Counts a command on keys that are only observed. Commands from a primary or a file were counted where they were
/// first run.
fn observe(command: &FilteredCommand<'_>) {
    let caller = match filter::caller() {
        filter::Caller::Log => return,
        filter::Caller::Script => ObservedCaller::Script,
        filter::Caller::Connection => ObservedCaller::Connection,
    };
    let (client, now_ms) = (command.client(), clock::now().timestamp().ms());
    see(command, |words| {
        ADOPTION.observed.borrow_mut().see(seen::ObservedCommand { words, from: caller, client, now_ms });
    });
}

/// The most arguments of a command that are inspected.
const MOST_ARGUMENTS: usize = 256;

fn see(command: &FilteredCommand<'_>, see: impl FnOnce(&[&[u8]])) {
    let words: SmallVec<[&[u8]; 8]> = (0..command.len().min(MOST_ARGUMENTS)).filter_map(|at| command.arg(at)).collect();
    see(&words);
}

/// All patterns with their counters.
pub fn rows() -> Vec<PatternRow> {
    let (keys, observed) = (ADOPTION.keys.borrow(), ADOPTION.observed.borrow());
    keys.rows(PatternMode::Adopt).chain(observed.rows(PatternMode::Observe)).collect()
}

/// Counts the outcome of a command on a key of `lock.adopt`, which holds or would hold a lock of this type.
pub fn count(key: &[u8], lock_type: LockType, count: impl FnOnce(&mut Seen)) {
    if let Ok(mut keys) = ADOPTION.keys.try_borrow_mut() {
        if let Some(seen) = keys.seen_mut(key, lock_type) {
            count(seen);
        }
    }
}
