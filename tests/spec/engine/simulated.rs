//! The simulated server. When a step returns, everything that follows from it has happened.

use std::collections::{HashMap, VecDeque};

use command::testing::SimulatedServer;
use support::{decode_all, Reply};

use crate::backend::{Backend, Words};

#[derive(Default)]
pub struct Simulated {
    server: SimulatedServer,
    connections: HashMap<String, u64>,
    replies: HashMap<String, VecDeque<Reply>>,
}

impl Simulated {
    fn number(&self, connection_name: &str) -> Result<u64, String> {
        self.connections.get(connection_name).copied().ok_or("there is no such connection".into())
    }

    fn take(&mut self, connection_name: &str) -> Result<&mut VecDeque<Reply>, String> {
        let bytes = self.server.read(self.number(connection_name)?);
        let received = decode_all(&bytes).map_err(|error| error.to_string())?;
        let replies = self.replies.entry(connection_name.to_string()).or_default();
        replies.extend(received);
        Ok(replies)
    }
}

impl Backend for Simulated {
    fn connect(&mut self, connection_name: &str) -> Result<i64, String> {
        let number = self.server.connect();
        self.connections.insert(connection_name.to_string(), number);
        if connection_name.ends_with('3') {
            self.send(connection_name, &[vec![b"HELLO".to_vec(), b"3".to_vec()]])?;
            self.reply(connection_name)?;
        }
        Ok(number as i64)
    }

    fn send(&mut self, connection_name: &str, commands: &[Words]) -> Result<(), String> {
        self.server.send(self.number(connection_name)?, commands.to_vec());
        Ok(())
    }

    fn reply(&mut self, connection_name: &str) -> Result<Reply, String> {
        self.take(connection_name)?.pop_front().ok_or("no reply".into())
    }

    fn waits(&mut self, connection_name: &str) -> Result<(), String> {
        self.is_silent(connection_name)?;
        if self.server.is_blocked(self.number(connection_name)?) {
            Ok(())
        } else {
            Err("it does not wait".into())
        }
    }

    fn close(&mut self, connection_name: &str) -> Result<(), String> {
        self.server.close(self.number(connection_name)?);
        self.connections.remove(connection_name);
        Ok(())
    }

    fn is_closed(&mut self, connection_name: &str) -> Result<(), String> {
        if self.server.is_connected(self.number(connection_name)?) {
            Err("it is open".into())
        } else {
            self.connections.remove(connection_name);
            Ok(())
        }
    }

    fn is_silent(&mut self, connection_name: &str) -> Result<(), String> {
        match self.take(connection_name)?.front() {
            None => Ok(()),
            Some(reply) => Err(format!("it got {reply:?}")),
        }
    }

    fn advance(&mut self, ms: u64) -> Result<(), String> {
        self.server.advance(ms);
        Ok(())
    }

    fn restart(&mut self) -> Result<(), String> {
        Err("the simulated server does not restart".into())
    }

    fn follow(&mut self) -> Result<(), String> {
        Err("the simulated server has no replica to ask".into())
    }
}
