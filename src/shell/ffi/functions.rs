//! The functions of the module API that the module requires, and the check that the server has them.
//!
//! The server sets a pointer for each function that it has, and leaves the others null. `api!` calls only functions of
//! this table, so the table cannot become outdated: calling any other function does not compile, and an unused entry
//! causes a warning. Functions that only some servers have are probed with `probe!`.

use std::ffi::{c_void, CStr};

use redis_module::raw;

/// Calls a function that every supported server has. It was checked when the module was loaded.
macro_rules! api {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        const _: () = $crate::shell::ffi::functions::required::$name;
        redis_module::raw::$name.expect("the server has it: checked when the module was loaded")($($arg),*)
    }};
}

/// Like `api!` without checking the pointer, for code that runs with every command of the server.
///
/// # Safety
/// The function's own requirements; and the module must be loaded, so that the pointer is set.
macro_rules! api_unchecked {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        const _: () = $crate::shell::ffi::functions::required::$name;
        redis_module::raw::$name.unwrap_unchecked()($($arg),*)
    }};
}

/// A function that only some supported servers have; `None` if this one does not.
macro_rules! probe {
    ($name:ident) => {
        // SAFETY: the pointer is read on the main thread, after the server has set it.
        unsafe { redis_module::raw::$name }
    };
}

pub(crate) use {api, api_unchecked, probe};

/// A function without which the module does not load.
struct Required {
    /// The pointer that the server sets.
    pointer: *const *const c_void,
    /// The log line if it is missing. Built at compile time, because nothing can be allocated before the check.
    refusal: &'static [u8],
}

/// The functions that each Redis version added. Every Valkey has all of them.
macro_rules! table {
    ($($since:literal: $($name:ident)+;)+) => {
        /// The names in the table, for [`api!`].
        #[allow(non_upper_case_globals)]
        pub mod required {
            $($(pub const $name: () = ();)+)+
        }

        const COUNT: usize = [$($(stringify!($name),)+)+].len();

        fn table() -> [Required; COUNT] {
            [$($(Required {
                pointer: (&raw const raw::$name).cast(),
                refusal: concat!(
                    "redis-lock: not loaded: this server lacks ", stringify!($name),
                    ", available since Redis ", $since, " and Valkey 8.0\0",
                ).as_bytes(),
            },)+)+]
        }
    };
}

table! {
    "4.0":
        RedisModule_Alloc RedisModule_BlockClient RedisModule_Call RedisModule_CallReplyArrayElement
        RedisModule_CallReplyProto RedisModule_CallReplyStringPtr RedisModule_CloseKey RedisModule_CreateCommand
        RedisModule_CreateDataType RedisModule_CreateString RedisModule_DeleteKey
        RedisModule_DigestAddStringBuffer RedisModule_DigestEndSequence RedisModule_EmitAOF RedisModule_Free
        RedisModule_FreeCallReply RedisModule_FreeString RedisModule_FreeThreadSafeContext RedisModule_GetApi
        RedisModule_GetBlockedClientPrivateData RedisModule_GetClientId RedisModule_GetContextFromIO
        RedisModule_GetSelectedDb RedisModule_IsKeysPositionRequest RedisModule_KeyType
        RedisModule_LoadStringBuffer RedisModule_LoadUnsigned RedisModule_Log RedisModule_Milliseconds
        RedisModule_ModuleTypeGetType RedisModule_ModuleTypeGetValue RedisModule_ModuleTypeSetValue
        RedisModule_OpenKey RedisModule_Replicate RedisModule_ReplicateVerbatim RedisModule_ReplyWithArray
        RedisModule_ReplyWithCallReply RedisModule_ReplyWithError RedisModule_ReplyWithLongLong
        RedisModule_ReplyWithNull RedisModule_ReplyWithSimpleString RedisModule_ReplyWithStringBuffer
        RedisModule_SaveStringBuffer RedisModule_SaveUnsigned RedisModule_SelectDb RedisModule_SetModuleAttribs
        RedisModule_StringPtrLen RedisModule_UnblockClient;
    "5.0":
        RedisModule_BlockedClientDisconnected RedisModule_CreateTimer RedisModule_GetBlockedClientHandle
        RedisModule_GetContextFlags RedisModule_IsModuleNameBusy RedisModule_SetDisconnectCallback
        RedisModule_StopTimer;
    "6.0":
        RedisModule_AvoidReplicaTraffic RedisModule_CommandFilterArgGet RedisModule_CommandFilterArgInsert
        RedisModule_CommandFilterArgReplace RedisModule_CommandFilterArgsCount
        RedisModule_DbSize RedisModule_FreeModuleUser
        RedisModule_FreeServerInfo RedisModule_GetClientInfoById RedisModule_GetKeyNameFromIO
        RedisModule_GetServerInfo RedisModule_InfoAddFieldCString RedisModule_InfoAddFieldULongLong
        RedisModule_InfoAddSection RedisModule_IsIOError RedisModule_NotifyKeyspaceEvent
        RedisModule_PublishMessage RedisModule_RegisterCommandFilter RedisModule_RegisterInfoFunc
        RedisModule_ReplyWithNullArray RedisModule_ServerInfoGetFieldC RedisModule_ServerInfoGetFieldSigned
        RedisModule_SetModuleOptions RedisModule_SignalModifiedKey RedisModule_SubscribeToServerEvent
        RedisModule_UnregisterCommandFilter;
    "6.0.9":
        RedisModule_GetServerVersion;
    "6.2":
        RedisModule_ACLAddLogEntry RedisModule_GetDetachedThreadSafeContext;
    "7.0":
        RedisModule_CreateSubcommand RedisModule_RegisterStringConfig
        RedisModule_ACLCheckChannelPermissions RedisModule_ACLCheckCommandPermissions
        RedisModule_ACLCheckKeyPermissions
        RedisModule_EventLoopAddOneShot RedisModule_GetClientUserNameById RedisModule_GetCommand
        RedisModule_GetCommandKeysWithFlags RedisModule_GetCurrentUserName RedisModule_GetDbIdFromIO
        RedisModule_GetDbIdFromOptCtx RedisModule_GetKeyNameFromOptCtx RedisModule_GetModuleUserFromUserName
        RedisModule_KeyAtPosWithFlags RedisModule_LoadConfigs RedisModule_MonotonicMicroseconds
        RedisModule_PublishMessageShard RedisModule_RegisterBoolConfig RedisModule_RegisterNumericConfig
        RedisModule_ReplyWithMap RedisModule_SetCommandInfo;
    "7.0.3":
        RedisModule_GetClientNameById;
    "7.0.5":
        RedisModule_GetAbsExpire RedisModule_SetAbsExpire;
}

// Called by the crate's allocator.
const _: () = required::RedisModule_Alloc;

/// The first function that is missing on this server, if any. Call it before everything else: neither the allocator nor
/// the log can be used earlier.
fn first_missing() -> Option<&'static CStr> {
    // SAFETY: the pointers are statics that the server has set; a missing function is a null pointer.
    let missing = table().into_iter().find(|function| unsafe { function.pointer.read().is_null() })?;
    CStr::from_bytes_with_nul(missing.refusal).ok()
}

/// Whether the server has all functions of the table. If not, logs which one is missing.
///
/// # Safety
/// The server passed `ctx` to the callback that loads the module.
pub unsafe fn find(ctx: *mut raw::RedisModuleCtx) -> bool {
    redis_module::init_api(&redis_module::Context::new(ctx));
    let Some(refusal) = first_missing() else { return true };
    if let Some(log) = probe!(RedisModule_Log) {
        // SAFETY: the format takes one NUL-terminated string.
        unsafe { log(ctx, c"warning".as_ptr(), c"%s".as_ptr(), refusal.as_ptr()) };
    }
    false
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{fs, ptr};

    use super::*;

    /// In the tests no server has set any pointer.
    #[test]
    fn each_missing_function_is_detected() {
        let some = ptr::from_ref(&COUNT).cast::<c_void>();
        // SAFETY: nothing calls these functions here, and no other test accesses them.
        let set = |function: &Required, address| unsafe { function.pointer.cast_mut().write(address) };
        table().iter().for_each(|function| set(function, some));
        assert_eq!(first_missing(), None);
        for function in table() {
            set(&function, ptr::null());
            assert_eq!(first_missing().map(CStr::to_bytes_with_nul), Some(function.refusal));
            set(&function, some);
        }
        table().iter().for_each(|function| set(function, ptr::null()));
    }

    #[test]
    fn the_log_line_names_the_function_and_the_first_version_that_has_it() {
        let refusals = table().map(|function| String::from_utf8_lossy(function.refusal).into_owned());
        let refusal = refusals.iter().find(|refusal| refusal.contains("RedisModule_GetAbsExpire"));
        assert_eq!(
            refusal.map(|refusal| refusal.trim_end_matches('\0')),
            Some(
                "redis-lock: not loaded: this server lacks RedisModule_GetAbsExpire, available since Redis \
                 7.0.5 and Valkey 8.0"
            )
        );
    }

    /// Only `api!` and `probe!` may read a pointer, because it may be null on some server.
    #[test]
    fn no_other_file_reads_a_pointer_of_the_api() {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("ffi/functions.rs") {
                    files += 1;
                    let source = fs::read_to_string(&path).unwrap();
                    assert!(!source.contains("raw::RedisModule_"), "{}: use api! or probe!", path.display());
                }
            }
        }
        assert!(files > 50, "only {files} files were found");
    }
}
