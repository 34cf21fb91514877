//! Plays one block of the page: starts its servers, does each step, and compares.

use super::steps::{Name, Script, Servers, Step};
use super::wire::{Values, Wire};
use crate::readme::words_of;
use crate::support::cluster::{meet, node_id, single_node};
use crate::support::waiting::client_field;
use crate::support::{in_sync, until, Client, Pipeline, Server};
use std::collections::BTreeMap;

/// Fails with the line of the page and the actual bytes in place of the written ones.
pub fn play(script: &Script) {
    let mut stage = Stage::set(&script.servers);
    for (line, step) in &script.steps {
        if let Err(why) = stage.play(step) {
            panic!("clients/writing-a-client.md, line {line}: {step:?}: {why}");
        }
    }
    for (name, wire) in &mut stage.wires {
        let whose = format!("clients/writing-a-client.md, block of line {}: {}", script.line, name.0);
        assert!(!wire.is_waiting, "{whose} still waits");
        wire.assert_nothing_more().unwrap_or_else(|why| panic!("{whose}: {why}"));
    }
}

struct Stage {
    servers: Vec<Server>,
    wires: BTreeMap<Name, Wire>,
    values: Values,
}

impl Stage {
    fn set(servers: &Servers) -> Stage {
        let mut values = Values::default();
        let servers = match servers {
            Servers::One => vec![Server::start()],
            Servers::WithoutModule => vec![Server::builder().no_module().start()],
            Servers::Configured(line) => vec![Server::builder().config(line).start()],
            Servers::PrimaryAndReplica => {
                let primary = Server::start();
                let replica = Server::builder().replica_of(&primary).start();
                in_sync(&primary, &replica);
                vec![primary, replica]
            }
            Servers::TwoNodes => {
                let first = single_node();
                let second = Server::builder().cluster().start();
                meet(&first, &second);
                values.bind("id 1", node_id(&first));
                values.bind("id 2", node_id(&second));
                vec![first, second]
            }
        };
        for (number, server) in (1..).zip(&servers) {
            values.bind(&format!("port {number}"), server.port());
        }
        Stage { servers, wires: BTreeMap::new(), values }
    }

    fn server(&self, is_second: bool) -> &Server {
        self.servers.get(usize::from(is_second)).expect("the block has a second server")
    }

    fn play(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Sends { name, bytes } => self.wire(name).send(bytes),
            Step::Receives { name, bytes } => {
                let (wire, values) = self.known(name)?;
                wire.is_waiting = false;
                return wire.expect(bytes, values);
            }
            Step::Loses { name, bytes } => {
                let (wire, values) = self.known(name)?;
                wire.until_answered()?;
                wire.expect(bytes, values)?;
                self.wires.remove(name).expect("it was there").close();
            }
            Step::Waits { name } => {
                let mut observer = self.server(name.is_second()).client();
                let (wire, _) = self.known(name)?;
                wire.is_waiting = true;
                let address = wire.address();
                until(&format!("{} waits", name.0), || is_blocked(&mut observer, &address));
            }
            Step::Closes { name } => {
                self.known(name)?;
                self.wires.remove(name).expect("it was there").close();
            }
            Step::IsClosed { name } => {
                self.known(name)?.0.until_closed()?;
                self.wires.remove(name);
            }
            Step::Test { is_second, command, reply: None } => {
                let words = words_of(&self.values.fill(command));
                let reply = self.server(*is_second).client().cmd(&words);
                return if reply.is_error() { Err(format!("{reply:?}")) } else { Ok(()) };
            }
            Step::Test { is_second, command, reply: Some(reply) } => return self.ask(*is_second, command, reply),
            Step::Until { is_second, command, reply } => {
                until(&format!("{command} = {reply}"), || self.ask(*is_second, command, reply).is_ok());
            }
        }
        Ok(())
    }

    /// Sends a command over a connection of its own, and compares the reply.
    fn ask(&mut self, is_second: bool, command: &str, reply: &str) -> Result<(), String> {
        let mut request = Pipeline::default();
        request.push(&words_of(&self.values.fill(command)));
        let mut wire = Wire::connect(self.server(is_second).port());
        wire.send(&request.bytes);
        wire.expect(&format!("{reply}\r\n"), &mut self.values)
    }

    /// The connection, which is opened when it is first named.
    fn wire(&mut self, name: &Name) -> &mut Wire {
        let port = self.server(name.is_second()).port();
        self.wires.entry(name.clone()).or_insert_with(|| Wire::open(port, name.is_resp3()))
    }

    /// An open connection, and what is known of it.
    fn known(&mut self, name: &Name) -> Result<(&mut Wire, &mut Values), String> {
        let wire = self.wires.get_mut(name).ok_or("there is no such connection")?;
        Ok((wire, &mut self.values))
    }
}

/// Whether the client with this address waits for something.
fn is_blocked(observer: &mut Client, address: &str) -> bool {
    let list = observer.run("CLIENT LIST").text().to_string();
    let line = list.lines().find(|line| client_field(line, "addr") == Some(address));
    line.and_then(|line| client_field(line, "flags")).is_some_and(|flags| flags.contains('b'))
}
