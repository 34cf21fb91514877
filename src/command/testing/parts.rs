//! The parts of the simulated server, and a command that runs on it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use lock::engine::leave::Leave;
use lock::engine::lock_manager::LockManager;
use lock::host::simulated::{KeyEvent, Keyspace, Stored};
use lock::key::{ClientId, Key};

use super::clients::{AllClients, Connection, GrantedHere};
use super::resp::Encoder;
use crate::adopted::AdoptedKeys;
use crate::lock_log::LockLog;
use crate::parse::LeaseSettings;

/// A server without a process; its time advances only when a test says so.
pub struct SimulatedServer {
    pub(super) manager: RefCell<LockManager>,
    pub(super) keyspace: RefCell<Keyspace>,
    pub(super) clients: RefCell<AllClients>,
    /// The clients' own table, shared because a command asks it while the clients are borrowed.
    pub(super) granted_here: Rc<RefCell<GrantedHere>>,
    pub(super) log: RefCell<LockLog>,
    pub(super) settings: RefCell<Settings>,
    /// The values of keys that are strings.
    pub(super) strings: RefCell<HashMap<Key, Vec<u8>>>,
    /// What DUMP has returned.
    pub(super) dumps: RefCell<Vec<Stored>>,
    /// How many tokens were generated.
    pub(super) tokens: Cell<u64>,
}

/// What CONFIG SET changes, apart from the engine's own limits.
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

/// How commands and event-loop iterations change it.
impl SimulatedServer {
    /// Whether there are key events that the engine has not processed yet.
    pub(super) fn has_events(&self) -> bool {
        !self.keyspace.borrow().events.is_empty()
    }

    /// Passes pending key events to the engine.
    pub(super) fn apply_events(&self) {
        let events = std::mem::take(&mut self.keyspace.borrow_mut().events);
        let mut manager = self.manager.borrow_mut();
        for event in events {
            match event {
                KeyEvent::Removed(key, fence) => manager.key_removed(key.as_ref(), fence),
                KeyEvent::Changed(key) => manager.key_changed(key.as_ref()),
            }
        }
    }

    /// A connection closes: its holds are due for removal, and its requests may keep a reserved position.
    pub(super) fn disconnect(&self, client: ClientId) {
        let (mut manager, mut clients) = (self.manager.borrow_mut(), self.clients.borrow_mut());
        if clients.connections.remove(&client).is_none() {
            return;
        }
        let now = self.keyspace.borrow().now();
        manager.end_session(client);
        // A grant of this event-loop iteration has not reached it.
        manager.undelivered_to(client);
        let its: Vec<_> =
            clients.waiting.iter().filter(|(_, waiting)| waiting.client == client).map(|(id, _)| *id).collect();
        for request in its {
            clients.waiting.remove(&request);
            manager.leave(&now, request, Leave::Detach);
        }
    }
}

/// The origin of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A connection by itself.
    Connection,
    /// A transaction of a connection: it may not block.
    Transaction,
    /// The command of a LOCK.EXEC: it may not block, and has no separate connection.
    Command,
}

/// A running command.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub server: &'a SimulatedServer,
    pub client: ClientId,
    pub sender: Sender,
    pub db: i32,
    pub reply: &'a RefCell<Encoder>,
}

impl Call<'_> {
    /// Runs `work` on the sender's connection.
    pub fn with_connection<R>(self, work: impl FnOnce(&mut Connection) -> R) -> R {
        let mut clients = self.server.clients.borrow_mut();
        work(clients.connections.get_mut(&self.client).expect("the sender of a command is connected"))
    }
}
