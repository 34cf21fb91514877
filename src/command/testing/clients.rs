//! The clients of the simulated server: its connections and their waiting requests.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use lock::host::{Clients, Delivery, Park, WaitOutcome};
use lock::key::{ClientId, Key, RequestId};
use lock::value::claim::Claim;
use lock::value::fence::Fence;
use lock::value::owner::Owner;

use super::resp::{Encoder, Protocol};
use crate::host::{NewWaiter, Waiting};
use crate::name::Prefix;
use crate::notification;
use crate::reply;

/// The arguments of a command, beginning with its name.
pub type Words = Vec<Vec<u8>>;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// The selected database.
    pub db: i32,
    /// What was sent to it and not yet read.
    pub outbox: Encoder,
    /// Commands that it sent and that have not run yet.
    pub inbox: VecDeque<Words>,
    /// The commands of an open transaction.
    pub queued: Option<Vec<Words>>,
    /// The keys under WATCH.
    pub watched: BTreeSet<(i32, Vec<u8>)>,
    /// Whether one of them has changed.
    pub is_dirty: bool,
    /// The channels that it is subscribed to.
    pub channels: BTreeSet<Vec<u8>>,
}

impl Connection {
    fn new() -> Connection {
        Connection {
            db: 0,
            outbox: Encoder::new(Protocol::Resp2),
            inbox: VecDeque::new(),
            queued: None,
            watched: BTreeSet::new(),
            is_dirty: false,
            channels: BTreeSet::new(),
        }
    }
}

/// A waiting client.
#[derive(Debug)]
pub struct WaitingClient {
    /// Its connection.
    pub client: ClientId,
    owner: Owner,
    prefix: Prefix,
    /// Whether its command is a SET.
    pub is_adopted: bool,
    /// Where the outcome is published, and for which key; `None`: the client is blocked.
    channel: Option<(Vec<u8>, Vec<u8>)>,
}

impl WaitingClient {
    /// Whether it gets no other reply before this one.
    pub fn is_blocked(&self) -> bool {
        self.channel.is_none()
    }
}

/// The connection that was granted each mutex; `None`: a command without a connection.
pub type GrantedHere = BTreeSet<(Fence, Option<ClientId>)>;

/// All connections, and the waiting clients.
#[derive(Debug, Default)]
pub struct AllClients {
    /// By id.
    pub connections: BTreeMap<ClientId, Connection>,
    last: u64,
    /// By request.
    pub waiting: BTreeMap<RequestId, WaitingClient>,
    /// Grants delivered in this event-loop iteration.
    pub delivered: Vec<RequestId>,
    pub granted_here: Rc<RefCell<GrantedHere>>,
}

impl AllClients {
    /// A new connection.
    pub fn connect(&mut self) -> ClientId {
        self.last += 1;
        self.connections.insert(ClientId(self.last), Connection::new());
        ClientId(self.last)
    }

    /// The request that blocks the connection, if any.
    pub fn blocked_by(&self, client: ClientId) -> Option<RequestId> {
        let mut waiting = self.waiting.iter();
        waiting.find(|(_, waiting)| waiting.client == client && waiting.is_blocked()).map(|(id, _)| *id)
    }

    /// Marks the connections whose watched keys may have changed.
    pub fn modified(&mut self, keys: &[Key]) {
        for connection in self.connections.values_mut() {
            let is_watched = |key: &Key| connection.watched.contains(&(key.db, key.name.to_vec()));
            connection.is_dirty |= keys.iter().any(is_watched);
        }
    }

    /// Sends a message to the subscribers of a channel, and returns how many there are.
    pub fn publish(&mut self, channel: &[u8], message: &[u8]) -> usize {
        let subscribers = self.connections.values_mut().filter(|connection| connection.channels.contains(channel));
        let send = |connection: &mut Connection| {
            use crate::reply::ReplyWriter;
            connection.outbox.push(3);
            [b"message", channel, message].into_iter().for_each(|part| connection.outbox.bytes(part));
        };
        subscribers.map(send).count()
    }
}

impl Waiting for AllClients {
    fn client_of(&self, request: RequestId) -> Option<(ClientId, String)> {
        let client = self.waiting.get(&request)?.client;
        Some((client, format!("127.0.0.1:{}", 40_000 + client.0)))
    }
}

impl Clients for &mut AllClients {
    fn may_be_granted(&mut self, _: RequestId, _: &[&[u8]], _: u64) -> bool {
        true
    }

    fn reply(&mut self, request: RequestId, outcome: WaitOutcome) -> Delivery {
        let Some(waiting) = self.waiting.remove(&request) else { return Delivery::Failed };
        let WaitingClient { client, owner, prefix, is_adopted, channel } = waiting;
        if let Some((channel, key)) = channel {
            self.publish(&channel, &notification::message(&key, owner.as_bytes(), outcome));
            return Delivery::Done;
        }
        let Some(connection) = self.connections.get_mut(&client) else { return Delivery::Failed };
        if is_adopted {
            reply::adopted_wait_outcome(&mut connection.outbox, outcome);
        } else {
            reply::wait_outcome(&mut connection.outbox, prefix.lock_type(), owner.as_ref(), outcome);
        }
        if let WaitOutcome::Granted { fence, .. } = outcome {
            self.granted_here.borrow_mut().insert((fence, Some(client)));
        }
        match outcome {
            WaitOutcome::Granted { .. } => {
                self.delivered.push(request);
                Delivery::Pending(client)
            }
            _ => Delivery::Done,
        }
    }
}

/// The clients, as the engine uses them during a command.
#[derive(Debug)]
pub struct Parking<'t> {
    pub clients: &'t mut AllClients,
    /// The caller of the command: its connection, and how it waits.
    pub waiter: Option<(ClientId, NewWaiter<'t, &'t [u8]>)>,
    /// Where a request that waits without blocking gets its reply.
    pub reply: &'t mut Encoder,
}

impl Clients for Parking<'_> {
    fn may_be_granted(&mut self, request: RequestId, names: &[&[u8]], waited_ms: u64) -> bool {
        (&mut *self.clients).may_be_granted(request, names, waited_ms)
    }

    fn reply(&mut self, request: RequestId, outcome: WaitOutcome) -> Delivery {
        (&mut *self.clients).reply(request, outcome)
    }
}

impl Park for Parking<'_> {
    fn may_wait(&self) -> bool {
        self.waiter.is_some()
    }

    fn park(&mut self, request: RequestId) -> bool {
        let Some((client, NewWaiter { owner, prefix, claim, key, channel })) = self.waiter else { return false };
        if channel.is_some() {
            reply::queued(self.reply, &claim, owner);
        }
        let channel = channel.map(|channel| (channel.to_vec(), key.to_vec()));
        let (owner, is_adopted) = (owner.to_owner(), claim == Claim::AdoptedMutex);
        self.clients.waiting.insert(request, WaitingClient { client, owner, prefix, is_adopted, channel });
        true
    }

    fn detach_own(&mut self, request: RequestId) -> bool {
        let asking = self.waiter.map(|(client, _)| client);
        let is_same = self.clients.waiting.get(&request).is_some_and(|waiting| Some(waiting.client) == asking);
        is_same && self.clients.waiting.remove(&request).is_some()
    }
}
