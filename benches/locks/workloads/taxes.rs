//! (11) What one client that waits costs everybody else on the server.

use std::io;
use std::rc::Rc;

use support::{Connection, Pipeline};

use super::plan::Plan;
use crate::batch::KEYS;
use crate::rivals::{self, Names, Pair, Rival};
use crate::section::{Section, Verdict};
use crate::server::Server;
use crate::stats::Figure;

/// At most this much may the others' commands cost with one waiter, to without.
pub const GOAL: f64 = 1.02;

/// How often a task runs between two readings of the CPU.
const RUNS: usize = 4;

/// What the others do: a command or a pair for each index.
pub struct Task {
    pub name: &'static str,
    pub push: fn(&mut Pipeline, usize),
}

/// Other applications' keys, and other locks.
pub const TASKS: [Task; 3] = [
    Task {
        name: "SET … EX",
        push: |pipeline, index| pipeline.push(&["SET", &format!("session:{index}"), "value", "EX", "3600"]),
    },
    Task {
        name: "SET NX PX, DEL",
        push: |pipeline, index| push_pair(pipeline, &rivals::SET_DEL, index, &Vec::new().into()),
    },
    Task { name: "LOCK", push: |pipeline, index| push_pair(pipeline, &rivals::LOCK, index, &Vec::new().into()) },
];

/// One acquire and its release.
pub fn push_pair(pipeline: &mut Pipeline, rival: &Rival, index: usize, scripts: &Rc<[String]>) {
    let mut pair = Pair::default();
    (rival.pair)(&mut pair, &Names::numbered(index, scripts));
    pipeline.append(&pair.acquire);
    pipeline.append(&pair.release);
}

/// A client that waits for a lock of its own, which is held without end.
pub struct Waiter {
    _connection: Connection,
}

impl Waiter {
    pub fn start(server: &mut Server) -> io::Result<Waiter> {
        let mut connection = Connection::connect(server.port())?;
        server.must(&["LOCK.ACQUIRE", "waited-for", "holder", "PERSIST"])?;
        futures_lite::future::block_on(connection.send(&["LOCK.ACQUIRE", "waited-for", "waiter", "BLOCK", "0"]))?;
        while server.info_number("clients", "blocked_clients")? < 1.0 {}
        Ok(Waiter { _connection: connection })
    }
}

pub fn of_one_waiter(plan: &Plan) -> io::Result<Section> {
    let mut section = Section::new(
        "Tax: one waiter, and everybody else",
        "Two servers with the module run the same commands in turn, in pipelines; figures are server CPU. Then one \
         client waits for a lock on one of the servers, and both run the commands once more. The ratio is how that \
         server changed against the other, over several pairs of servers.",
        &["what others do", "CPU with one waiter to without", "µs with", "µs without"],
    );
    let tasks = TASKS.map(|task| {
        let mut pipeline = Pipeline::default();
        (0..KEYS).for_each(|index| (task.push)(&mut pipeline, index));
        (task.name, pipeline)
    });
    let rounds = plan.scale.pick(16, 8);
    let mut changes = [const { Vec::new() }; 3];
    let mut costs = [const { (Vec::new(), Vec::new()) }; 3];
    for _ in 0..plan.scale.pick(7, 3) {
        let mut sides = [Side::start(plan)?, Side::start(plan)?];
        if !sides[0].server.knows("LOCK.ACQUIRE")? {
            section.missing(&["LOCK"]);
            return Ok(section);
        }
        let before = compare(&mut sides, &tasks, rounds)?;
        let _waiter = Waiter::start(&mut sides[0].server)?;
        let after = compare(&mut sides, &tasks, rounds)?;
        for which in 0..tasks.len() {
            let ratio = |readings: &[Vec<f64>; 2]| Figure::of_ratios(&readings[0], &readings[1]).median;
            changes[which].push(ratio(&after[which]) / ratio(&before[which]));
            costs[which].0.push(Figure::of(after[which][0].clone()).median);
            costs[which].1.push(Figure::of(before[which][0].clone()).median);
        }
    }
    for (((name, _), changes), (with, without)) in tasks.iter().zip(changes).zip(costs) {
        let ratio = Figure::of(changes);
        section.row([name.to_string(), ratio.show(), Figure::of(with).show(), Figure::of(without).show()]);
        let what = format!("{name} beside one waiter, server CPU, to none");
        section.verdicts.push(Verdict::at_most(&what, GOAL, Some(ratio)));
    }
    Ok(section)
}

struct Side {
    server: Server,
    client: Connection,
}

impl Side {
    fn start(plan: &Plan) -> io::Result<Side> {
        // No snapshots: a fork's copying would drown the difference.
        let server = Server::start(&plan.builder.clone().config("save \"\""))?;
        let client = Connection::connect(server.port())?;
        Ok(Side { server, client })
    }

    /// CPU for one of a task's commands or pairs, in µs.
    fn spend(&mut self, pipeline: &Pipeline) -> io::Result<f64> {
        let before = self.server.cpu_us()?;
        for _ in 0..RUNS {
            self.client.run(pipeline)?;
        }
        Ok((self.server.cpu_us()? - before) / (RUNS * KEYS) as f64)
    }
}

/// CPU of both sides for each task, a reading for each round.
fn compare(sides: &mut [Side; 2], tasks: &[(&str, Pipeline); 3], rounds: usize) -> io::Result<[[Vec<f64>; 2]; 3]> {
    let mut readings: [[Vec<f64>; 2]; 3] = Default::default();
    for round in 0..=rounds {
        for ((_, pipeline), readings) in tasks.iter().zip(&mut readings) {
            // Who goes first alternates.
            for turn in 0..2 {
                let which = (round + turn) % 2;
                let us = sides[which].spend(pipeline)?;
                // The first round warms up.
                if round > 0 {
                    readings[which].push(us);
                }
            }
        }
    }
    Ok(readings)
}
