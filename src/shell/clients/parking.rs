//! How the client of a command begins to wait.

use command::reply;
use lock::host::{Clients, Delivery, Park, WaitOutcome};
use lock::key::{ClientId, RequestId};
use lock::value::claim::Family;
use lock::value::owner::OwnerRef;

use super::callbacks::CALLBACKS;
use super::waiting_clients::{AnswerBy, WaitingClient};
use super::wake::Answering;
use crate::shell::ffi::server::Audience;
use crate::shell::ffi::string::Str;

/// Who waits, if its request queues.
#[derive(Clone, Copy)]
pub struct NewWaiter<'a> {
    /// The connection.
    pub client: ClientId,
    /// Who asks.
    pub owner: OwnerRef<'a>,
    /// For a lock of which family.
    pub family: Family,
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
    fn answer(&mut self, request: RequestId, outcome: WaitOutcome) -> Delivery {
        self.answering.answer(request, outcome)
    }
}

impl Park for Parking<'_> {
    /// Blocks the client, or replies that its request is queued, and publishes later.
    fn park(&mut self, request: RequestId) -> bool {
        let Some(NewWaiter { client, owner, family, key, channel }) = self.waiter else { return false };
        let Answering { ctx, clients } = &mut self.answering;
        let answer_by = match channel {
            Some((channel, audience)) => {
                reply::queued(ctx, family, owner);
                AnswerBy::Message { channel: channel.bytes().to_vec(), key: key.to_vec(), audience }
            }
            None => match ctx.block(&CALLBACKS) {
                Some(blocked) => AnswerBy::Reply(blocked),
                None => return false,
            },
        };
        clients.insert(request, WaitingClient { client, owner: owner.to_owner(), family, answer_by });
        true
    }
}
