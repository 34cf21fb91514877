//! The minimum that a module needs to block a client and to wake it, in order of arrival, as a baseline for hand-offs.
//! Keys and leases are ignored. A client that disconnects while it waits still counts as woken when it is first.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_longlong, c_void};
use std::sync::atomic::Ordering::Relaxed;

use redis_module::raw;

use crate::{api, arguments, bytes, LAST, OK};

/// A blocked client, and the token to return to it.
type Waiter = (*mut raw::RedisModuleBlockedClient, Box<Token>);

struct Token(Vec<u8>);

thread_local! {
    /// Only used on the main thread, which runs all commands.
    static WAITERS: RefCell<VecDeque<Waiter>> = const { RefCell::new(VecDeque::new()) };
}

/// # Safety
/// Only the server may call it, as a command.
pub unsafe extern "C" fn park(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: context and arguments of the command that is running.
    unsafe {
        let &[_, _, token, ..] = arguments(argv, argc) else { return api!(RedisModule_WrongArity(ctx)) };
        let token = Box::new(Token(bytes(token).to_vec()));
        let waiter = api!(RedisModule_BlockClient(ctx, Some(on_reply), None, Some(on_free), 0));
        WAITERS.with_borrow_mut(|waiters| waiters.push_back((waiter, token)));
    }
    OK
}

/// # Safety
/// As [`park`].
pub unsafe extern "C" fn wake_up(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    let woken = WAITERS.with_borrow_mut(VecDeque::pop_front);
    // SAFETY: the context of the command that is running; each blocked client is unblocked once.
    unsafe {
        api!(RedisModule_ReplyWithLongLong(ctx, c_longlong::from(woken.is_some())));
        if let Some((waiter, token)) = woken {
            api!(RedisModule_UnblockClient(waiter, Box::into_raw(token).cast()));
        }
    }
    OK
}

unsafe extern "C" fn on_reply(ctx: *mut raw::RedisModuleCtx, _: *mut *mut raw::RedisModuleString, _: c_int) -> c_int {
    // SAFETY: the context of this callback, of a client that was unblocked with a token.
    unsafe {
        let token = api!(RedisModule_GetBlockedClientPrivateData(ctx)).cast::<Token>();
        let Token(token) = &*token;
        api!(RedisModule_ReplyWithArray(ctx, 2));
        api!(RedisModule_ReplyWithStringBuffer(ctx, token.as_ptr().cast(), token.len()));
        api!(RedisModule_ReplyWithLongLong(ctx, LAST.fetch_add(1, Relaxed) as c_longlong))
    }
}

unsafe extern "C" fn on_free(_: *mut raw::RedisModuleCtx, token: *mut c_void) {
    // SAFETY: the last call that gets it; it came from a `Box`.
    drop(unsafe { Box::from_raw(token.cast::<Token>()) });
}
