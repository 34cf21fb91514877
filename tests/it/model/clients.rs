//! The connections of a schedule's clients, and the requests that wait on them.
//!
//! A blocked connection cannot send anything, so a client of a schedule opens another one. Each connection has its own
//! number, which is the `client` of its requests in the model.

use std::collections::BTreeMap;

use lock::testing::contract::{Acquire, Ms};

use super::wire::{self, WaitOutcome};
use crate::support::{Client, Reply, Server};

pub struct Connection {
    /// Its number in the model.
    pub number: u64,
    /// The owner that uses it in the schedule.
    pub owner: u64,
    pub client: Client,
    /// Its id on the server.
    pub id: i64,
    pub address: String,
    /// The number of the request that blocks it, if any.
    pub blocked_by: Option<u64>,
}

/// A request that was sent.
#[derive(Clone)]
pub struct Sent {
    pub asked: Acquire,
    pub sent: Ms,
    pub id: i64,
    pub address: String,
}

/// All connections of a schedule.
#[derive(Default)]
pub struct Clients {
    pub connections: Vec<Connection>,
    /// The server's id of each connection that ever existed.
    pub ids: BTreeMap<u64, i64>,
    /// By number.
    pub requests: BTreeMap<u64, Sent>,
    pub messages: Option<Client>,
}

impl Clients {
    /// Subscribes to the channel of NOTIFY.
    pub fn listen(&mut self, server: &Server) {
        let mut client = server.client();
        client.run(&format!("PSUBSCRIBE {}", wire::channel(0).replace('0', "*")));
        self.messages = Some(client);
    }

    /// An unblocked connection of this client.
    pub fn free(&mut self, owner: u64, server: &Server) -> &mut Connection {
        let is_free = |it: &Connection| it.owner == owner && it.blocked_by.is_none();
        let index = self.connections.iter().position(is_free).unwrap_or_else(|| {
            // Clients alternate between the protocol versions.
            let mut client = if owner % 2 == 0 { server.client() } else { server.client3() };
            let (number, id, address) = (self.ids.len() as u64, client.id(), client.address());
            self.ids.insert(number, id);
            self.connections.push(Connection { number, owner, client, id, address, blocked_by: None });
            self.connections.len() - 1
        });
        &mut self.connections[index]
    }

    /// Removes a connection of this client, a blocked one if there is one.
    pub fn take(&mut self, owner: u64) -> Option<Connection> {
        let mut its = (0..self.connections.len()).filter(|index| self.connections[*index].owner == owner);
        let index = its.clone().find(|index| self.connections[*index].blocked_by.is_some()).or_else(|| its.next())?;
        Some(self.connections.remove(index))
    }

    /// Removes the connection that this request blocks.
    pub fn take_blocked_by(&mut self, number: u64) -> Option<Connection> {
        let index = self.connections.iter().position(|it| it.blocked_by == Some(number))?;
        Some(self.connections.remove(index))
    }

    /// Whether its client is connected and can get a reply.
    pub fn can_get_reply(&self, number: u64) -> bool {
        let client = self.requests.get(&number).map(|sent| sent.asked.client);
        self.connections.iter().any(|it| Some(it.number) == client)
    }

    /// The outcomes sent to waiters since the last call that have arrived.
    pub fn take_replies(&mut self) -> Result<Vec<(u64, WaitOutcome<i64>)>, String> {
        let mut answers = Vec::new();
        for connection in &mut self.connections {
            let Some(number) = connection.blocked_by else { continue };
            let reply = connection.client.read_now().map_err(|error| format!("request {number}: {error}"))?;
            let Some(reply) = reply else { continue };
            connection.blocked_by = None;
            answers.push((number, wire::outcome_of_reply(&self.requests[&number].asked, &reply)));
        }
        let Some(messages) = &mut self.messages else { return Ok(answers) };
        while let Some(message) = messages.read_now().map_err(|error| error.to_string())? {
            let [_, _, channel, Reply::Bulk(text)] = message.items() else { return Err(format!("{message:?}")) };
            let number = wire::number_of(channel.text()).ok_or_else(|| format!("{message:?}"))?;
            let sent = self.requests.get(&number).ok_or_else(|| format!("{message:?}"))?;
            answers.push((number, wire::outcome_of_message(&sent.asked, text)));
        }
        Ok(answers)
    }
}
