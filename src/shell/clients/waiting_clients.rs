//! Clients with queued requests, by request.
//!
//! Every blocked client is unblocked exactly once: when its entry is taken out of `waiting`.

use std::collections::{BTreeMap, BTreeSet};

use command::name::Prefix;
use lock::key::{ClientId, RequestId};
use lock::manager::departure::Departure;
use lock::manager::lock_manager::LockManager;
use lock::value::owner::Owner;
use lock::value::time::Now;

use super::callbacks::Ready;
use crate::shell::ffi::blocked::{BlockedClient, BlockedId};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server;
use crate::shell::ffi::server::Audience;
use crate::shell::main_state::{KNOWN_CONNECTIONS, MAIN};

/// The waiting clients, by request.
#[derive(Default)]
pub struct WaitingClients {
    waiting: BTreeMap<RequestId, WaitingClient>,
    by_blocked: BTreeMap<BlockedId, RequestId>,
    by_subscriber: BTreeMap<ClientId, BTreeSet<RequestId>>,
    /// The connection that the server last reported as ended. Right after the report the server unblocks that client.
    last_gone: Option<ClientId>,
    /// Clients to which grants were sent in this turn of the server.
    told: BTreeMap<ClientId, RequestId>,
    /// Requests that were granted in this turn, and their clients.
    granted: Vec<(RequestId, ClientId)>,
}

/// A waiting client.
pub struct WaitingClient {
    /// Its connection.
    pub client: ClientId,
    /// The owner of the request.
    pub owner: Owner,
    /// The prefix of its command.
    pub prefix: Prefix,
    /// How it is answered.
    pub answer_by: AnswerBy,
}

/// How a waiting client is answered.
pub enum AnswerBy {
    /// The reply to its command: it is blocked.
    Reply(BlockedClient),
    /// A message on a channel: the client is not blocked.
    Message {
        /// The channel.
        channel: Vec<u8>,
        /// The first key of the request.
        key: Vec<u8>,
        /// The subscribers that get it.
        audience: Audience,
    },
}

impl WaitingClients {
    /// The connection that waits with this request.
    pub fn client_of(&self, request: RequestId) -> Option<ClientId> {
        self.waiting.get(&request).map(|waiting| waiting.client)
    }

    /// The client that waits with this request.
    pub(super) fn get(&self, request: RequestId) -> Option<&WaitingClient> {
        self.waiting.get(&request)
    }

    /// Notes the client that waits with this request.
    pub fn insert(&mut self, request: RequestId, waiting: WaitingClient) {
        match &waiting.answer_by {
            AnswerBy::Reply(blocked) => _ = self.by_blocked.insert(blocked.id(), request),
            AnswerBy::Message { .. } => _ = self.by_subscriber.entry(waiting.client).or_default().insert(request),
        }
        self.waiting.insert(request, waiting);
    }

    /// The grant was sent to the client: the server has the reply, but may be about to close the connection.
    pub fn grant_sent(&mut self, manager: &mut LockManager, client: ClientId, request: RequestId) {
        if let Some(earlier) = self.told.insert(client, request) {
            // The client has waited again since: the earlier grant counts as delivered.
            manager.delivered(earlier);
        }
    }

    /// The turn that sent grants to clients is over: clients that are still connected have them.
    pub fn turn_over(&mut self, manager: &mut LockManager) {
        while let Some((_, request)) = self.told.pop_first() {
            manager.delivered(request);
        }
    }

    /// A connection has ended: a grant sent to it in this turn is lost, and the requests of a subscriber may keep their
    /// places. The request of a blocked client is handled by [`WaitingClients::disconnected`], which follows.
    pub fn client_gone(&mut self, manager: &mut LockManager, client: ClientId) {
        self.last_gone = Some(client);
        if let Some(request) = self.told.remove(&client) {
            manager.undelivered(request);
        }
        let requests = self.by_subscriber.remove(&client).unwrap_or_default();
        requests.iter().for_each(|request| _ = self.waiting.remove(request));
        manager.leave_all(requests);
    }

    /// `CLIENT UNBLOCK` has answered the blocked client.
    pub fn unblocked(&mut self, manager: &mut LockManager, now: &Now, blocked: BlockedId) {
        if let Some((request, _)) = self.give_up(blocked) {
            manager.leave(now, request, Departure::ForGood);
        }
    }

    /// The server has unblocked the client: its connection ended, or the client is still connected and reads an error
    /// of the server.
    pub fn disconnected(&mut self, manager: &mut LockManager, now: &Now, blocked: BlockedId) {
        let last_gone = self.last_gone;
        if let Some((request, client)) = self.give_up(blocked) {
            let departure = if last_gone == Some(client) { Departure::MayComeBack } else { Departure::ForGood };
            manager.leave(now, request, departure);
        }
    }

    /// Takes out a client that the server unblocked; returns its request and its connection. `None`: the module
    /// answered it before.
    fn give_up(&mut self, blocked: BlockedId) -> Option<(RequestId, ClientId)> {
        let request = self.by_blocked.get(&blocked).copied()?;
        let waiting = self.take(request)?;
        if let AnswerBy::Reply(blocked) = waiting.answer_by {
            blocked.unblock::<Ready>(None);
        }
        Some((request, waiting.client))
    }

    /// The connection that was granted this request in this turn.
    pub fn granted_client(&self, request: RequestId) -> Option<ClientId> {
        self.granted.iter().find(|(granted, _)| *granted == request).map(|(_, client)| *client)
    }

    /// The turn is over: forgets its grants.
    pub fn forget_granted(&mut self) {
        self.granted.clear();
    }

    pub(super) fn note_granted(&mut self, request: RequestId, client: ClientId) {
        self.granted.push((request, client));
    }

    /// Takes out the client that waits with this request: the caller answers it.
    pub(super) fn take(&mut self, request: RequestId) -> Option<WaitingClient> {
        let waiting = self.waiting.remove(&request)?;
        match &waiting.answer_by {
            AnswerBy::Reply(blocked) => _ = self.by_blocked.remove(&blocked.id()),
            AnswerBy::Message { .. } => self.unsubscribe(waiting.client, request),
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

/// The client of a command, if it is a connection. The client of a script is none, nor is the temporary client of
/// another module's call: neither ever ends. The server is asked only about unknown clients: it answers with a string,
/// which would cost an acquire and release with SESSION 770 instructions, 4 %.
pub fn connection_of(ctx: Ctx<'_>) -> Option<ClientId> {
    let client = ClientId(ctx.client_id());
    let known = &MAIN.connections[client.0 as usize % KNOWN_CONNECTIONS];
    if known.get() != Some(client) {
        if !server::is_connection(ctx, client.0) {
            return None;
        }
        known.set(Some(client));
    }
    Some(client)
}
