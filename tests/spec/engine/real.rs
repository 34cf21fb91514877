//! A real server. Its clocks only advance when a transcript says so, so that half a minute takes a few milliseconds. If
//! the clocks cannot be controlled, the time passes for real.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::cluster::{meet, node_id, single_node};
use support::{in_sync, until, Client, Clocks, Pipeline, Reply, Server, LIMIT};

use crate::backend::{Backend, Words};
use crate::transcript::Stage;

/// Arbitrary times. They differ, because only the wall clock can be set.
const START: Clocks = Clocks { wall: Duration::from_secs(1_800_000_000), monotonic: Duration::from_secs(1_000) };

/// Time advances in steps of at least this size, and in at most this many steps. A step is shorter than a third of any
/// lease that a transcript has the server renew.
const STEP_MS: u64 = 10;
const MOST_STEPS: u64 = 2_000;

/// How long something may take that is promised to be immediate.
const TOLERANCE_MS: u64 = 60;

/// How many event-loop iterations must pass before time advances.
const ROUNDS: usize = 4;

pub struct Real {
    servers: Vec<Server>,
    /// `None`: the clocks run by themselves.
    clocks: Option<Clocks>,
    control: Client,
    connections: HashMap<String, (Client, i64)>,
    /// The settings that a transcript has changed, with their previous values.
    changed: Vec<(String, String)>,
    facts: Vec<(String, Reply)>,
}

impl Real {
    /// A server for transcripts that need only one.
    pub fn start() -> Real {
        if !cfg!(target_os = "linux") {
            return Real::over(vec![Server::start()], None);
        }
        let clocked = Server::builder().config("hz 500").clocks(START).start();
        let mut real = Real::over(vec![clocked], Some(START));
        if !real.uses_its_clocks() {
            real = Real::over(vec![Server::start()], None);
        }
        real.reset();
        real
    }

    /// Separate servers for one transcript. Their clocks run, because replication links depend on them.
    pub fn of(stage: &Stage) -> Real {
        let mut ids = Vec::new();
        let servers = match stage {
            Stage::Any | Stage::Server => return Real::start(),
            Stage::Configured(lines) => {
                vec![lines.iter().fold(Server::builder(), |builder, line| builder.config(line)).start()]
            }
            Stage::Replicated => {
                let primary = Server::start();
                let replica = Server::builder().replica_of(&primary).start();
                in_sync(&primary, &replica);
                vec![primary, replica]
            }
            Stage::WithoutModule => vec![Server::builder().no_module().start()],
            Stage::TwoNodes => {
                let first = single_node();
                let second = Server::builder().cluster().start();
                meet(&first, &second);
                ids.extend([("id1", node_id(&first)), ("id2", node_id(&second))]);
                vec![first, second]
            }
        };
        let mut real = Real::over(servers, None);
        real.facts.extend(ids.into_iter().map(|(name, id)| (name.to_string(), Reply::bulk(id))));
        real
    }

    fn over(servers: Vec<Server>, clocks: Option<Clocks>) -> Real {
        let control = servers[0].client();
        let port = |(number, server): (usize, &Server)| (format!("port{number}"), Reply::Int(server.port().into()));
        let facts = (1..).zip(&servers).map(port).collect();
        Real { servers, clocks, control, connections: HashMap::new(), changed: Vec::new(), facts }
    }

    /// Whether time advances only when a transcript says so.
    pub fn has_standing_clocks(&self) -> bool {
        self.clocks.is_some()
    }

    /// Whether both server and module use the preloaded clocks.
    fn uses_its_clocks(&mut self) -> bool {
        let fence = self.control.run("LOCK.ACQUIRE k a PX 1").fence();
        self.put_clocks_forward(1_000);
        self.control.run("PING");
        self.control.run("LOCK.ACQUIRE k b PX 1").fence() - fence == 1_000_000
    }

    fn put_clocks_forward(&mut self, ms: u64) {
        let Some(Clocks { wall, monotonic }) = self.clocks else { return };
        let by = Duration::from_millis(ms);
        let clocks = Clocks { wall: wall + by, monotonic: monotonic + by };
        self.clocks = Some(clocks);
        self.servers[0].put_clocks(clocks);
    }

    fn rounds(&mut self) {
        for _ in 0..ROUNDS {
            self.control.run("PING");
        }
    }

    fn client(&mut self, connection_name: &str) -> Result<&mut Client, String> {
        self.connections.get_mut(connection_name).map(|(client, _)| client).ok_or("there is no such connection".into())
    }

    /// Polls until there is a result, at most for the time that something immediate may take.
    fn soon<T>(&mut self, mut look: impl FnMut(&mut Real) -> Result<Option<T>, String>) -> Result<Option<T>, String> {
        let (start, mut late_ms) = (Instant::now(), 0);
        loop {
            for _ in 0..ROUNDS {
                if let Some(found) = look(self)? {
                    return Ok(Some(found));
                }
                self.control.run("PING");
            }
            match self.clocks {
                Some(_) if late_ms < TOLERANCE_MS => {
                    self.put_clocks_forward(1);
                    late_ms += 1;
                }
                None if start.elapsed() < LIMIT => sleep(Duration::from_millis(1)),
                _ => return Ok(None),
            }
        }
    }

    fn read_now(&mut self, connection_name: &str) -> Result<Option<Reply>, String> {
        self.client(connection_name)?.read_any_now().map_err(|error| format!("the connection broke: {error}"))
    }

    fn is_blocked(&mut self, connection_name: &str) -> Result<bool, String> {
        let id = self.connections.get(connection_name).ok_or("there is no such connection")?.1;
        let line = if connection_name.ends_with('\'') {
            self.servers[1].client().run(&format!("CLIENT LIST ID {id}"))
        } else {
            self.control.run(&format!("CLIENT LIST ID {id}"))
        };
        let flags = line.text().split_whitespace().find_map(|field| field.strip_prefix("flags="));
        Ok(flags.is_some_and(|flags| flags.contains('b')))
    }

    /// Records the value of a setting before it is changed.
    fn record_setting(&mut self, command: &Words) {
        let [config, set, name, _] = command.as_slice() else { return };
        if config.eq_ignore_ascii_case(b"CONFIG") && set.eq_ignore_ascii_case(b"SET") {
            let name = String::from_utf8_lossy(name).into_owned();
            let before = self.control.cmd(&["CONFIG", "GET", &name]);
            if let Some((_, value)) = before.pairs().first() {
                self.changed.push((name, value.text().to_string()));
            }
        }
    }

    /// Removes everything that would affect the next transcript.
    pub fn reset(&mut self) {
        self.connections.clear();
        for (name, value) in std::mem::take(&mut self.changed).into_iter().rev() {
            assert_eq!(self.control.cmd(&["CONFIG", "SET", &name, &value]), Reply::ok(), "{name}");
        }
        self.control.run("FLUSHALL");
        self.control.run("LOCK.LOG RESET");
        let control = &mut self.control;
        until("all connections are closed", || control.run("CLIENT LIST").text().lines().count() == 1);
        // Lets reserved positions expire.
        match self.clocks {
            Some(_) => self.put_clocks_forward(3_600_000),
            None => sleep(Duration::from_millis(1_100)),
        }
        self.rounds();
    }
}

impl Backend for Real {
    fn facts(&self) -> Vec<(String, Reply)> {
        self.facts.clone()
    }

    fn connect(&mut self, connection_name: &str) -> Result<i64, String> {
        let is_second = connection_name.ends_with('\'');
        let server = self.servers.get(usize::from(is_second)).ok_or("there is no second server")?;
        let is_resp3 = connection_name.trim_end_matches('\'').ends_with('3');
        let mut client = if is_resp3 { server.client3() } else { server.client() };
        let id = client.id();
        self.connections.insert(connection_name.to_string(), (client, id));
        Ok(id)
    }

    fn send(&mut self, connection_name: &str, commands: &[Words]) -> Result<(), String> {
        let mut pipeline = Pipeline::default();
        for command in commands {
            self.record_setting(command);
            pipeline.push(command);
        }
        self.client(connection_name)?.send_raw(&pipeline.bytes);
        Ok(())
    }

    fn reply(&mut self, connection_name: &str) -> Result<Reply, String> {
        self.soon(|real| real.read_now(connection_name))?.ok_or("no reply".into())
    }

    fn waits(&mut self, connection_name: &str) -> Result<(), String> {
        let waits = self.soon(|real| {
            if let Some(reply) = real.read_now(connection_name)? {
                return Err(format!("it got {reply:?}"));
            }
            Ok(real.is_blocked(connection_name)?.then_some(()))
        })?;
        self.rounds();
        match (waits, self.read_now(connection_name)?) {
            (Some(()), None) => Ok(()),
            (_, Some(reply)) => Err(format!("it got {reply:?}")),
            (None, None) => Err("it does not wait".into()),
        }
    }

    fn close(&mut self, connection_name: &str) -> Result<(), String> {
        let (client, id) = self.connections.remove(connection_name).ok_or("there is no such connection")?;
        drop(client);
        let has_exited = |real: &mut Real| {
            let line = if connection_name.ends_with('\'') {
                real.servers[1].client().run(&format!("CLIENT LIST ID {id}"))
            } else {
                real.control.run(&format!("CLIENT LIST ID {id}"))
            };
            Ok(line.bytes().is_empty().then_some(()))
        };
        self.soon(has_exited)?.ok_or("the server has not let go of it")?;
        self.rounds();
        Ok(())
    }

    fn is_closed(&mut self, connection_name: &str) -> Result<(), String> {
        let closed = self.soon(|real| match real.client(connection_name)?.read_any_now() {
            Ok(None) => Ok(None),
            Ok(Some(reply)) => Err(format!("it got {reply:?}")),
            Err(_) => Ok(Some(())),
        })?;
        self.connections.remove(connection_name);
        self.rounds();
        closed.ok_or("it is open".into())
    }

    fn is_silent(&mut self, connection_name: &str) -> Result<(), String> {
        self.rounds();
        match self.read_now(connection_name)? {
            None => Ok(()),
            Some(reply) => Err(format!("it got {reply:?}")),
        }
    }

    fn advance(&mut self, ms: u64) -> Result<(), String> {
        if self.clocks.is_none() {
            sleep(Duration::from_millis(ms));
            return Ok(());
        }
        let mut left = ms;
        while left > 0 {
            let step = left.min(STEP_MS.max(ms / MOST_STEPS));
            left -= step;
            self.put_clocks_forward(step);
            self.control.run("PING");
            self.control.run("PING");
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<(), String> {
        // No connection may close before the server dies.
        self.servers[0].kill();
        self.connections.clear();
        self.servers[0].restart();
        self.control = self.servers[0].client();
        Ok(())
    }

    fn follow(&mut self) -> Result<(), String> {
        let [primary, replica] = self.servers.as_slice() else { return Err("there is no replica".into()) };
        in_sync(primary, replica);
        Ok(())
    }
}
