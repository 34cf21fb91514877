//! How the client of a command begins to wait, and how it is woken: it is unblocked with its outcome, or the outcome is
//! published to it.

use command::catalog::{Action, CATALOG};
use command::host::NewWaiter;
use command::name::Prefix;
use command::{notification, reply};
use lock::host::{Clients, Delivery, Park, WaitOutcome};
use lock::key::{ClientId, RequestId};
use redis_module::raw;
use smallvec::SmallVec;

use super::callbacks::{Ready, CALLBACKS};
use super::waiting_clients::{AnswerBy, WaitingClient, WaitingClients};
use crate::shell::background::gate;
use crate::shell::clock;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::{publish, Audience, User};
use crate::shell::ffi::string::{OwnedStr, Str};

/// The clients of the rules during a command: the waiting ones, and the command's own.
pub struct Parking<'a> {
    /// The clients that wait already.
    pub answering: Answering<'a>,
    /// `None`: the command does not wait.
    pub waiter: Option<NewWaiter<'a, Str<'a>>>,
    /// Whether its request was queued.
    pub has_parked: bool,
}

impl Clients for Parking<'_> {
    fn may_be_granted(&mut self, request: RequestId, names: &[&[u8]], waited_ms: u64) -> bool {
        self.answering.may_be_granted(request, names, waited_ms)
    }

    fn answer(&mut self, request: RequestId, outcome: WaitOutcome) -> Delivery {
        self.answering.answer(request, outcome)
    }
}

impl Park for Parking<'_> {
    /// As BLPOP: a client that may not block is answered at once.
    fn may_wait(&self) -> bool {
        self.waiter.is_some() && !self.answering.ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
    }

    /// Blocks the client, or replies that its request is queued, and publishes later.
    fn park(&mut self, request: RequestId) -> bool {
        let Some(NewWaiter { owner, prefix, claim, key, channel }) = self.waiter else { return false };
        let Answering { ctx, clients } = &mut self.answering;
        let answer_by = match channel {
            Some(channel) => {
                let audience = if gate::is_in_cluster() { Audience::Shard } else { Audience::All };
                reply::queued(ctx, &claim, owner);
                AnswerBy::Message { channel: channel.bytes().to_vec(), key: key.to_vec(), audience }
            }
            None => match ctx.block(&CALLBACKS) {
                Some(blocked) => AnswerBy::Reply(blocked),
                None => return false,
            },
        };
        let client = ClientId(ctx.client_id());
        clients.insert(request, WaitingClient { client, owner: owner.to_owner(), prefix, answer_by });
        self.has_parked = true;
        true
    }
}

/// The server's work for an unblocked client, when the turn is over: its reply, and its place in lists.
const UNBLOCKING_US: u64 = 8;

/// A request is granted by the permissions with which it was sent if it has waited for less than this: the ACL could as
/// well have changed just after the grant. To check permissions again costs 3,000 to 4,000 instructions, a tenth of a
/// hand-off (callgrind, Redis 7.0.15), and waits are shorter than this where locks are handed over quickly. No event or
/// counter of the server reports a changed ACL to a module.
const PERMITTED_FOR_MS: u64 = 20;

/// The clients of the rules: the waiting ones, and a context to publish with.
pub struct Answering<'a> {
    /// The context of the callback that is running.
    pub ctx: Ctx<'a>,
    /// The clients that wait.
    pub clients: &'a mut WaitingClients,
}

impl Answering<'_> {
    #[inline(never)]
    fn is_permitted(&self, request: RequestId, names: &[&[u8]]) -> bool {
        let Some(waiting) = self.clients.get(request) else { return true };
        // A closed connection is found when it is answered.
        let Some(user) = User::of_connection(self.ctx, waiting.client.0) else { return true };
        let may_be_told = match &waiting.answer_by {
            AnswerBy::Reply(_) => true,
            AnswerBy::Message { channel, .. } => user.may_publish(OwnedStr::new(channel).as_str()),
        };
        may_be_told && may_acquire(&user, waiting.prefix, names)
    }
}

impl Clients for Answering<'_> {
    /// A queued request is granted later than its command: its user may have lost permissions since the server checked
    /// them.
    #[inline]
    fn may_be_granted(&mut self, request: RequestId, names: &[&[u8]], waited_ms: u64) -> bool {
        waited_ms < PERMITTED_FOR_MS || self.is_permitted(request, names)
    }

    fn answer(&mut self, request: RequestId, outcome: WaitOutcome) -> Delivery {
        let Some(waiting) = self.clients.take(request) else { return Delivery::Failed };
        let WaitingClient { client, owner, prefix, .. } = waiting;
        if matches!(outcome, WaitOutcome::Granted { .. }) {
            self.clients.note_granted(request, client);
        }
        match waiting.answer_by {
            AnswerBy::Reply(blocked) => {
                clock::shorten_turn(UNBLOCKING_US);
                blocked.unblock(Some(Box::new(Ready { client, request, owner, family: prefix.family(), outcome })));
                match outcome {
                    WaitOutcome::Granted { .. } => Delivery::Pending,
                    _ => Delivery::Done,
                }
            }
            AnswerBy::Message { channel, key, audience } => {
                if outcome == WaitOutcome::NotPermitted && !may_publish_to(self.ctx, client, &channel) {
                    return Delivery::Done;
                }
                let message = notification::message(&key, owner.as_bytes(), outcome);
                publish(self.ctx, &channel, &message, audience);
                Delivery::Done
            }
        }
    }
}

/// Whether the user may still send this `*.ACQUIRE` for these keys.
fn may_acquire(user: &User<'_>, prefix: Prefix, names: &[&[u8]]) -> bool {
    let Some(command) = CATALOG.iter().find(|command| command.action == Action::Acquire(prefix)) else { return true };
    let count = prefix.takes_several_keys().then(|| names.len().to_string());
    let known = std::iter::once(command.name.as_bytes()).chain(count.as_deref().map(str::as_bytes));
    let known: SmallVec<[OwnedStr; 3]> = known.chain(names.iter().copied()).map(OwnedStr::new).collect();
    // The other arguments are no keys, but Redis 8.6 counts them first.
    let other = OwnedStr::new(b"-");
    let mut all: SmallVec<[Str<'_>; 8]> = known.iter().map(OwnedStr::as_str).collect();
    while all.len() == known.len() || !command.accepts(all.len()) {
        all.push(other.as_str());
    }
    user.may_run(&all)
}

fn may_publish_to(ctx: Ctx<'_>, client: ClientId, channel: &[u8]) -> bool {
    User::of_connection(ctx, client.0).is_some_and(|user| user.may_publish(OwnedStr::new(channel).as_str()))
}
