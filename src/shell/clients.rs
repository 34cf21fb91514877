//! Clients with queued requests: blocked clients, and subscribers that wait without blocking (NOTIFY). This file makes
//! them wait, replies to them, and handles their disconnection.
//!
//! Every blocked client is unblocked exactly once, when its entry is removed from `waiting`. Server callbacks decide
//! nothing: they record events.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};

use command::adopted::seen::Act;
use command::catalog::{Action, Command, CATALOG};
use command::host::{KeyArguments, NewWaiter};
use command::name::Prefix;
use command::notification;
use command::reply::{self, ReplyWriter};
use lock::engine::leave::Leave;
use lock::engine::lock_manager::LockManager;
use lock::host::{Clients, Delivery, Park, WaitOutcome};
use lock::id_map::IdMap;
use lock::key::{ClientId, RequestId};
use lock::value::claim::{Claim, LockType};
use lock::value::owner::Owner;
use lock::value::time::Now;
use redis_module::raw;
use smallvec::SmallVec;

use super::adopt;
use super::background::events::{self, Event};
use super::background::{timer, write_check};
use super::clock;
use super::ffi::blocked::{BlockCallbacks, BlockedClient, BlockedId};
use super::ffi::context::{guard, Ctx};
use super::ffi::server::{may_publish, publish, Audience, User};
use super::ffi::string::{OwnedStr, Str, StrOfKey};
use super::granted_here;

/// The waiting clients, by request.
#[derive(Default)]
pub struct WaitingClients {
    waiting: IdMap<RequestId, WaitingClient>,
    by_blocked: IdMap<BlockedId, RequestId>,
    by_subscriber: BTreeMap<ClientId, BTreeSet<RequestId>>,
    /// The connection that the server last reported as closed. Right after the report it unblocks that client.
    last_disconnected: Option<ClientId>,
    /// Requests granted in this engine pass, and their clients.
    granted: Vec<(RequestId, ClientId)>,
    /// String objects for permission checks.
    check_arguments: CheckArguments,
}

struct WaitingClient {
    reply_by: ReplyBy,
    /// Boxed because the reply callback gets a pointer to it.
    request: Box<WaitingRequest>,
}

/// The request of a waiting client, and its outcome, which a blocked client gets as the reply.
///
/// After the module has unblocked the client, and before the event loop sleeps, the server calls the reply callback and
/// then `free`. If the client is gone it calls only `free`, and an undelivered grant goes to the next waiter. A written
/// reply counts as delivered, even if the server closes the client in this iteration because its user was deleted, its
/// output buffer is too large, or its socket breaks.
struct WaitingRequest {
    id: RequestId,
    client: ClientId,
    owner: Owner,
    prefix: Prefix,
    /// The key, if its command is a SET of another lock library.
    adopted_key: Option<Box<[u8]>>,
    /// Whether a SET with `lock.adopt-wait` may wait for the lock.
    is_waited_for_by_sets: bool,
    /// The outcome, once the client is unblocked.
    outcome: Option<WaitOutcome>,
    on_delivered: OnDelivered,
}

/// How a waiting client learns the outcome.
enum ReplyBy {
    /// By the reply to its command: it is blocked.
    Reply(BlockedClient),
    /// By a message on a channel: it is not blocked.
    Message {
        channel: Vec<u8>,
        /// The first key of the request.
        key: Vec<u8>,
        /// The subscribers that get it.
        audience: Audience,
    },
}

impl WaitingClients {
    /// The connection that waits for this request.
    pub fn client_of(&self, request: RequestId) -> Option<ClientId> {
        self.waiting.get(&request).map(|waiting| waiting.request.client)
    }

    /// Adds a client that waits.
    fn insert(&mut self, waiting: WaitingClient) {
        let WaitingRequest { id, client, .. } = *waiting.request;
        let is_adopted = waiting.request.adopted_key.is_some();
        match &waiting.reply_by {
            ReplyBy::Reply(blocked) => {
                self.by_blocked.insert(blocked.id(), id);
                if is_adopted {
                    granted_here::start_waiting(blocked.id());
                }
            }
            ReplyBy::Message { .. } => _ = self.by_subscriber.entry(client).or_default().insert(id),
        }
        self.waiting.insert(id, waiting);
    }

    /// A connection has closed. The positions of a subscriber's requests may be reserved. For a blocked client,
    /// [`WaitingClients::disconnected`] follows.
    pub fn client_disconnected(&mut self, manager: &mut LockManager, client: ClientId) {
        self.last_disconnected = Some(client);
        let requests = self.by_subscriber.remove(&client).unwrap_or_default();
        for request in &requests {
            self.waiting.remove(request);
        }
        manager.leave_all(requests);
    }

    /// `CLIENT UNBLOCK` has replied to the blocked client.
    pub fn unblocked(&mut self, manager: &mut LockManager, now: &Now, blocked: BlockedId) {
        if let Some((request, _)) = self.remove_unblocked(blocked) {
            manager.leave(now, request, Leave::Abandon);
        }
    }

    /// The server has unblocked the client, because its connection closed or because the server has sent it an error.
    pub fn disconnected(&mut self, manager: &mut LockManager, now: &Now, blocked: BlockedId) {
        let last_disconnected = self.last_disconnected;
        if let Some((request, client)) = self.remove_unblocked(blocked) {
            let mode = if last_disconnected == Some(client) { Leave::Detach } else { Leave::Abandon };
            manager.leave(now, request, mode);
        }
    }

    /// Removes a client that the server has unblocked, and returns its request and connection. `None`: the module
    /// replied first.
    fn remove_unblocked(&mut self, blocked: BlockedId) -> Option<(RequestId, ClientId)> {
        let request = self.by_blocked.get(&blocked).copied()?;
        let waiting = self.take(request)?;
        if let ReplyBy::Reply(blocked) = waiting.reply_by {
            blocked.unblock::<WaitingRequest>(None);
        }
        Some((request, waiting.request.client))
    }

    /// The connection of this request, if the request was granted in this engine pass.
    pub fn granted_client(&self, request: RequestId) -> Option<ClientId> {
        self.granted.iter().find(|(granted, _)| *granted == request).map(|(_, client)| *client)
    }

    /// Called at the end of an engine pass.
    pub fn forget_granted(&mut self) {
        self.granted.clear();
    }

    /// Removes the client that waits for this request. The caller must reply to it.
    fn take(&mut self, request: RequestId) -> Option<WaitingClient> {
        let waiting = self.waiting.remove(&request)?;
        match &waiting.reply_by {
            ReplyBy::Reply(blocked) => {
                self.by_blocked.remove(&blocked.id());
                granted_here::stop_waiting(blocked.id());
            }
            ReplyBy::Message { .. } => self.unsubscribe(waiting.request.client, request),
        }
        Some(waiting)
    }

    fn unsubscribe(&mut self, client: ClientId, request: RequestId) {
        if let Some(requests) = self.by_subscriber.get_mut(&client) {
            requests.remove(&request);
            if requests.is_empty() {
                self.by_subscriber.remove(&client);
            }
        }
    }
}

/// Called when the reply that contains a grant has been written to the connection.
pub type OnDelivered = fn(RequestId);

/// The clients as the engine uses them during a pass: the waiting ones, and the command's own.
pub struct PassClients<'a> {
    pub ctx: Ctx<'a>,
    /// The keys of the command; none when called from the timer.
    pub arguments: KeyArguments<'a, Str<'a>>,
    pub clients: &'a mut WaitingClients,
    /// Passed on to each grant that is delivered as a reply.
    pub on_delivered: OnDelivered,
    /// The client of the command. `None`: the command does not wait, or the timer is running.
    pub waiter: Option<NewWaiter<'a, Str<'a>>>,
}

impl Park for PassClients<'_> {
    /// As in BLPOP, a client that may not block gets its reply at once.
    fn may_wait(&self) -> bool {
        self.waiter.is_some() && !self.ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
    }

    /// Blocks the client, or replies that its request is queued and later publishes the outcome.
    fn park(&mut self, id: RequestId) -> bool {
        let Some(NewWaiter { owner, prefix, claim, key, channel }) = self.waiter else { return false };
        let reply_by = match channel {
            Some(channel) => {
                let audience = if write_check::is_in_cluster() { Audience::Shard } else { Audience::All };
                reply::queued(&mut self.ctx, &claim, owner);
                ReplyBy::Message { channel: channel.bytes().to_vec(), key: key.to_vec(), audience }
            }
            None => match self.ctx.block(&CALLBACKS) {
                Some(blocked) => ReplyBy::Reply(blocked),
                None => return false,
            },
        };
        let owner = owner.to_owner();
        let adopted_key = (claim == Claim::AdoptedMutex).then(|| key.into());
        let may_be_waited_for = || self.arguments.names.iter().any(|name| adopt::may_be_waited_for(name));
        let is_waited_for_by_sets = claim.lock_type() == LockType::Mutex && may_be_waited_for();
        let on_delivered = self.on_delivered;
        let (client, outcome) = (ClientId(self.ctx.client_id()), None);
        let request =
            WaitingRequest { id, client, owner, prefix, adopted_key, is_waited_for_by_sets, outcome, on_delivered };
        self.clients.insert(WaitingClient { reply_by, request: Box::new(request) });
        true
    }

    /// Only a request with NOTIFY can be sent again on the connection that waits for it.
    fn detach_own(&mut self, request: RequestId) -> bool {
        let is_same = self.clients.client_of(request) == Some(ClientId(self.ctx.client_id()));
        is_same && self.clients.take(request).is_some()
    }
}

/// The server's work for an unblocked client after the engine pass: writing the reply, and maintaining its client
/// lists.
const UNBLOCKING_US: u64 = 8;

/// After a wait of this length, a grant checks the permissions of the user again. After a shorter wait the permissions
/// at the time of the request suffice, because the ACL could just as well have changed right after the grant. Checking
/// costs 3,000 to 4,000 instructions, a tenth of a hand-off (callgrind, Redis 7.0.15), and where hand-offs are frequent
/// waits are shorter than this. The server offers modules neither an event nor a counter for ACL changes.
const RECHECK_PERMISSION_AFTER_MS: u64 = 20;

impl Clients for PassClients<'_> {
    /// The server checked the user's permissions when the request was sent. By the time of the grant, the user may have
    /// lost them.
    #[inline]
    fn may_be_granted(&mut self, request: RequestId, names: &[&[u8]], waited_ms: u64) -> bool {
        waited_ms < RECHECK_PERMISSION_AFTER_MS || self.is_permitted(request, names)
    }

    fn reply(&mut self, request: RequestId, outcome: WaitOutcome) -> Delivery {
        let Some(WaitingClient { reply_by, request: mut waiting_request }) = self.clients.take(request) else {
            return Delivery::Failed;
        };
        let client = waiting_request.client;
        if let WaitOutcome::Granted { fence, .. } = outcome {
            self.clients.granted.push((request, client));
            if let Some(key) = &waiting_request.adopted_key {
                granted_here::record_adopted(self.ctx, fence, Some(client));
                adopt::count(key, LockType::Mutex, |seen| seen.act(Act::Grant));
            } else if waiting_request.is_waited_for_by_sets {
                granted_here::record(fence, Some(client));
            }
        }
        match reply_by {
            ReplyBy::Reply(blocked) => {
                clock::shorten_slice(UNBLOCKING_US);
                waiting_request.outcome = Some(outcome);
                blocked.unblock(Some(waiting_request));
                match outcome {
                    WaitOutcome::Granted { .. } => Delivery::Pending(client),
                    _ => Delivery::Done,
                }
            }
            ReplyBy::Message { channel, key, audience } => {
                if outcome == WaitOutcome::NotPermitted
                    && !may_publish(self.ctx, client.0, OwnedStr::new(&channel).as_str())
                {
                    return Delivery::Done;
                }
                let message = notification::message(&key, waiting_request.owner.as_bytes(), outcome);
                publish(self.ctx, &channel, &message, audience);
                Delivery::Done
            }
        }
    }
}

impl PassClients<'_> {
    #[inline(never)]
    fn is_permitted(&mut self, request: RequestId, names: &[&[u8]]) -> bool {
        let WaitingClients { waiting, check_arguments, .. } = &mut *self.clients;
        let Some(waiting) = waiting.get(&request) else { return true };
        // A closed connection is detected when the reply is sent.
        let Some(user) = User::of_connection(self.ctx, waiting.request.client.0) else { return true };
        let may_be_notified = match &waiting.reply_by {
            ReplyBy::Reply(_) => true,
            ReplyBy::Message { channel, .. } => user.may_publish(OwnedStr::new(channel).as_str()),
        };
        if !may_be_notified {
            return false;
        }
        if waiting.request.adopted_key.is_some() {
            may_set(&user, names)
        } else {
            check_arguments.may_acquire(&user, waiting.request.prefix, names, &self.arguments)
        }
    }
}

/// String objects for the arguments of permission checks, created on first use and reused. Creating three strings for
/// each check would cost 800 of the 42,100 instructions of a hand-off (callgrind, Redis 7.0.15).
#[derive(Default)]
struct CheckArguments {
    /// The `*.ACQUIRE` of each prefix, with its name.
    commands: Vec<(Prefix, &'static Command, OwnedStr)>,
    /// An argument that is not a key.
    other: Option<OwnedStr>,
}

impl CheckArguments {
    /// Whether the user may still send this `*.ACQUIRE` for these keys. If the hand-off is made by a command, the key
    /// is usually an argument of that command, whose string object is used.
    fn may_acquire(
        &mut self,
        user: &User<'_>,
        prefix: Prefix,
        names: &[&[u8]],
        arguments: &KeyArguments<'_, Str<'_>>,
    ) -> bool {
        let CheckArguments { commands, other } = self;
        if !commands.iter().any(|(known, ..)| *known == prefix) {
            let acquire = CATALOG.iter().find(|command| command.action == Action::Acquire(prefix));
            commands.extend(acquire.map(|command| (prefix, command, OwnedStr::new(command.name.as_bytes()))));
        }
        let Some((_, command, name)) = commands.iter().find(|(known, ..)| *known == prefix) else { return true };
        // The other arguments are not keys, but Redis 8.6 checks the arity first.
        let other = other.get_or_insert_with(|| OwnedStr::new(b"-")).as_str();
        let count = prefix.takes_multiple_keys().then(|| OwnedStr::new(names.len().to_string().as_bytes()));
        let keys = names.iter().map(|name| StrOfKey::find(arguments, name));
        let keys: SmallVec<[StrOfKey<'_>; 1]> = keys.collect();
        let mut all: SmallVec<[Str<'_>; 8]> = SmallVec::new();
        all.push(name.as_str());
        all.extend(count.as_ref().map(OwnedStr::as_str));
        all.extend(keys.iter().map(StrOfKey::as_str));
        all.push(other);
        while !command.accepts(all.len()) {
            all.push(other);
        }
        user.may_run(&all)
    }
}

/// Whether the user may still send the waiting SET and run the command it was translated into.
fn may_set(user: &User<'_>, names: &[&[u8]]) -> bool {
    let check_arguments =
        [b"LOCK.ADOPTED", &b"SET"[..], names.first().copied().unwrap_or_default(), b"-"].map(OwnedStr::new);
    let check_arguments = check_arguments.each_ref().map(OwnedStr::as_str);
    user.may_run(&check_arguments) && user.may_run(&check_arguments[1..])
}

/// The callbacks of every blocked client. Its private data is a [`WaitingRequest`] or null.
const CALLBACKS: BlockCallbacks =
    BlockCallbacks { reply: on_reply, timeout: on_timeout, free: on_free, disconnect: on_disconnect };

unsafe extern "C" fn on_reply(ctx: *mut raw::RedisModuleCtx, _: *mut *mut raw::RedisModuleString, _: c_int) -> c_int {
    guard("reply", || {
        // SAFETY: the context of this callback.
        let Some(mut ctx) = (unsafe { Ctx::new(ctx) }) else { return };
        // SAFETY: see `CALLBACKS`.
        let Some(waiting_request) = (unsafe { ctx.blocked_data::<WaitingRequest>() }) else { return };
        let Some(outcome) = waiting_request.outcome else { return };
        if waiting_request.adopted_key.is_some() {
            reply::adopted_wait_outcome(&mut ctx, outcome);
        } else {
            reply::wait_outcome(&mut ctx, waiting_request.prefix.lock_type(), waiting_request.owner.as_ref(), outcome);
        }
        if matches!(outcome, WaitOutcome::Granted { .. }) {
            (waiting_request.on_delivered)(waiting_request.id);
        }
    });
    raw::REDISMODULE_OK as c_int
}

/// Called for `CLIENT UNBLOCK id`, the only timeout that the server itself can produce here.
unsafe extern "C" fn on_timeout(ctx: *mut raw::RedisModuleCtx, _: *mut *mut raw::RedisModuleString, _: c_int) -> c_int {
    guard("timeout", || {
        // SAFETY: the context of this callback.
        let Some(mut ctx) = (unsafe { Ctx::new(ctx) }) else { return };
        let blocked = ctx.blocked_id();
        events::record(Event::Unblocked(blocked));
        if granted_here::is_waiting(blocked) {
            ctx.null_string();
        } else {
            ctx.null();
        }
        timer::wake();
    });
    raw::REDISMODULE_OK as c_int
}

/// Called when the connection closed, for `CLIENT UNBLOCK id ERROR`, or when the server became a replica. In the last
/// two cases the client is still connected, and no position is reserved for it.
unsafe extern "C" fn on_disconnect(_: *mut raw::RedisModuleCtx, blocked: *mut raw::RedisModuleBlockedClient) {
    guard("disconnect", || {
        events::record(Event::Disconnected(BlockedId::of(blocked)));
        timer::wake();
    });
}

unsafe extern "C" fn on_free(ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    guard("free", || {
        if data.is_null() {
            return;
        }
        // SAFETY: see `CALLBACKS`; this is the last call that gets the data, and the context is that of this callback.
        let (waiting_request, ctx) = unsafe { (Box::from_raw(data.cast::<WaitingRequest>()), Ctx::new(ctx)) };
        let is_granted = matches!(waiting_request.outcome, Some(WaitOutcome::Granted { .. }));
        if is_granted && ctx.is_some_and(Ctx::is_blocked_client_disconnected) {
            events::record(Event::GrantUndelivered(waiting_request.id));
            timer::wake();
        }
    });
}
