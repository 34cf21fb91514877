//! (8) The cost of the module to clients that do not use it: DEL and EXPIRE of ordinary keys on a server full of locks.

use std::io;
use std::ops::Range;

use support::{Connection, Pipeline, Reply};

use super::plan::Plan;
use crate::rivals::{Names, LEASE_MS};
use crate::section::{Section, Verdict};
use crate::server::Server;
use crate::stats::Figure;

const SLICE: usize = 10_000;

/// Adds a command on one key.
type Push = fn(&mut Pipeline, &str);

pub fn beside_locks(plan: &Plan) -> io::Result<Section> {
    let (keys, locks, bound) = plan.scale.pick((500_000, 100_000, 1000), (100_000, 10_000, 100));
    let mut section = Section::new(
        "Ordinary keys beside many locks",
        &format!(
            "Two servers without the module, with {keys} other keys, {locks} strings with a time to live and {bound} \
             idle connections. Both run the same commands on ordinary keys in turn, {SLICE} at a time, in pipelines; \
             figures are server CPU. Then both lose the strings; one loads the module and gets {locks} locks in their \
             place, {bound} of them bound to the connections, the other gets its strings again; and both run the \
             commands once more. The ratio is how the one changed against the other: two servers differ by up to a \
             tenth even when they do the same, because of where their memory happens to lie, and that is the same \
             before and after. Done several times with new servers. No snapshots: a fork's copying would drown the \
             difference."
        ),
        &["command", "CPU with the module to without", "µs with", "µs without"],
    );
    let Some(module) = &plan.module else {
        section.missing(&["LOCK"]);
        return Ok(section);
    };
    let module = std::path::absolute(module)?.to_string_lossy().into_owned();

    let commands: [(&str, Push); 3] = [
        ("SET", |pipeline, key| pipeline.push(&["SET", key, "value"])),
        ("EXPIRE", |pipeline, key| pipeline.push(&["EXPIRE", key, "3600"])),
        ("DEL", |pipeline, key| pipeline.push(&["DEL", key])),
    ];
    let pipelines = commands.map(|(_, push)| {
        let mut pipeline = Pipeline::default();
        for index in 0..SLICE {
            push(&mut pipeline, &format!("passing:{index}"));
        }
        pipeline
    });
    let builder = plan.builder.clone().no_module().config("save \"\"").config("enable-module-command yes");
    let rounds = plan.scale.pick(12, 6);
    let mut changes = [const { Vec::new() }; 3];
    let mut costs = [const { (Vec::new(), Vec::new()) }; 3];
    for _ in 0..plan.scale.pick(5, 2) {
        let mut ours = Side::start(Server::start(&builder)?, keys, bound)?;
        let mut bare = Side::start(Server::start(&builder)?, keys, bound)?;
        ours.add_strings(locks)?;
        bare.add_strings(locks)?;
        let before = compare(&mut ours, &mut bare, &pipelines, rounds)?;
        ours.drop_strings(locks)?;
        bare.drop_strings(locks)?;
        ours.server.must(&["MODULE", "LOAD", &module])?;
        ours.add_locks(locks)?;
        bare.add_strings(locks)?;
        let after = compare(&mut ours, &mut bare, &pipelines, rounds)?;
        for which in 0..pipelines.len() {
            changes[which].push(after[which].ratio() / before[which].ratio());
            costs[which].0.push(after[which].median_of_ours());
            costs[which].1.push(before[which].median_of_ours());
        }
    }
    for (which, (name, _)) in commands.iter().enumerate() {
        let ratio = Figure::of(changes[which].clone());
        let cost = |readings: &Vec<f64>| Figure::of(readings.clone()).show();
        section.row([name.to_string(), ratio.show(), cost(&costs[which].0), cost(&costs[which].1)]);
        if *name != "SET" {
            let what = format!("{name} of an ordinary key beside {locks} locks, with the module to without");
            section.verdicts.push(Verdict::at_most(&what, 1.02, Some(ratio)));
        }
    }
    Ok(section)
}

/// CPU per command of both servers, a reading for each round.
#[derive(Default)]
struct Readings {
    ours: Vec<f64>,
    bare: Vec<f64>,
}

impl Readings {
    fn ratio(&self) -> f64 {
        Figure::of_ratios(&self.ours, &self.bare).median
    }

    fn median_of_ours(&self) -> f64 {
        Figure::of(self.ours.clone()).median
    }
}

/// Lets both servers run each of the commands, in turn.
fn compare(ours: &mut Side, bare: &mut Side, pipelines: &[Pipeline; 3], rounds: usize) -> io::Result<[Readings; 3]> {
    let mut readings: [Readings; 3] = Default::default();
    for round in 0..=rounds {
        for (pipeline, readings) in pipelines.iter().zip(&mut readings) {
            // The first side alternates, or the second would always find a warmer client.
            let (one, other) = if round % 2 == 0 {
                let one = ours.spend(pipeline)?;
                (one, bare.spend(pipeline)?)
            } else {
                let other = bare.spend(pipeline)?;
                (ours.spend(pipeline)?, other)
            };
            if round > 0 {
                readings.ours.push(one);
                readings.bare.push(other);
            }
        }
    }
    Ok(readings)
}

/// One server and the clients that keep it busy.
struct Side {
    server: Server,
    client: Connection,
    /// Idle, but a lock may be bound to each.
    sessions: Vec<Connection>,
}

impl Side {
    fn start(server: Server, keys: usize, sessions: usize) -> io::Result<Side> {
        let mut client = Connection::connect(server.port())?;
        fill(&mut client, 0..keys, |pipeline, index| pipeline.push(&["SET", &format!("other:{index}"), "value"]))?;
        let sessions = (0..sessions).map(|_| Connection::connect(server.port())).collect::<io::Result<_>>()?;
        Ok(Side { server, client, sessions })
    }

    fn add_strings(&mut self, count: usize) -> io::Result<()> {
        let scripts = Vec::new().into();
        fill(&mut self.client, 0..count, |pipeline, index| {
            let names = Names::numbered(index, &scripts);
            pipeline.push(&["SET", &names.key, &names.token, "PX", "3600000"]);
        })
    }

    fn drop_strings(&mut self, count: usize) -> io::Result<()> {
        let scripts = Vec::new().into();
        fill(&mut self.client, 0..count, |pipeline, index| {
            pipeline.push(&["DEL", &Names::numbered(index, &scripts).key])
        })
    }

    /// As many locks of the same names, the first of them bound to the sessions.
    fn add_locks(&mut self, count: usize) -> io::Result<()> {
        let scripts = Vec::new().into();
        fill(&mut self.client, self.sessions.len()..count, |pipeline, index| {
            let names = Names::numbered(index, &scripts);
            pipeline.push(&["LOCK.ACQUIRE", &names.key, &names.token, "PX", "3600000"]);
        })?;
        let lease_ms = LEASE_MS.to_string();
        for (index, session) in self.sessions.iter_mut().enumerate() {
            let names = Names::numbered(index, &scripts);
            let reply = session.command(&["LOCK.ACQUIRE", &names.key, &names.token, "PX", &lease_ms, "SESSION"])?;
            if let Reply::Error(text) = reply {
                return Err(io::Error::other(text));
            }
        }
        Ok(())
    }

    /// CPU per command of one pipeline, in microseconds.
    fn spend(&mut self, pipeline: &Pipeline) -> io::Result<f64> {
        let before = self.server.cpu_us()?;
        self.client.run(pipeline)?;
        Ok((self.server.cpu_us()? - before) / pipeline.commands as f64)
    }
}

/// Sends one command for each index, a slice at a time.
fn fill(client: &mut Connection, indices: Range<usize>, push: impl Fn(&mut Pipeline, usize)) -> io::Result<()> {
    for from in indices.clone().step_by(SLICE) {
        let mut pipeline = Pipeline::default();
        (from..indices.end.min(from + SLICE)).for_each(|index| push(&mut pipeline, index));
        client.run(&pipeline)?;
    }
    Ok(())
}
