//! `LOCK.EXEC key token command [arg …]`: runs a server command if the token holds the lock.
//!
//! The command may be one of the module's own, and may release, delete or overwrite the lock. So while it runs, the
//! state is not borrowed and no key is open. Its changes are noticed like those of a client's command.

use std::cell::Cell;
use std::ffi::CString;

use command::catalog::{Access, CATALOG};
use command::errors::{self, ErrorReply};
use command::host::CommandHost;
use command::name::Prefix;
use command::parse::key_positions;
use command::run::is_held;

use crate::shell::background::{events, write_check};
use crate::shell::connections::connection_of;
use crate::shell::ffi::call::{self, CallFlags, CallReply};
use crate::shell::ffi::command_info::{key_flags, keys_of, KeyArgument};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::main_thread::MainThread;
use crate::shell::ffi::server::has_user;
use crate::shell::ffi::string::Str;

static EXEC: MainThread<Exec> =
    MainThread::new(Exec { is_running: Cell::new(false), is_reporting_keys: Cell::new(false) });

/// Guards against recursive calls.
struct Exec {
    is_running: Cell<bool>,
    is_reporting_keys: Cell<bool>,
}

/// The index of the command's name.
const COMMAND_ARGUMENT: usize = 3;

pub fn run<'a>(ctx: Ctx<'a>, args: &'a [Str<'a>]) -> Result<(), ErrorReply> {
    let _innermost = Innermost::enter(&EXEC.is_running).ok_or(errors::EXEC_WITHIN_EXEC)?;
    // With `replica-read-only no` the server runs LOCK.EXEC on a replica.
    if events::is_replica() {
        return Err(errors::READ_ONLY);
    }
    let (key, command) = (args[1], &args[COMMAND_ARGUMENT..]);
    let keys = all_keys(ctx, key, command);
    write_check::compare_slots(&keys)?;
    if !is_held(ctx, key, args[2].bytes())? {
        ctx.update(|manager| manager.observer.statistics.execs_not_held += 1);
        return Err(errors::NOT_HELD);
    }
    write_check::check_node(ctx, &keys)?;
    let reply = call(ctx, command)?;
    if !reply.is_refusal() {
        ctx.update(|manager| manager.observer.statistics.execs += 1);
    }
    if let Some(refusal) = reply.error().and_then(errors::refused_by_server) {
        return Err(refusal);
    }
    if ctx.reply_with(&reply) {
        Ok(())
    } else {
        Err(errors::NOT_IN_PROTOCOL)
    }
}

/// Reports the keys of a LOCK.EXEC to the server: the lock's, then its command's.
pub fn report_keys(ctx: Ctx<'_>, strings: &[Str<'_>]) {
    ctx.report_key(KeyArgument { position: 1, flags: key_flags(Access::Read) });
    // The command may contain another LOCK.EXEC, directly or by way of another module. The server would then call us
    // recursively, as deep as there are arguments.
    let (Some(_outermost), Some(command)) =
        (Innermost::enter(&EXEC.is_reporting_keys), strings.get(COMMAND_ARGUMENT..))
    else {
        return;
    };
    for key in all_keys_of(ctx, command) {
        ctx.report_key(KeyArgument { position: key.position + COMMAND_ARGUMENT, ..key });
    }
}

/// The keys of a command. If the command takes `numkeys`, the server knows only the first key: see `key_specs`.
fn all_keys_of(ctx: Ctx<'_>, command: &[Str<'_>]) -> Vec<KeyArgument> {
    let is_named =
        |name: &str| command.first().is_some_and(|first| first.bytes().eq_ignore_ascii_case(name.as_bytes()));
    let counted = CATALOG.iter().find(|own| own.action.takes_multiple_keys() && is_named(own.name));
    match counted.and_then(|own| own.access) {
        Some(access) => {
            let flags = key_flags(access);
            key_positions(Prefix::Mlock, command).map(|position| KeyArgument { position, flags }).collect()
        }
        None => keys_of(ctx, command),
    }
}

/// In a cluster: the lock's key, then the keys of the command. Otherwise none.
///
/// The server compares the slots of the keys that it knows, and checks that they are on this node. On some servers
/// these are not all keys ([`asks_on_main_thread_only`]). The call itself would not check the rest properly: it
/// inherits the client's ASKING, which was meant for the lock, and would write a key here that is still on the slot's
/// old node. Also, its refusal would look like an error that the inner command returned after it ran.
///
/// [`asks_on_main_thread_only`]: crate::shell::ffi::command_info::asks_on_main_thread_only
fn all_keys<'a>(ctx: Ctx<'_>, key: Str<'a>, command: &[Str<'a>]) -> Vec<Str<'a>> {
    if !write_check::is_in_cluster() {
        return Vec::new();
    }
    let inner = all_keys_of(ctx, command).into_iter().filter_map(|key| command.get(key.position).copied());
    std::iter::once(key).chain(inner).collect()
}

/// Calls the command once; its reply becomes the reply.
fn call(ctx: Ctx<'_>, command: &[Str<'_>]) -> Result<CallReply, ErrorReply> {
    let (name, args) = command.split_first().ok_or(errors::UNKNOWN_COMMAND)?;
    let name = CString::new(name.bytes()).map_err(|_| errors::UNKNOWN_COMMAND)?;
    // A connection always has a user. A call by another module may have none, and such a module is not restricted.
    let has_user = connection_of(ctx).is_some() || has_user(ctx, c"lock.exec");
    let flags = if has_user { CallFlags::EXEC } else { CallFlags::EXEC_WITHOUT_USER };
    // No reply means that the server does not know one of the flags.
    call::call(ctx, &name, flags, args).map_err(|_| errors::INTERNAL_ERROR)
}

/// Prevents recursion while it exists.
struct Innermost(&'static Cell<bool>);

impl Innermost {
    /// `None`: this is a recursive call.
    fn enter(happens: &'static Cell<bool>) -> Option<Innermost> {
        (!happens.replace(true)).then_some(Innermost(happens))
    }
}

impl Drop for Innermost {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
