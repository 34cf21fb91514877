//! How a client is woken: it is unblocked with its outcome, or the outcome is published to it.

use command::notification;
use lock::host::{Clients, Delivery, WaitOutcome};
use lock::key::RequestId;

use super::callbacks::Ready;
use super::waiting_clients::{AnswerBy, WaitingClient, WaitingClients};
use crate::shell::clock;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::publish;

/// What the server does for a client that is unblocked, when the turn is over: its reply, and its place in lists.
const UNBLOCKING_US: u64 = 8;

/// The clients of the rules: those who wait, and a context to publish with.
pub struct Answering<'a> {
    /// Of the callback that is running.
    pub ctx: Ctx<'a>,
    /// Those who wait.
    pub clients: &'a mut WaitingClients,
}

impl Clients for Answering<'_> {
    fn answer(&mut self, request: RequestId, outcome: WaitOutcome) -> Delivery {
        let Some(waiting) = self.clients.take(request) else { return Delivery::Failed };
        let WaitingClient { client, owner, family, .. } = waiting;
        if matches!(outcome, WaitOutcome::Granted { .. }) {
            self.clients.note_granted(request, client);
        }
        match waiting.answer_by {
            AnswerBy::Reply(blocked) => {
                clock::shorten_turn(UNBLOCKING_US);
                blocked.unblock(Some(Box::new(Ready { client, request, owner, family, outcome })));
                match outcome {
                    WaitOutcome::Granted { .. } => Delivery::Pending,
                    _ => Delivery::Done,
                }
            }
            AnswerBy::Message { channel, key, audience } => {
                let message = notification::message(&key, owner.as_bytes(), outcome);
                publish(self.ctx, &channel, &message, audience);
                Delivery::Done
            }
        }
    }
}
