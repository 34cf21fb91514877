//! What happens to single keys outside the module's commands, and which event of ours it is. Nothing is written here:
//! an event is noted, and a turn follows.
//!
//! | what                                         | how it is noticed                                             |
//! | -------------------------------------------- | ------------------------------------------------------------- |
//! | a lock leaves its key                        | `unlink` of the data type, always                             |
//! | EXPIRE and the like on a waited-for key      | a round of inspections; where many are, the command filter    |
//! | a free key that is waited for becomes anything | the command filter, by the name; a round of inspections     |
//! | EXPIRE and the like on several holders       | the server's event, once such a command was seen              |
//! | several holders come to another key          | the server's event, once they leave the key where they were   |
//!
//! The filter costs every command a little, and goes when nobody needs it. The server's events cost every key that
//! expires or is deleted much more, and stay: so they are subscribed to only when a command may need them that changes
//! a lock of several holders behind the module's back. Nobody needs such commands in daily work.

use std::cell::Cell;
use std::ffi::{c_char, c_int, CStr};

use lock::key::{Key, KeyRef};
use lock::manager::lock_manager::LockManager;
use lock::value::lock::SeveralEnds;
use redis_module::raw;

use super::lock_key::{ReadContent, ReadKey};
use crate::shell::background::events::{self, Event};
use crate::shell::background::{command_watch, inspections, timer};
use crate::shell::ffi::command_filter::FilteredCommand;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::guard::guard;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::module::subscribe_to_keys;
use crate::shell::ffi::string::Str;
use crate::shell::state;

/// Whether the server's events are subscribed to.
static SUBSCRIBED: MainThread<Cell<bool>> = MainThread(Cell::new(false));

/// Whether somebody waits for a key that holds no lock, which any command may make something of.
static UNHELD_IS_WAITED_FOR: MainThread<Cell<bool>> = MainThread(Cell::new(false));

/// What the filter saw last.
static SEEN: MainThread<Cell<Seen>> = MainThread(Cell::new(Seen::MayMoveKeys));

/// What a command may do to locks without asking the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It may change when a key ends.
    Expire,
    /// It brings a key to another name or database; or nobody knows.
    MayMoveKeys,
    /// Nothing that is not noticed otherwise.
    Other,
}

impl Seen {
    fn by_name(name: &[u8]) -> Seen {
        let is_one_of = |words: &[&[u8]]| words.iter().any(|word| name.eq_ignore_ascii_case(word));
        if is_one_of(&[b"EXPIRE", b"PEXPIRE", b"EXPIREAT", b"PEXPIREAT"]) {
            Seen::Expire
        } else if is_one_of(&[b"RENAME", b"RENAMENX", b"MOVE"]) {
            Seen::MayMoveKeys
        } else {
            Seen::Other
        }
    }
}

/// After a turn that may have changed who waits, and how many locks have several holders.
#[inline]
pub fn follow(manager: &LockManager) {
    let has_several_holders = manager.with_several_holders() > 0 && !SUBSCRIBED.0.get();
    let waits_for_unheld = manager.waits_for_unheld();
    let are_many = manager.queues().len() > inspections::KEYS_A_TURN;
    command_watch::set_needed(has_several_holders || waits_for_unheld || are_many);
    UNHELD_IS_WAITED_FOR.0.set(waits_for_unheld);
    inspections::follow(manager);
}

/// The same after a command which made a lock one of several holders. What a transaction does to it from here on the
/// filter does not see.
#[cold]
pub fn follow_several_holders(ctx: Ctx<'_>) {
    if ctx.is_in_exec_or_loading() {
        subscribe();
    }
}

/// The command filter: notes what the command may do, before it does it. The keyspace and the state are never changed
/// here; the command may be one of our own, in the middle of a turn.
///
/// # Safety
/// To be called by the server only, as a command filter.
pub unsafe extern "C" fn on_command(command: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: what the filter was called with.
    let command = unsafe { FilteredCommand::new(command) };
    match name_of_few(&command) {
        None => SEEN.0.set(Seen::Other),
        Some(name) => see(&command, name),
    }
    if UNHELD_IS_WAITED_FOR.0.get() {
        watch_unheld(&command);
    }
}

/// The name of the command, if it may be one of those that have to be told apart. Every command of the server comes
/// here, so it is counted in instructions: most have left by their number of arguments, or by the length of their
/// names. RENAME has three, EXPIRE up to five.
#[inline(always)]
fn name_of_few<'c>(command: &'c FilteredCommand<'_>) -> Option<&'c [u8]> {
    let 3..=5 = command.argument_count() else { return None };
    let name = command.argument(0)?.bytes();
    match (name.len(), name) {
        (4 | 6..=9, [b'E' | b'e' | b'P' | b'p' | b'R' | b'r' | b'M' | b'm', ..]) => Some(name),
        _ => None,
    }
}

#[cold]
fn see(command: &FilteredCommand<'_>, name: &[u8]) {
    let seen = Seen::by_name(name);
    SEEN.0.set(seen);
    if seen == Seen::Expire {
        note_expire(command);
    }
}

/// Who holds what a free key becomes has to be known before its owner asks for more. What a command makes, its first or
/// second argument names, as a rule. A round finds the rest.
#[cold]
fn watch_unheld(command: &FilteredCommand<'_>) {
    // The gate asks by a command of our own in the middle of a turn: that would bring the next turn, without end.
    if state::is_in_use() {
        return;
    }
    for position in 1..=2 {
        let Some(name) = command.argument(position) else { return };
        guard("command filter", || {
            let unheld: Option<Vec<Key>> = state::peek(|state| state.manager.unheld_named(name.bytes()).collect());
            unheld.into_iter().flatten().for_each(|key| note(Event::KeyTouched(key)));
        });
    }
}

/// A key of this name, in a database that nobody tells here, may end sooner: as soon as the command has run, or the
/// transaction in which it is queued.
#[cold]
fn note_expire(command: &FilteredCommand<'_>) {
    if let Some(name) = command.argument(1) {
        guard("command filter", || note_expire_of(name.bytes()));
    }
}

fn note_expire_of(name: &[u8]) {
    let concerned = state::peek(|state| {
        let waited_for: Vec<Key> = state.manager.queues().keys_named(name).collect();
        (waited_for, state.manager.has_several_holders_named(name))
    });
    // In the middle of a turn our own command runs, which inspects what it changes itself.
    let Some((waited_for, has_several_holders)) = concerned else { return };
    waited_for.into_iter().for_each(|key| note(Event::KeyTouched(key)));
    if has_several_holders {
        subscribe();
    }
}

/// Whether the command that runs may bring a key to another name or database.
pub fn keys_may_move() -> bool {
    let is_seen =
        command_watch::is_registered() && timer::own_context().is_some_and(|ctx| !ctx.is_in_exec_or_loading());
    !is_seen || SEEN.0.get() == Seen::MayMoveKeys
}

/// Subscribes to what the server tells of single keys. It cannot be undone.
pub fn subscribe() {
    if let (false, Some(ctx)) = (SUBSCRIBED.0.replace(true), timer::own_context()) {
        subscribe_to_keys(ctx, raw::REDISMODULE_NOTIFY_GENERIC, on_key);
    }
}

/// An event of a key: `expire` and `persist` change the leases of several holders, the others say that a lock may have
/// come to the key. Its end is seen by `unlink2` already.
unsafe extern "C" fn on_key(
    ctx: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server passes a name that ends with a NUL.
    let event = unsafe { CStr::from_ptr(event) }.to_bytes();
    let has_come = matches!(event, b"rename_to" | b"move_to" | b"restore");
    let is_changed = matches!(event, b"expire" | b"persist") && events::concern_several();
    if has_come || is_changed || event == b"move_from" {
        guard("keyspace event", || {
            // SAFETY: both live as long as the callback.
            let (Some(ctx), Some(key)) = (unsafe { (Ctx::new(ctx), Str::new(key)) }) else { return };
            match event {
                b"move_from" => MOVED_FROM.0.set(ctx.db()),
                b"move_to" => note_moved(ctx, key),
                _ => note_several_holders(ctx, key, has_come),
            }
        });
    }
    raw::REDISMODULE_OK as c_int
}

fn note(event: Event) {
    events::note(event);
    timer::wake();
}

/// Notes when the first of several holders ends, and the deadline that the key has now: a later one of the same
/// transaction must not hide it.
fn note_several_holders(ctx: Ctx<'_>, name: Str<'_>, has_come: bool) {
    let key = KeyRef { db: ctx.db(), name: name.bytes() };
    // A command of ours runs, which inspects what it changes itself.
    let Some(knows) = state::peek(|state| state.manager.has_several_holders(key)) else { return };
    // Whatever has just come under a name is not known by it yet.
    if !knows && !has_come && !events::is_any() {
        return;
    }
    // SAFETY: the state is not in use, so no command of ours has the key open.
    if let ReadContent::Lock(open) = unsafe { ReadKey::open(ctx, name) } {
        let lock = open.lock();
        // A dump may hold what a bug left vacant.
        if let Some(ends) = lock.several_ends(open.until()).or_else(|| lock.ends_when_loaded()) {
            note(Event::SeveralHold(key.to_key(), ends));
        }
    }
}

/// From where the key comes that MOVE moves.
static MOVED_FROM: MainThread<Cell<i32>> = MainThread(Cell::new(0));

/// A lock with several holders may have come to another database. In a transaction Valkey 9.1 does not tell to which:
/// every context has the database of the client. Then keys of that name are inspected in all of them.
///
/// Valkey 8.1 selects the database of an event on the client that causes it, and does not go back: after `MOVE key 1`
/// the client, or the link to a primary, would stay in database 1 because a module subscribed. Elsewhere the context
/// has a client of its own.
fn note_moved(ctx: Ctx<'_>, name: Str<'_>) {
    let (from, to) = (MOVED_FROM.0.get(), ctx.db());
    if to != from {
        note_several_holders(ctx, name, true);
    } else if events::is_any() {
        // A lock has just left its key: it is noted.
        for db in (0..).take_while(|db| ctx.select_db(*db)) {
            note(Event::SeveralHold(Key::new(db, name.bytes()), SeveralEnds::to_be_inspected()));
        }
    }
    ctx.select_db(from);
}
