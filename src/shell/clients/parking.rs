//! How the client of a command begins to wait.

use command::host::NewWaiter;
use command::reply;
use lock::host::{Clients, Delivery, Park, WaitOutcome};
use lock::key::{ClientId, RequestId};
use redis_module::raw;

use super::callbacks::CALLBACKS;
use super::waiting_clients::{AnswerBy, WaitingClient};
use super::wake::Answering;
use crate::shell::background::gate;
use crate::shell::ffi::server::Audience;
use crate::shell::ffi::string::Str;

/// The clients of the rules during a command: those who wait already, and the command's own.
pub struct Parking<'a> {
    /// Those who wait already.
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
    /// As BLPOP: who may not block gets its answer at once.
    fn may_wait(&self) -> bool {
        self.waiter.is_some() && !self.answering.ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
    }

    /// Blocks the client, or replies that its request is queued, and publishes later.
    fn park(&mut self, request: RequestId) -> bool {
        let Some(NewWaiter { owner, prefix, key, channel }) = self.waiter else { return false };
        let Answering { ctx, clients } = &mut self.answering;
        let answer_by = match channel {
            Some(channel) => {
                let audience = if gate::is_in_cluster() { Audience::Shard } else { Audience::Everybody };
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
        self.has_parked = true;
        true
    }
}
