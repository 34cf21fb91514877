//! (8) What the module costs those who do not use it: DEL and EXPIRE of ordinary keys on a server full of locks.

use std::io;

use super::{names, Plan};
use crate::client::Client;
use crate::report::{Section, Verdict};
use crate::resp::{Reply, Wire};
use crate::rivals::LEASE_MS;
use crate::server::Server;
use crate::stats::Figure;

const SLICE: usize = 10_000;

/// Adds a command on one key.
type Push = fn(&mut Wire, &str);

pub fn ordinary_keys(plan: &Plan) -> io::Result<Section> {
    let (keys, locks, bound) = plan.scale.pick((1_000_000, 100_000, 1000), (100_000, 10_000, 100));
    let mut section = Section::new(
        "Ordinary keys beside many locks",
        &format!(
            "Two servers with {keys} other keys and {bound} idle connections. One has the module and {locks} locks, {bound} of them \
             bound to those connections; the other has no module and {locks} strings in their place. Both run the same \
             commands on ordinary keys in turn, {SLICE} at a time, in pipelines; figures are server CPU. Each pair of \
             servers is started anew several times, because where a server's memory happens to lie moves its speed \
             by more than the module does. No snapshots: a fork's copying would drown the difference."
        ),
        &["command", "CPU with the module to without", "µs with", "µs without"],
    );
    let mut probe = Server::start(&plan.recipe)?;
    if !probe.knows("LOCK.ACQUIRE")? {
        section.missing(&["LOCK"]);
        return Ok(section);
    }
    drop(probe);

    let commands: [(&str, Push); 3] = [
        ("SET", |wire, key| wire.push(&["SET", key, "value"])),
        ("EXPIRE", |wire, key| wire.push(&["EXPIRE", key, "3600"])),
        ("DEL", |wire, key| wire.push(&["DEL", key])),
    ];
    let wires = commands.map(|(_, push)| {
        let mut wire = Wire::default();
        for index in 0..SLICE {
            push(&mut wire, &format!("passing:{index}"));
        }
        wire
    });
    let mut with = [const { Vec::new() }; 3];
    let mut without = [const { Vec::new() }; 3];
    for _ in 0..plan.scale.pick(5, 2) {
        let recipe = plan.recipe.clone().option("--save", "");
        let mut ours = Side::start(Server::start(&recipe)?, keys, locks, bound, Some(LEASE_MS))?;
        let mut bare = Side::start(Server::start(&recipe.without_module())?, keys, locks, bound, None)?;
        for round in 0..=plan.scale.pick(24, 10) {
            for (which, wire) in wires.iter().enumerate() {
                // Who goes first alternates, or the second would always find a warmer client.
                let (one, other) = if round % 2 == 0 {
                    let one = ours.spend(wire)?;
                    (one, bare.spend(wire)?)
                } else {
                    let other = bare.spend(wire)?;
                    (ours.spend(wire)?, other)
                };
                if round > 0 {
                    with[which].push(one);
                    without[which].push(other);
                }
            }
        }
    }
    for (which, (name, _)) in commands.iter().enumerate() {
        let ratio = Figure::of_ratios(&with[which], &without[which]);
        let cost = |readings: &Vec<f64>| Figure::of(readings.clone()).show();
        section.row([name.to_string(), ratio.show(), cost(&with[which]), cost(&without[which])]);
        if *name != "SET" {
            let what = format!("{name} of an ordinary key beside {locks} locks, with the module to without");
            section.verdicts.push(Verdict::at_most(&what, 1.02, Some(ratio)));
        }
    }
    Ok(section)
}

/// One server and those who keep it busy.
struct Side {
    server: Server,
    client: Client,
    /// Idle, but a lock may be bound to each.
    _bound: Vec<Client>,
}

impl Side {
    /// `lease_ms` is that of the locks; None for a server without the module, which gets strings instead.
    fn start(mut server: Server, keys: usize, locks: usize, bound: usize, lease_ms: Option<u32>) -> io::Result<Side> {
        let mut client = Client::connect(server.port)?;
        fill(&mut client, keys, |wire, index| wire.push(&["SET", &format!("other:{index}"), "value"]))?;
        let scripts = Vec::new().into();
        fill(&mut client, locks - bound, |wire, index| {
            let names = names(index + bound, &scripts);
            match lease_ms {
                Some(_) => wire.push(&["LOCK.ACQUIRE", &names.key, &names.token, "PX", "3600000"]),
                None => wire.push(&["SET", &names.key, &names.token, "PX", "3600000"]),
            }
        })?;
        let mut sessions = Vec::new();
        for index in 0..bound {
            let mut session = Client::connect(server.port)?;
            let names = names(index, &scripts);
            let reply = match lease_ms {
                Some(lease_ms) => {
                    let lease_ms = lease_ms.to_string();
                    session.command(&["LOCK.ACQUIRE", &names.key, &names.token, "PX", &lease_ms, "SESSION"])?
                }
                None => session.command(&["SET", &names.key, &names.token, "PX", "3600000"])?,
            };
            if let Reply::Error(words) = reply {
                return Err(io::Error::other(words));
            }
            sessions.push(session);
        }
        server.must(&["PING"])?;
        Ok(Side { server, client, _bound: sessions })
    }

    /// CPU per command of one pipeline, in microseconds.
    fn spend(&mut self, wire: &Wire) -> io::Result<f64> {
        let before = self.server.cpu_us()?;
        run(&mut self.client, wire)?;
        Ok((self.server.cpu_us()? - before) / wire.commands as f64)
    }
}

fn fill(client: &mut Client, count: usize, push: impl Fn(&mut Wire, usize)) -> io::Result<()> {
    let mut from = 0;
    while from < count {
        let to = (from + SLICE).min(count);
        let mut wire = Wire::default();
        (from..to).for_each(|index| push(&mut wire, index));
        run(client, &wire)?;
        from = to;
    }
    Ok(())
}

fn run(client: &mut Client, wire: &Wire) -> io::Result<()> {
    let mut refused = None;
    client.pipeline(wire, |_, reply| {
        if let Reply::Error(words) = reply {
            refused.get_or_insert(words);
        }
    })?;
    refused.map_or(Ok(()), |words| Err(io::Error::other(words)))
}
