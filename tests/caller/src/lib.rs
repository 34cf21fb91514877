//! A second module, for tests.
//!
//! - `TEST.CALL command [arg …]` calls a command through the module API and returns its reply.
//! - `TEST.FORWARD counter command [arg …]` increments the counter, calls the command and returns its reply, even if
//!   the server refuses to run it.
//! - `TEST.BLOCK` blocks its client for a moment, without checking whether blocking is allowed.
//! - `TEST.THREAD command [arg …]` returns OK, and calls the command on a separate thread once the server is idle.
//! - `TEST.REPLIES` returns a reply of every type.
//!
//! The module's arguments are ACL categories to add, if the server lets modules add them.

use std::ffi::CString;
use std::thread;
use std::time::Duration;

use redis_module::{
    raw, redis_module, Context, ContextFlags, NextArg, RedisError, RedisResult, RedisString, RedisValue, Status,
    ThreadSafeContext,
};

fn call(ctx: &Context, args: Vec<RedisString>) -> RedisResult {
    let mut args = args.into_iter().skip(1);
    let command = args.next_arg()?;
    let args: Vec<RedisString> = args.collect();
    let command = command.try_as_str().map_err(|_| RedisError::Str("ERR the command is not text"))?;
    ctx.call(command, args.iter().collect::<Vec<_>>().as_slice())
}

/// A refusal is an error reply, and `errno` has the server's error number.
fn forward(ctx: &Context, args: Vec<RedisString>) -> RedisResult {
    let [_, counter, command, args @ ..] = args.as_slice() else { return Err(RedisError::WrongArity) };
    ctx.call("INCR", &[counter])?;
    let command = CString::new(command.as_slice()).map_err(|_| RedisError::Str("ERR the command is not text"))?;
    let mut args: Vec<_> = args.iter().map(|arg| arg.inner).collect();
    // SAFETY: the context is the command's; format and arguments agree.
    unsafe {
        let call = raw::RedisModule_Call.expect("it is there since Redis 7.0");
        let reply = call(ctx.ctx, command.as_ptr(), c"Ev".as_ptr(), args.as_mut_ptr(), args.len());
        raw::RedisModule_ReplyWithCallReply.expect("it is there since Redis 7.0")(ctx.ctx, reply);
        raw::RedisModule_FreeCallReply.expect("it is there since Redis 7.0")(reply);
    }
    Ok(RedisValue::NoReply)
}

fn block(ctx: &Context, _: Vec<RedisString>) -> RedisResult {
    // SAFETY: the context is the command's; the handle is released at once, even if the server did not block the
    // client.
    unsafe {
        let block = raw::RedisModule_BlockClient.expect("it is there since Redis 7.0");
        let blocked = block(ctx.ctx, None, None, None, 0);
        if blocked.is_null() {
            // Valkey 8.1 reports this only to the module.
            return Err(RedisError::Str("ERR Blocking module command was refused"));
        }
        raw::RedisModule_AbortBlock.expect("it is there since Redis 7.0")(blocked);
    }
    Ok(RedisValue::NoReply)
}

/// The server's lock is free only while the main thread sleeps. It may sleep between two commands that arrived
/// together, so this waits a moment until it has nothing left to do.
fn thread(_: &Context, args: Vec<RedisString>) -> RedisResult {
    let words: Vec<Vec<u8>> = args.iter().skip(1).map(|arg| arg.as_slice().to_vec()).collect();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        let thread_safe = ThreadSafeContext::new();
        let ctx = thread_safe.lock();
        // Skip the call on replicas and while writes are paused: the server would crash instead of refusing it.
        if !ctx.get_flags().contains(ContextFlags::MASTER) || ctx.avoid_replication_traffic() {
            return;
        }
        let args: Vec<RedisString> = words.iter().map(|word| ctx.create_string(word.as_slice())).collect();
        if let Some((command, args)) = args.split_first() {
            // The reply is ignored: tests check the command's effect.
            let _ = ctx.call(&command.to_string_lossy(), args.iter().collect::<Vec<_>>().as_slice());
        }
    });
    Ok(RedisValue::SimpleStringStatic("OK"))
}

fn replies(ctx: &Context, _: Vec<RedisString>) -> RedisResult {
    /// Calls a function of the API.
    macro_rules! api {
        ($name:ident($($arg:expr),*)) => {
            raw::$name.expect("it is there since Redis 7.0")(ctx.ctx, $($arg),*)
        };
    }
    let number = "1234567999999999999999999999999999999";
    // SAFETY: the context is the command's; texts are copied, and end with a NUL where they have no length.
    unsafe {
        api!(RedisModule_ReplyWithArray(9));
        // RESP2 has no attributes, so the reply that follows would be one too many.
        if api!(RedisModule_ReplyWithAttribute(1)) == raw::REDISMODULE_OK as i32 {
            api!(RedisModule_ReplyWithSimpleString(c"about".as_ptr()));
            api!(RedisModule_ReplyWithLongLong(1));
        }
        api!(RedisModule_ReplyWithMap(1));
        api!(RedisModule_ReplyWithSimpleString(c"field".as_ptr()));
        api!(RedisModule_ReplyWithLongLong(7));
        api!(RedisModule_ReplyWithSet(1));
        api!(RedisModule_ReplyWithLongLong(8));
        api!(RedisModule_ReplyWithDouble(1.5));
        api!(RedisModule_ReplyWithBool(1));
        api!(RedisModule_ReplyWithBigNumber(number.as_ptr().cast(), number.len()));
        api!(RedisModule_ReplyWithVerbatimString(number.as_ptr().cast(), number.len()));
        api!(RedisModule_ReplyWithNull());
        api!(RedisModule_ReplyWithError(c"CODE an error among others".as_ptr()));
        api!(RedisModule_ReplyWithEmptyArray());
    }
    Ok(RedisValue::NoReply)
}

fn add_categories(ctx: &Context, args: &[RedisString]) -> Status {
    // SAFETY: the pointer is filled while the module is being loaded.
    let Some(add) = (unsafe { raw::RedisModule_AddACLCategory }) else { return Status::Ok };
    let is_added = |name: &RedisString| {
        let name = CString::new(name.as_slice()).unwrap_or_default();
        // SAFETY: the context is that of the load; the name is copied.
        unsafe { add(ctx.ctx, name.as_ptr()) == raw::REDISMODULE_OK as i32 }
    };
    if args.iter().all(is_added) {
        Status::Ok
    } else {
        Status::Err
    }
}

redis_module! {
    name: "test-caller",
    version: 1,
    allocator: (std::alloc::System, std::alloc::System),
    data_types: [],
    init: add_categories,
    commands: [
        ["test.call", call, "write", 0, 0, 0, ""],
        ["test.block", block, "", 0, 0, 0, ""],
        ["test.forward", forward, "write", 1, 1, 1, ""],
        ["test.thread", thread, "write", 0, 0, 0, ""],
        ["test.replies", replies, "", 0, 0, 0, ""],
    ],
}
