//! Tells the server about the commands: names, flags, keys, categories, documentation.

use std::ffi::{c_int, CStr, CString};
use std::ptr::{null, null_mut};

use redis_module::raw;

use super::api::{api, Ctx};
use super::run;
use command::catalog::{Access, Action, Arg, Command, Form, CATALOG};
use command::parse::Family;

/// The ACL category of the module's commands.
const CATEGORY: &CStr = c"lock";

/// The version of the module since which a command is there.
const SINCE: &CStr = c"0.1.0";

static INFO_VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// Registers all commands; the name of the one that the server refused, if it did.
pub fn all(ctx: Ctx) -> Result<(), &'static str> {
    // Not on 7.0, where modules cannot set categories.
    // SAFETY: the name ends with a NUL; the pointer is probed.
    let has_categories =
        unsafe { raw::RedisModule_AddACLCategory.is_some_and(|add| add(ctx.raw(), CATEGORY.as_ptr()) == 0) };
    CATALOG.iter().zip(run::ENTRIES).try_for_each(|(command, entry)| {
        // SAFETY: everything that the server keeps, it copies.
        let registered = unsafe { register(ctx, command, entry, has_categories) };
        if registered.is_some() {
            Ok(())
        } else {
            Err(command.name)
        }
    })
}

/// # Safety
/// To be called while the module is being loaded.
unsafe fn register(ctx: Ctx, command: &Command, entry: run::Entry, has_categories: bool) -> Option<()> {
    // Redis names its commands in small letters, and says them so in its errors.
    let name = CString::new(command.name.to_ascii_lowercase()).ok()?;
    let flags = CString::new(command.flags).ok()?;
    let created = api!(RedisModule_CreateCommand(ctx.raw(), name.as_ptr(), Some(entry), flags.as_ptr(), 1, 1, 1));
    if created != raw::REDISMODULE_OK as c_int {
        return None;
    }
    let registered = api!(RedisModule_GetCommand(ctx.raw(), name.as_ptr()));
    if registered.is_null() {
        return None;
    }
    if let (true, Some(set)) = (has_categories, raw::RedisModule_SetCommandACLCategories) {
        let categories = CString::new(command.categories).ok()?;
        if set(registered, categories.as_ptr()) != raw::REDISMODULE_OK as c_int {
            return None;
        }
    }
    let mut texts = Texts::default();
    let mut keys = [key_spec(command), std::mem::zeroed()];
    let mut args = texts.args(command.args)?;
    let info = raw::RedisModuleCommandInfo {
        version: &raw const INFO_VERSION,
        summary: texts.keep(command.summary)?,
        complexity: texts.keep(command.complexity)?,
        since: SINCE.as_ptr(),
        history: null_mut(),
        tips: null(),
        arity: command.arity,
        key_specs: keys.as_mut_ptr(),
        args: args.as_mut_ptr(),
    };
    (api!(RedisModule_SetCommandInfo(registered, &info)) == raw::REDISMODULE_OK as c_int).then_some(())
}

/// Where the command's keys stand, and what it does to them.
fn key_spec(command: &Command) -> raw::RedisModuleCommandKeySpec {
    // SAFETY: plain data, of which zero is a valid value.
    let mut spec: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
    let flags = match command.access {
        Access::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        Access::Update => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE
        }
        Access::Delete => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE
        }
    };
    spec.flags = u64::from(flags);
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = 1;
    let several = matches!(
        command.action,
        Action::Acquire(Family::Mlock) | Action::Release(Family::Mlock) | Action::Renew(Family::Mlock)
    );
    if several {
        spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
        spec.fk.keynum =
            raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 { keynumidx: 0, firstkey: 1, keystep: 1 };
    } else {
        spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
        spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey: 0, keystep: 1, limit: 0 };
    }
    spec
}

/// Keeps what the structures of the API point to until the server has copied it.
#[derive(Default)]
struct Texts {
    texts: Vec<CString>,
    parts: Vec<Vec<raw::RedisModuleCommandArg>>,
}

impl Texts {
    fn keep(&mut self, text: &str) -> Option<*const std::ffi::c_char> {
        let text = CString::new(text).ok()?;
        let start = text.as_ptr();
        self.texts.push(text);
        Some(start)
    }

    /// The arguments as the API wants them: an array that ends with an empty one.
    fn args(&mut self, args: &[Arg]) -> Option<Vec<raw::RedisModuleCommandArg>> {
        let mut all = args.iter().map(|arg| self.arg(arg)).collect::<Option<Vec<_>>>()?;
        // SAFETY: plain data, of which zero is the end mark.
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
            type_: match arg.form {
                Form::Key => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
                Form::Text => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
                Form::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
                Form::Token => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
                Form::OneOf => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
                Form::Block => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
            },
            key_spec_index: if arg.form == Form::Key { 0 } else { -1 },
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
