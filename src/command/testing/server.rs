//! The simulated server: its connections, its event loop, its clock.

use std::cell::RefCell;

use lock::host::Host;
use lock::key::ClientId;

use super::call;
use super::clients::Words;
use super::parts::{Call, Sender, SimulatedServer};
use super::resp::Encoder;

/// How often keys with waiters are inspected, as on a real server.
const INSPECTION_MS: u64 = 10;

impl SimulatedServer {
    /// A new connection.
    pub fn connect(&self) -> u64 {
        self.clients.borrow_mut().connect().0
    }

    /// Sends commands on a connection in one piece; the server then processes everything that follows.
    pub fn send(&self, connection: u64, commands: Vec<Words>) {
        if let Some(connection) = self.clients.borrow_mut().connections.get_mut(&ClientId(connection)) {
            connection.inbox.extend(commands);
        }
        self.run_until_idle();
    }

    /// Takes what the connection can read and has not read yet.
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

    /// The client closes its connection; the server then processes everything that follows.
    pub fn close(&self, connection: u64) {
        self.disconnect(ClientId(connection));
        self.run_until_idle();
    }

    /// Advances the clock, and runs everything that becomes due.
    pub fn advance(&self, ms: u64) {
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
            self.run_until_idle();
            if step == end {
                return;
            }
        }
    }

    /// Runs event-loop iterations until nothing is left to do.
    fn run_until_idle(&self) {
        for _ in 0..100_000 {
            let has_run = self.run_commands();
            let has_decided = self.run_timer();
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
        call::run_of_connection(
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

    /// One timer callback. False: nothing was due.
    fn run_timer(&self) -> bool {
        let is_woken = self.has_events();
        self.apply_events();
        let now = self.keyspace.borrow().now();
        let mut manager = self.manager.borrow_mut();
        {
            let (mut keyspace, mut clients) = (self.keyspace.borrow_mut(), self.clients.borrow_mut());
            let mut host = Host { keys: &mut *keyspace, clients: &mut *clients, now: &now };
            manager.with_host(&mut host).inspect_some(usize::MAX);
            if !is_woken
                && !manager.has_due()
                && !manager.next_timer().is_due(&now)
                && host.clients.delivered.is_empty()
            {
                return false;
            }
            manager.with_host(&mut host).tick();
            manager.with_host(&mut host).drain();
        }
        let delivered = std::mem::take(&mut self.clients.borrow_mut().delivered);
        delivered.into_iter().for_each(|request| manager.delivered(request));
        drop(manager);
        self.signal_modified();
        true
    }
}
