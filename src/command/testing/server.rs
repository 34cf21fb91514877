//! The simulated server: its parts, its turns, its time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use lock::host::simulated::{KeyEvent, Keyspace, Stored};
use lock::host::Host;
use lock::key::{ClientId, Key};
use lock::manager::departure::Departure;
use lock::manager::lock_manager::LockManager;
use lock::value::fence::Fence;

use super::call::{Call, Sender};
use super::clients::{AllClients, Words};
use super::native;
use super::resp::Encoder;
use crate::adopted::AdoptedKeys;
use crate::lock_log::LockLog;
use crate::parse::LeaseSettings;

/// Waited-for keys are inspected this often while a request waits, as on a server.
const INSPECTION_MS: u64 = 10;

/// A server without a process: its time passes when a test says so.
pub struct SimulatedServer {
    pub(super) manager: RefCell<LockManager>,
    pub(super) keyspace: RefCell<Keyspace>,
    pub(super) clients: RefCell<AllClients>,
    /// The clients' own table, which a command asks while it has them borrowed.
    pub(super) granted_here: Rc<RefCell<BTreeMap<Fence, ClientId>>>,
    pub(super) log: RefCell<LockLog>,
    pub(super) settings: RefCell<Settings>,
    /// The values of keys that are strings.
    pub(super) strings: RefCell<HashMap<Key, Vec<u8>>>,
    /// What DUMP has given out.
    pub(super) dumps: RefCell<Vec<Stored>>,
    /// How many tokens were made.
    pub(super) tokens: Cell<u64>,
}

/// What CONFIG SET changes beside the rules' own limits.
pub(super) struct Settings {
    pub leases: LeaseSettings,
    pub log_max_len: usize,
    pub adopted: AdoptedKeys,
    pub adopt_wait_ms: u64,
}

impl Default for SimulatedServer {
    fn default() -> SimulatedServer {
        let (mut keyspace, clients) = (Keyspace::default(), AllClients::default());
        keyspace.modified = Some(Vec::new());
        let leases = LeaseSettings { default_ms: 30_000, max_ms: crate::parse::MAX_LEASE_MS };
        SimulatedServer {
            manager: RefCell::default(),
            keyspace: RefCell::new(keyspace),
            granted_here: clients.granted_here.clone(),
            clients: RefCell::new(clients),
            log: RefCell::default(),
            settings: RefCell::new(Settings {
                leases,
                log_max_len: 128,
                adopted: AdoptedKeys::default(),
                adopt_wait_ms: 0,
            }),
            strings: RefCell::default(),
            dumps: RefCell::default(),
            tokens: Cell::new(1),
        }
    }
}

impl SimulatedServer {
    /// A new connection.
    pub fn connect(&self) -> u64 {
        self.clients.borrow_mut().connect().0
    }

    /// Commands of a connection arrive in one piece; the server does all that follows.
    pub fn send(&self, connection: u64, commands: Vec<Words>) {
        if let Some(connection) = self.clients.borrow_mut().connections.get_mut(&ClientId(connection)) {
            connection.inbox.extend(commands);
        }
        self.settle();
    }

    /// What a connection can read, and has not read yet.
    pub fn read(&self, connection: u64) -> Vec<u8> {
        let mut clients = self.clients.borrow_mut();
        let connection = clients.connections.get_mut(&ClientId(connection));
        connection.map_or_else(Vec::new, |connection| std::mem::take(&mut connection.outbox.bytes))
    }

    /// Whether a connection is blocked.
    pub fn is_blocked(&self, connection: u64) -> bool {
        self.clients.borrow().blocked_by(ClientId(connection)).is_some()
    }

    /// Whether it is open.
    pub fn is_connected(&self, connection: u64) -> bool {
        self.clients.borrow().connections.contains_key(&ClientId(connection))
    }

    /// The client ends its connection; the server does all that follows.
    pub fn close(&self, connection: u64) {
        self.disconnect(ClientId(connection));
        self.settle();
    }

    /// Time passes, and all happens that happens by itself.
    pub fn pass(&self, ms: u64) {
        let end = self.keyspace.borrow().now_ms + ms;
        loop {
            let now = self.keyspace.borrow().now();
            let timer = self.manager.borrow().next_timer();
            let ahead = timer.timestamp.map(|timestamp| timestamp.ms_since(now.timestamp()));
            let next = timer.instant.map(|instant| instant.ms_since(now.instant())).into_iter().chain(ahead);
            let inspection = (!self.manager.borrow().queues().is_empty()).then_some(INSPECTION_MS);
            let step = next.chain(inspection).min().map_or(end, |ahead| now.instant().ms() + ahead.max(1));
            let step = step.min(end);
            self.keyspace.borrow_mut().now_ms = step;
            self.settle();
            if step == end {
                return;
            }
        }
    }

    /// The server's turns, until nothing is left to do.
    fn settle(&self) {
        for _ in 0..100_000 {
            let has_run = self.run_commands();
            let has_decided = self.turn();
            if !has_run && !has_decided {
                return;
            }
        }
        panic!("the simulated server never comes to rest");
    }

    /// Runs the commands of all connections that are not blocked.
    fn run_commands(&self) -> bool {
        let ids: Vec<ClientId> = self.clients.borrow().connections.keys().copied().collect();
        let mut has_run = false;
        for id in ids {
            while let Some(words) = self.next_command(id) {
                has_run = true;
                self.run(id, &words);
            }
        }
        has_run
    }

    fn next_command(&self, id: ClientId) -> Option<Words> {
        let mut clients = self.clients.borrow_mut();
        match clients.blocked_by(id) {
            Some(_) => None,
            None => clients.connections.get_mut(&id)?.inbox.pop_front(),
        }
    }

    fn run(&self, id: ClientId, words: &Words) {
        let (db, protocol) = match self.clients.borrow().connections.get(&id) {
            Some(connection) => (connection.db, connection.outbox.protocol),
            None => return,
        };
        let reply = RefCell::new(Encoder::new(protocol));
        let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        native::run_of_connection(
            Call { server: self, client: id, sender: Sender::Connection, db, reply: &reply },
            &args,
        );
        self.signal_modified();
        if let Some(connection) = self.clients.borrow_mut().connections.get_mut(&id) {
            connection.outbox.bytes.append(&mut reply.borrow_mut().bytes);
        }
    }

    fn signal_modified(&self) {
        let modified = self.keyspace.borrow_mut().modified.as_mut().map(std::mem::take).unwrap_or_default();
        self.clients.borrow_mut().modified(&modified);
    }

    /// A turn of the timer. False: nothing was due.
    fn turn(&self) -> bool {
        let is_woken = self.has_events();
        self.apply_events();
        let now = self.keyspace.borrow().now();
        let mut manager = self.manager.borrow_mut();
        {
            let (mut keyspace, mut clients) = (self.keyspace.borrow_mut(), self.clients.borrow_mut());
            let mut host = Host { keys: &mut *keyspace, clients: &mut *clients, now: &now };
            manager.inspect_some(&mut host, usize::MAX);
            if !is_woken && !manager.has_due() && !manager.next_timer().is_due(&now) && host.clients.told.is_empty() {
                return false;
            }
            manager.tick(&mut host);
            manager.drain(&mut host);
        }
        let told = std::mem::take(&mut self.clients.borrow_mut().told);
        told.into_iter().for_each(|(request, _)| manager.delivered(request));
        drop(manager);
        self.signal_modified();
        true
    }

    /// Whether anything happened to keys that the rules do not know yet.
    pub(super) fn has_events(&self) -> bool {
        !self.keyspace.borrow().events.is_empty()
    }

    /// Tells the rules what happened to keys.
    pub(super) fn apply_events(&self) {
        let events = std::mem::take(&mut self.keyspace.borrow_mut().events);
        let mut manager = self.manager.borrow_mut();
        for event in events {
            match event {
                KeyEvent::Removed(key, fence) => manager.key_removed(key.as_ref(), fence),
                KeyEvent::Touched(key) => manager.key_touched(key.as_ref()),
            }
        }
    }

    /// A connection ends: its holds are due to be taken from it, its requests may keep their places.
    pub(super) fn disconnect(&self, client: ClientId) {
        let (mut manager, mut clients) = (self.manager.borrow_mut(), self.clients.borrow_mut());
        if clients.connections.remove(&client).is_none() {
            return;
        }
        let now = self.keyspace.borrow().now();
        manager.end_session(client);
        // A grant of this turn has not reached it.
        let undelivered = clients.told.iter().position(|(_, told)| *told == client);
        if let Some(position) = undelivered {
            manager.undelivered(clients.told.remove(position).0);
        }
        let its: Vec<_> =
            clients.waiting.iter().filter(|(_, waiting)| waiting.client == client).map(|(id, _)| *id).collect();
        for request in its {
            clients.waiting.remove(&request);
            manager.leave(&now, request, Departure::MayComeBack);
        }
    }
}
