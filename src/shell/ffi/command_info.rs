//! Registers commands with their names, flags, categories, keys and documentation. Also key arguments: asking the
//! server for those of any command, and reporting those of LOCK.EXEC.

use std::ffi::{c_char, c_int, c_void, CString};
use std::ptr::{null, null_mut, NonNull};
use std::slice;

use command::adopted::{KeysAt, OriginalCommand};
use command::catalog::{Access, Arg, ArgKind, Command, ADOPTED_ARGS, MULTIPLE_ADOPTED_ARGS};
use redis_module::raw;

use super::context::Ctx;
use super::module::is_valkey;
use super::string::Str;
use super::{api, probe};

/// The function that the server calls to run a command.
pub type CommandEntry =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// Adds an ACL category; only while the module is loading. False: the server refuses. On 7.0 modules cannot add
/// categories, so the result is true.
pub fn add_acl_category(ctx: Ctx<'_>, category: &str) -> bool {
    let Ok(category) = CString::new(category) else { return false };
    // SAFETY: the name is NUL-terminated.
    probe!(RedisModule_AddACLCategory).is_none_or(|add| unsafe { add(ctx.raw(), category.as_ptr()) } == 0)
}

/// Sets the ACL categories of a command, separated by spaces. False: the server does not know one of them. On 7.0
/// module commands have none.
fn set_acl_categories(command: *mut raw::RedisModuleCommand, categories: &str) -> bool {
    let Some(set) = probe!(RedisModule_SetCommandACLCategories) else { return true };
    let Ok(categories) = CString::new(categories) else { return false };
    // SAFETY: the command was just created; the string is NUL-terminated and copied.
    unsafe { set(command, categories.as_ptr()) == raw::REDISMODULE_OK as c_int }
}

/// Registers a command, and adds it to the ACL category if the server supports that; only while the module is loading.
/// `None`: the server refuses the command.
pub fn register(ctx: Ctx<'_>, command: &Command, entry: CommandEntry, category: &str) -> Option<()> {
    // Redis names its commands in lower case, including in its errors.
    let name = CString::new(command.name.to_ascii_lowercase()).ok()?;
    let reports_keys = command.action.has_keys_of_another() && asks_on_main_thread_only(ctx);
    let getkeys = if reports_keys { " getkeys-api" } else { "" };
    let flags = CString::new(format!("{}{getkeys}", command.flags)).ok()?;
    // SAFETY: the strings are NUL-terminated and copied; the entry point is a function of this module.
    let registered = unsafe {
        let (key, step) = if command.access.is_some() { (command.action.first_key(), 1) } else { (0, 0) };
        let created =
            api!(RedisModule_CreateCommand(ctx.raw(), name.as_ptr(), Some(entry), flags.as_ptr(), key, key, step));
        if created != raw::REDISMODULE_OK as c_int {
            return None;
        }
        api!(RedisModule_GetCommand(ctx.raw(), name.as_ptr()))
    };
    if registered.is_null() {
        return None;
    }
    set_categories(registered, command.categories, category)?;
    let mut keys = key_specs(command);
    if reports_keys {
        // Without this flag the server relies on the spec and does not ask for further keys.
        keys[0].flags |= u64::from(raw::REDISMODULE_CMD_KEY_VARIABLE_FLAGS);
    }
    let Command { summary, complexity, arity, args, .. } = *command;
    describe(registered, Description { summary, complexity, since: command.since(), arity, args }, &mut keys)
}

/// Registers a command that only has subcommands. `None`: the server refuses.
pub fn register_container(ctx: Ctx<'_>, command: &Command, category: &str) -> Option<()> {
    let name = CString::new(command.name.to_ascii_lowercase()).ok()?;
    let flags = CString::new(command.flags).ok()?;
    // SAFETY: the strings are NUL-terminated and copied.
    let registered = unsafe {
        if api!(RedisModule_CreateCommand(ctx.raw(), name.as_ptr(), None, flags.as_ptr(), 0, 0, 0))
            != raw::REDISMODULE_OK as c_int
        {
            return None;
        }
        api!(RedisModule_GetCommand(ctx.raw(), name.as_ptr()))
    };
    if registered.is_null() {
        return None;
    }
    set_categories(registered, command.categories, category)?;
    let Command { summary, complexity, .. } = *command;
    // SAFETY: plain data, for which zero is valid.
    let mut keys = unsafe { [std::mem::zeroed(); 3] };
    describe(registered, Description { summary, complexity, since: command.since(), arity: -2, args: &[] }, &mut keys)
}

/// The keys of a subcommand; its container's name is argument 0.
#[derive(Clone, Copy)]
pub struct KeyRange {
    pub first: c_int,
    /// The last key: 0 for the first argument, -1 for the last one.
    pub last: c_int,
    /// The distance between two keys.
    pub step: c_int,
}

/// Registers a subcommand. `None`: the server refuses.
pub fn register_subcommand(
    ctx: Ctx<'_>,
    container: &Command,
    original: &OriginalCommand,
    arity: c_int,
    keys: KeyRange,
    entry: CommandEntry,
    category: &str,
) -> Option<()> {
    let KeyRange { first, last, step } = keys;
    let parent = CString::new(container.name.to_ascii_lowercase()).ok()?;
    let name = CString::new(original.name.to_ascii_lowercase()).ok()?;
    let full_name = CString::new(format!("{}|{}", container.name, original.name).to_ascii_lowercase()).ok()?;
    let flags = CString::new(original.flags).ok()?;
    // SAFETY: the strings are NUL-terminated and copied; the entry point is a function of this module.
    let registered = unsafe {
        let parent = api!(RedisModule_GetCommand(ctx.raw(), parent.as_ptr()));
        if parent.is_null() {
            return None;
        }
        let last_argument = if last == 0 { first } else { last };
        let created = api!(RedisModule_CreateSubcommand(
            parent,
            name.as_ptr(),
            Some(entry),
            flags.as_ptr(),
            first,
            last_argument,
            step
        ));
        if created != raw::REDISMODULE_OK as c_int {
            return None;
        }
        api!(RedisModule_GetCommand(ctx.raw(), full_name.as_ptr()))
    };
    if registered.is_null() {
        return None;
    }
    set_categories(registered, if original.access == Access::Read { "read fast" } else { "write fast" }, category)?;
    let args = match original.keys_at {
        KeysAt::First if original.arity == 2 => &ADOPTED_ARGS[..1],
        KeysAt::First => ADOPTED_ARGS,
        KeysAt::All => &MULTIPLE_ADOPTED_ARGS[..1],
        KeysAt::Pairs => &MULTIPLE_ADOPTED_ARGS[1..],
    };
    let (summary, complexity) = (original.summary, container.complexity);
    let since = container.since();
    // SAFETY: plain data, for which zero is valid.
    let end = unsafe { std::mem::zeroed() };
    let mut keys = [range_of_keys(key_flags(original.access), keys), end, end];
    describe(registered, Description { summary, complexity, since, arity, args }, &mut keys)
}

/// If the command cannot get another category, it is still added to the server's own ones. Otherwise `+@all -@admin
/// -@dangerous` would allow LOCK.BREAK.
fn set_categories(registered: *mut raw::RedisModuleCommand, categories: &str, category: &str) -> Option<()> {
    let are_set = set_acl_categories(registered, &format!("{categories} {category}"))
        || set_acl_categories(registered, categories);
    are_set.then_some(())
}

/// The data for `COMMAND DOCS`.
struct Description {
    summary: &'static str,
    complexity: &'static str,
    since: &'static str,
    arity: c_int,
    args: &'static [Arg],
}

/// `keys` must end with an all-zero spec.
fn describe(
    registered: *mut raw::RedisModuleCommand,
    description: Description,
    keys: &mut [raw::RedisModuleCommandKeySpec; 3],
) -> Option<()> {
    let Description { summary, complexity, since, arity, args } = description;
    let mut texts = Texts::default();
    let mut args = texts.args(args)?;
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let info = raw::RedisModuleCommandInfo {
        version: &raw const version,
        summary: texts.keep(summary)?,
        complexity: texts.keep(complexity)?,
        since: texts.keep(since)?,
        history: null_mut(),
        tips: null(),
        arity,
        key_specs: keys.as_mut_ptr(),
        args: args.as_mut_ptr(),
    };
    // SAFETY: the server copies everything; `version`, `texts`, `keys` and `args` live until then.
    let set = unsafe { api!(RedisModule_SetCommandInfo(registered, &info)) };
    (set == raw::REDISMODULE_OK as c_int).then_some(())
}

/// The positions of the command's keys and how it accesses them; an all-zero spec ends the array.
///
/// `getkeys-api` is not used for counted keys, because it is a race in a Valkey cluster ([`asks_on_main_thread_only`]).
fn key_specs(command: &Command) -> [raw::RedisModuleCommandKeySpec; 3] {
    // SAFETY: plain data, for which zero is valid.
    let end: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
    let Some(access) = command.access else { return [end; 3] };
    let (flags, one) = (key_flags(access), |first| KeyRange { first, last: 0, step: 1 });
    let mut keys = range_of_keys(flags, one(command.action.first_key()));
    if !command.action.takes_multiple_keys() {
        return [keys, end, end];
    }
    keys.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
    keys.fk.keynum =
        raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 { keynumidx: 0, firstkey: 1, keystep: 1 };
    // A cluster routes a module's command only by keys at fixed positions. So the first key is declared twice;
    // `NOT_KEY` keeps it from counting twice for ACLs and COMMAND GETKEYS. `write_check::check_slots` checks the other
    // keys.
    [keys, range_of_keys(flags | raw::REDISMODULE_CMD_KEY_NOT_KEY, one(2)), end]
}

fn range_of_keys(flags: u32, keys: KeyRange) -> raw::RedisModuleCommandKeySpec {
    // SAFETY: plain data, for which zero is valid.
    let mut spec: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
    let KeyRange { first, last, step } = keys;
    spec.flags = u64::from(flags);
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = first;
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range =
        raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey: last, keystep: step, limit: 0 };
    spec
}

/// Owns what the API structures point to until the server has copied it.
#[derive(Default)]
struct Texts {
    texts: Vec<CString>,
    parts: Vec<Vec<raw::RedisModuleCommandArg>>,
}

impl Texts {
    fn keep(&mut self, text: &str) -> Option<*const c_char> {
        let text = CString::new(text).ok()?;
        let start = text.as_ptr();
        self.texts.push(text);
        Some(start)
    }

    /// The arguments in the form of the API: an array that ends with an empty element.
    fn args(&mut self, args: &[Arg]) -> Option<Vec<raw::RedisModuleCommandArg>> {
        let mut all = args.iter().map(|arg| self.arg(arg)).collect::<Option<Vec<_>>>()?;
        // SAFETY: plain data; zero is the end mark.
        all.push(unsafe { std::mem::zeroed() });
        Some(all)
    }

    fn arg(&mut self, arg: &Arg) -> Option<raw::RedisModuleCommandArg> {
        let subargs = match arg.parts {
            [] => null_mut(),
            parts => {
                let mut parts = self.args(parts)?;
                let start = parts.as_mut_ptr();
                self.parts.push(parts);
                start
            }
        };
        let optional = if arg.is_optional { raw::REDISMODULE_CMD_ARG_OPTIONAL } else { 0 };
        let multiple = if arg.is_multiple { raw::REDISMODULE_CMD_ARG_MULTIPLE } else { 0 };
        Some(raw::RedisModuleCommandArg {
            name: self.keep(arg.name)?,
            type_: match arg.kind {
                ArgKind::Key => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
                ArgKind::Text => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
                ArgKind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
                ArgKind::Token => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
                ArgKind::OneOf => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
                ArgKind::Block => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
            },
            key_spec_index: if arg.kind == ArgKind::Key { 0 } else { -1 },
            token: match arg.token {
                Some(token) => self.keep(token)?,
                None => null(),
            },
            summary: null(),
            since: null(),
            flags: (optional | multiple) as c_int,
            deprecated_since: null(),
            subargs,
            display_text: null(),
        })
    }
}

/// An argument of a command that is a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyArgument {
    /// The index of the argument; the command's name is argument 0.
    pub position: usize,
    /// How the command accesses it: `REDISMODULE_CMD_KEY_…`. 0: the server does not report it to modules.
    pub flags: u32,
}

/// The API's flags for an access to a key.
pub fn key_flags(access: Access) -> u32 {
    match access {
        Access::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        Access::Write => raw::REDISMODULE_CMD_KEY_OW | raw::REDISMODULE_CMD_KEY_UPDATE,
        Access::Update => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE
        }
        Access::Delete => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE
        }
    }
}

/// The first Redis version that may ask on a thread other than the main one. Prereleases of 8.2 are numbered 8.1.
const FIRST_UNKNOWN_REDIS: c_int = 0x0008_0100;

/// The first Valkey version that may; in a cluster every Valkey asks on other threads.
const FIRST_UNKNOWN_VALKEY: c_int = 0x0009_0200;

/// Whether this server is known to ask for keys only on its main thread. Redis from 8.2 and Valkey in a cluster ask on
/// their I/O threads, even before AUTH, and their own code around that callback already has a data race. The API does
/// not say on which thread the server asks, and the callback cannot find out, so versions are compared.
pub fn asks_on_main_thread_only(ctx: Ctx<'_>) -> bool {
    // SAFETY: the function has no preconditions.
    let version = unsafe { api!(RedisModule_GetServerVersion()) };
    if is_valkey() {
        version < FIRST_UNKNOWN_VALKEY && !ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    } else {
        version < FIRST_UNKNOWN_REDIS
    }
}

/// The keys of a command, by which the server routes it. Empty for an unknown command or one with too few arguments.
pub fn keys_of(ctx: Ctx<'_>, command: &[Str<'_>]) -> Vec<KeyArgument> {
    let (mut count, mut flags) = (0, null_mut());
    let Ok(argc) = c_int::try_from(command.len()) else { return Vec::new() };
    // SAFETY: `Str` is a transparent wrapper of a pointer, which the server only reads. Both arrays have `count`
    // elements and are ours to free.
    unsafe {
        let argv = command.as_ptr().cast_mut().cast::<*mut raw::RedisModuleString>();
        let positions = api!(RedisModule_GetCommandKeysWithFlags(ctx.raw(), argv, argc, &mut count, &mut flags));
        let (Some(positions), Some(flags)) = (NonNull::new(positions), NonNull::new(flags)) else { return Vec::new() };
        let count = usize::try_from(count).unwrap_or(0);
        let positions_and_flags =
            slice::from_raw_parts(positions.as_ptr(), count).iter().zip(slice::from_raw_parts(flags.as_ptr(), count));
        let keys = positions_and_flags
            .filter_map(|(position, flags)| {
                Some(KeyArgument { position: usize::try_from(*position).ok()?, flags: u32::try_from(*flags).ok()? })
            })
            .filter(|key| key.position < command.len())
            .collect();
        free(positions.as_ptr().cast());
        free(flags.as_ptr().cast());
        keys
    }
}

/// # Safety
/// The server allocated it for us, and no other pointer to it exists.
unsafe fn free(allocated: *mut c_void) {
    // SAFETY: guaranteed by the caller.
    unsafe { api!(RedisModule_Free(allocated)) };
}

impl Ctx<'_> {
    /// Whether the server asks for the command's keys instead of running it. Such a context has no client: only
    /// [`Ctx::report_key`] may be called with it.
    pub fn is_keys_request(self) -> bool {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_IsKeysPositionRequest(self.raw())) != 0 }
    }

    /// Reports a key that the server asks for.
    pub fn report_key(self, key: KeyArgument) {
        let (Ok(position), Ok(flags)) = (c_int::try_from(key.position), c_int::try_from(key.flags)) else { return };
        // SAFETY: the context is valid; the server ignores the call if it has not asked.
        unsafe { api!(RedisModule_KeyAtPosWithFlags(self.raw(), position, flags)) };
    }
}
