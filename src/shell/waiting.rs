//! How a client waits and is woken: the blocked clients and the subscribers behind the queued requests.
//!
//! Every blocked client is unblocked exactly once: when its ticket is taken out of `tickets`. After that the server calls, on its way back to
//! sleep, either the reply callback and then `free`, or `free` alone when the client is gone; a grant that nobody heard is passed on then.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use super::api::{self, guard, BlockCallbacks, BlockedHandle, Ctx, Str};
use super::drain;
use super::run;
use super::state;
use command::{news, words};
use lock::claim::Kind;
use lock::desk::Desk;
use lock::numbered::{Numbered, Numbers};
use lock::owner::Owner;
use lock::queue::{ClientId, KeyRef, RequestId};
use lock::serve::Leaving;
use lock::shrink;
use lock::state::First;
use lock::time::{Deadline, Now};
use lock::world::{Delivery, Effect, Found, Gate, News, World};

/// Those who wait, by request.
#[derive(Default)]
pub struct Waiting {
    tickets: Numbered<RequestId, Ticket>,
    by_handle: Numbered<BlockedHandle, RequestId>,
    by_subscriber: Numbered<ClientId, Numbers<RequestId>>,
    /// Answers to requests that got theirs before their client was parked: in the same step.
    early: Numbered<RequestId, News>,
    /// The connection of which the server said last that it ended. It says so right before it unblocks that client.
    pub last_gone: Option<ClientId>,
}

/// One who waits.
pub struct Ticket {
    pub client: ClientId,
    pub owner: Owner,
    pub kind: Kind,
    pub by: By,
}

/// How it waits.
pub enum By {
    /// The client is blocked.
    Block(BlockedHandle),
    /// The client goes on, and listens to the channel.
    Notify { channel: Vec<u8>, key: Vec<u8>, to_shard: bool },
}

/// What a blocked client is going to read.
struct Ready {
    request: RequestId,
    owner: Owner,
    kind: Kind,
    news: News,
}

const CALLBACKS: BlockCallbacks =
    BlockCallbacks { reply: on_reply, timeout: on_timeout, free: on_free, disconnect: on_disconnect };

impl Waiting {
    /// Who waits by this request.
    pub fn ticket(&self, request: RequestId) -> Option<&Ticket> {
        self.tickets.get(&request)
    }

    /// Blocks the context's client until its request is answered; at once, if it was answered already. False: the client cannot be blocked.
    pub fn park(&mut self, ctx: Ctx, request: RequestId, client: ClientId, owner: Owner, kind: Kind) -> bool {
        if let Some(news) = self.early.remove(&request) {
            reply(ctx, &Ready { request, owner, kind, news });
            return true;
        }
        let Some(handle) = ctx.block(&CALLBACKS) else { return false };
        self.by_handle.insert(handle, request);
        self.tickets.insert(request, Ticket { client, owner, kind, by: By::Block(handle) });
        true
    }

    /// Notes that the request's outcome is to be published; what has come of it already is returned.
    pub fn subscribe(&mut self, request: RequestId, ticket: Ticket) -> Option<News> {
        if let Some(news) = self.early.remove(&request) {
            return Some(news);
        }
        self.by_subscriber.entry(ticket.client).or_default().insert(request);
        self.tickets.insert(request, ticket);
        None
    }

    /// Tells the one who waits how its request ended. Without a context nothing can be published.
    pub fn answer(&mut self, ctx: Option<Ctx>, request: RequestId, news: News) -> Delivery {
        let Some(ticket) = self.tickets.remove(&request) else {
            self.early.insert(request, news);
            return Delivery::Done;
        };
        shrink::map(&mut self.tickets);
        match ticket.by {
            By::Block(handle) => {
                self.by_handle.remove(&handle);
                shrink::map(&mut self.by_handle);
                let ready = Box::new(Ready { request, owner: ticket.owner, kind: ticket.kind, news });
                // SAFETY: the ticket was there, so the handle has not been unblocked yet.
                unsafe { handle.unblock(Box::into_raw(ready).cast()) };
                if matches!(news, News::Granted { .. }) {
                    Delivery::Pending
                } else {
                    Delivery::Done
                }
            }
            By::Notify { channel, key, to_shard } => {
                self.unsubscribe(ticket.client, request);
                if let Some(ctx) = ctx {
                    let message = news::message(&key, ticket.owner.as_bytes(), news);
                    api::publish(ctx, &channel, &message, to_shard);
                }
                Delivery::Done
            }
        }
    }

    /// The connection of a subscriber has ended: its requests may keep their places.
    pub fn forget_subscriber(&mut self, desk: &mut Desk, now: &Now, client: ClientId) {
        for request in self.by_subscriber.remove(&client).into_iter().flatten() {
            self.tickets.remove(&request);
            desk.leave(now, request, Leaving::MayComeBack);
        }
    }

    /// Tells everyone that this server is no master any more. The server has unblocked the blocked ones itself, or has not: both are met.
    pub fn demote(&mut self, desk: &mut Desk) {
        desk.demote(&mut Nowhere(self, drain::own_context()));
    }

    /// A blocked client that goes without an answer of ours; its request.
    fn give_up(&mut self, handle: BlockedHandle) -> Option<(RequestId, Ticket)> {
        let request = self.by_handle.remove(&handle)?;
        shrink::map(&mut self.by_handle);
        shrink::map(&mut self.tickets);
        self.tickets.remove(&request).map(|ticket| (request, ticket))
    }

    fn unsubscribe(&mut self, client: ClientId, request: RequestId) {
        if let Some(requests) = self.by_subscriber.get_mut(&client) {
            requests.remove(&request);
            shrink::set(requests);
            if requests.is_empty() {
                self.by_subscriber.remove(&client);
            }
        }
    }
}

/// The world of a server that may not write: it only answers.
struct Nowhere<'a>(&'a mut Waiting, Option<Ctx>);

impl World for Nowhere<'_> {
    fn find(&mut self, _: KeyRef<'_>) -> Found<'_> {
        Found::Free
    }

    fn until(&mut self, _: KeyRef<'_>) -> Deadline {
        Deadline::Never
    }

    fn create(&mut self, _: KeyRef<'_>, _: First<'_>) {}

    fn update(&mut self, _: KeyRef<'_>, _: Effect<'_>, _: Option<Deadline>) {}

    fn remove(&mut self, _: KeyRef<'_>) {}

    fn gate(&mut self, _: KeyRef<'_>) -> Gate {
        Gate::Closed
    }

    fn answer(&mut self, request: RequestId, news: News) -> Delivery {
        self.0.answer(self.1, request, news)
    }
}

fn reply(ctx: Ctx, ready: &Ready) {
    match ready.news {
        News::Granted { fence, holds } => run::reply_grant(ctx, ready.owner.as_bytes(), ready.kind, fence.get(), holds),
        News::TimedOut => ctx.reply_null(),
        news => {
            if let Some(words) = words::of_news(news) {
                ctx.reply_error(&words.0);
            }
        }
    }
}

unsafe extern "C" fn on_reply(ctx: *mut raw::RedisModuleCtx, _: *mut *mut raw::RedisModuleString, _: c_int) -> c_int {
    guard("reply", || {
        let Some(ctx) = Ctx::new(ctx) else { return };
        let data = ctx.blocked_data().cast::<Ready>();
        // SAFETY: what `answer` gave; `on_free` comes later.
        let Some(ready) = (unsafe { data.as_ref() }) else { return };
        reply(ctx, ready);
        if matches!(ready.news, News::Granted { .. }) {
            state::with(|state, _| state.desk.delivered(ready.request));
        }
    });
    raw::REDISMODULE_OK as c_int
}

/// `CLIENT UNBLOCK id`, the only time-out that the server itself can bring here.
unsafe extern "C" fn on_timeout(ctx: *mut raw::RedisModuleCtx, _: *mut *mut raw::RedisModuleString, _: c_int) -> c_int {
    guard("timeout", || {
        let Some(ctx) = Ctx::new(ctx) else { return };
        leave(ctx.blocked_handle(), Some(Leaving::ForGood));
        ctx.reply_null();
        drain::soon();
    });
    raw::REDISMODULE_OK as c_int
}

/// The connection ended; or `CLIENT UNBLOCK id ERROR`, or the server became a replica: then the client lives, and keeps no place.
unsafe extern "C" fn on_disconnect(_: *mut raw::RedisModuleCtx, blocked: *mut raw::RedisModuleBlockedClient) {
    guard("disconnect", || {
        leave(BlockedHandle::of(blocked), None);
        drain::soon();
    });
}

/// The last call for a client that was unblocked with something to read.
unsafe extern "C" fn on_free(ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    guard("free", || {
        if data.is_null() {
            return;
        }
        // SAFETY: what `answer` gave, and this is the last call that gets it.
        let ready = unsafe { Box::from_raw(data.cast::<Ready>()) };
        let Some(ctx) = Ctx::new(ctx) else { return };
        if matches!(ready.news, News::Granted { .. }) && ctx.is_blocked_client_gone() {
            state::with(|state, _| state.desk.undelivered(ready.request));
            drain::soon();
        }
    });
}

/// The client of the handle waits no more: for good, or by whether its connection has ended.
fn leave(handle: BlockedHandle, leaving: Option<Leaving>) {
    state::with(|state, now| {
        // A client that was granted or told something already is no ticket any more.
        if let Some((request, ticket)) = state.waiting.give_up(handle) {
            let has_gone = state.waiting.last_gone == Some(ticket.client);
            let leaving = leaving.unwrap_or(if has_gone { Leaving::MayComeBack } else { Leaving::ForGood });
            // SAFETY: the ticket was there, so the handle has not been unblocked yet.
            unsafe { handle.unblock(std::ptr::null_mut()) };
            state.desk.leave(now, request, leaving);
        }
    });
}

/// What the ticket of a `NOTIFY` request is made of.
pub fn notify_ticket(client: ClientId, owner: Owner, kind: Kind, channel: Str, key: &[u8], to_shard: bool) -> Ticket {
    // SAFETY: the channel is an argument of the running command.
    let channel = unsafe { channel.bytes() }.to_vec();
    Ticket { client, owner, kind, by: By::Notify { channel, key: key.to_vec(), to_shard } }
}
