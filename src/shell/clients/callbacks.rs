//! The server's callbacks for a blocked client: its reply, `CLIENT UNBLOCK`, its end. Nothing is decided here: they
//! note events.
//!
//! After a client was unblocked with a [`Ready`], the server calls, on its way back to sleep, either the reply callback
//! and then `free`, or `free` alone when the client has gone; an undelivered grant then passes on. The reply callback
//! is also called for a client that the server is going to close in this turn: its user was deleted, its output buffer
//! is too long, its socket breaks. So the reply is written here, and counts as delivered when the turn is over.

use std::ffi::{c_int, c_void};

use command::reply::{self, ReplyWriter};
use lock::host::WaitOutcome;
use lock::key::{ClientId, RequestId};
use lock::value::claim::Family;
use lock::value::owner::Owner;
use redis_module::raw;

use crate::shell::background::events::{self, Event};
use crate::shell::background::{timer, turn_end};
use crate::shell::ffi::blocked::{BlockCallbacks, BlockedId};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::guard::guard;

/// The outcome that a blocked client is going to read.
pub struct Ready {
    /// Its connection.
    pub client: ClientId,
    /// Its request.
    pub request: RequestId,
    /// The owner of the request.
    pub owner: Owner,
    /// The family of the lock.
    pub family: Family,
    /// How the request ended.
    pub outcome: WaitOutcome,
}

/// The callbacks of every blocked client. Its data is a [`Ready`] or null.
pub const CALLBACKS: BlockCallbacks =
    BlockCallbacks { reply: on_reply, timeout: on_timeout, free: on_free, disconnect: on_disconnect };

unsafe extern "C" fn on_reply(ctx: *mut raw::RedisModuleCtx, _: *mut *mut raw::RedisModuleString, _: c_int) -> c_int {
    guard("reply", || {
        // SAFETY: the context of this callback.
        let Some(mut ctx) = (unsafe { Ctx::new(ctx) }) else { return };
        // SAFETY: as `CALLBACKS` says.
        let Some(ready) = (unsafe { ctx.blocked_data::<Ready>() }) else { return };
        let (client, request, outcome) = (ready.client, ready.request, ready.outcome);
        let (owner, family) = (ready.owner.clone(), ready.family);
        reply::wait_outcome(&mut ctx, family, owner.as_ref(), outcome);
        if matches!(outcome, WaitOutcome::Granted { .. }) {
            events::note(Event::GrantTold(client, request));
            turn_end::request_event();
        }
    });
    raw::REDISMODULE_OK as c_int
}

/// `CLIENT UNBLOCK id`, the only time-out that the server itself can bring here.
unsafe extern "C" fn on_timeout(ctx: *mut raw::RedisModuleCtx, _: *mut *mut raw::RedisModuleString, _: c_int) -> c_int {
    guard("timeout", || {
        // SAFETY: the context of this callback.
        let Some(mut ctx) = (unsafe { Ctx::new(ctx) }) else { return };
        events::note(Event::Unblocked(ctx.blocked_id()));
        ctx.null();
        timer::wake();
    });
    raw::REDISMODULE_OK as c_int
}

/// The connection ended; or `CLIENT UNBLOCK id ERROR`, or the server became a replica: then the client lives, and keeps
/// no place.
unsafe extern "C" fn on_disconnect(_: *mut raw::RedisModuleCtx, blocked: *mut raw::RedisModuleBlockedClient) {
    guard("disconnect", || {
        events::note(Event::Disconnected(BlockedId::of(blocked)));
        timer::wake();
    });
}

unsafe extern "C" fn on_free(ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    guard("free", || {
        if data.is_null() {
            return;
        }
        // SAFETY: as `CALLBACKS` says, and this is the last call that gets it; the context is that of this callback.
        let (ready, ctx) = unsafe { (Box::from_raw(data.cast::<Ready>()), Ctx::new(ctx)) };
        let is_granted = matches!(ready.outcome, WaitOutcome::Granted { .. });
        if is_granted && ctx.is_some_and(Ctx::is_blocked_client_gone) {
            events::note(Event::GrantUndelivered(ready.request));
            timer::wake();
        }
    });
}
