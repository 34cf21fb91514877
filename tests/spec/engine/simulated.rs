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
    fn number(&self, who: &str) -> Result<u64, String> {
        self.connections.get(who).copied().ok_or("there is no such connection".into())
    }

    fn take(&mut self, who: &str) -> Result<&mut VecDeque<Reply>, String> {
        let bytes = self.server.read(self.number(who)?);
        let came = decode_all(&bytes).map_err(|error| error.to_string())?;
        let replies = self.replies.entry(who.to_string()).or_default();
        replies.extend(came);
        Ok(replies)
    }
}

impl Backend for Simulated {
    fn connect(&mut self, who: &str) -> Result<i64, String> {
        let number = self.server.connect();
        self.connections.insert(who.to_string(), number);
        if who.ends_with('3') {
            self.send(who, &[vec![b"HELLO".to_vec(), b"3".to_vec()]])?;
            self.reply(who)?;
        }
        Ok(number as i64)
    }

    fn send(&mut self, who: &str, commands: &[Words]) -> Result<(), String> {
        self.server.send(self.number(who)?, commands.to_vec());
        Ok(())
    }

    fn reply(&mut self, who: &str) -> Result<Reply, String> {
        self.take(who)?.pop_front().ok_or("no reply".into())
    }

    fn waits(&mut self, who: &str) -> Result<(), String> {
        self.is_silent(who)?;
        match self.server.is_blocked(self.number(who)?) {
            true => Ok(()),
            false => Err("it does not wait".into()),
        }
    }

    fn close(&mut self, who: &str) -> Result<(), String> {
        self.server.close(self.number(who)?);
        self.connections.remove(who);
        Ok(())
    }

    fn is_closed(&mut self, who: &str) -> Result<(), String> {
        match self.server.is_connected(self.number(who)?) {
            false => {
                self.connections.remove(who);
                Ok(())
            }
            true => Err("it is open".into()),
        }
    }

    fn is_silent(&mut self, who: &str) -> Result<(), String> {
        match self.take(who)?.front() {
            None => Ok(()),
            Some(reply) => Err(format!("it was told {reply:?}")),
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
