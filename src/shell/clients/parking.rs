//! How the client of a command begins to wait.

use command::name::Prefix;
use command::reply;
use lock::host::{Clients, Delivery, Park, WaitOutcome};
use lock::key::{ClientId, RequestId};
use lock::value::owner::OwnerRef;
use redis_module::raw;

use super::callbacks::CALLBACKS;
use super::waiting_clients::{AnswerBy, WaitingClient};
use super::wake::Answering;
use crate::shell::ffi::server::Audience;
use crate::shell::ffi::string::Str;

/// Who waits, if its request queues: the command's client.
#[derive(Clone, Copy)]
pub struct NewWaiter<'a> {
    /// Who asks.
    pub owner: OwnerRef<'a>,
    /// By which command.
    pub prefix: Prefix,
    /// The first key of the request.
    pub key: &'a [u8],
    /// Where the outcome is published; `None`: the client blocks.
    pub channel: Option<(Str<'a>, Audience)>,
}

/// The clients of the rules during a command: those who wait already, and the command's own.
pub struct Parking<'a> {
    /// Those who wait already.
    pub answering: Answering<'a>,
    /// `None`: the command does not wait.
    pub waiter: Option<NewWaiter<'a>>,
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
    /// As BLPOP: who may not block gets its answer at once.
    fn may_wait(&self) -> bool {
        self.waiter.is_some() && !self.answering.ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
    }

    /// Blocks the client, or replies that its request is queued, and publishes later.
    fn park(&mut self, request: RequestId) -> bool {
        let Some(NewWaiter { owner, prefix, key, channel }) = self.waiter else { return false };
        let Answering { ctx, clients } = &mut self.answering;
        let answer_by = match channel {
            Some((channel, audience)) => {
                reply::queued(ctx, prefix.family(), owner);
                AnswerBy::Message { channel: channel.bytes().to_vec(), key: key.to_vec(), audience }
            }
            None => match ctx.block(&CALLBACKS) {
                Some(blocked) => AnswerBy::Reply(blocked),
                None => return false,
            },
        };
        let client = ClientId(ctx.client_id());
        clients.insert(request, WaitingClient { client, owner: owner.to_owner(), prefix, answer_by });
        true
    }
}
