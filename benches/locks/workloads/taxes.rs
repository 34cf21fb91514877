//! (11) The cost of one waiter to all other clients of the server.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use support::{Connection, Pipeline, Reply};

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
    /// What must be there before.
    pub prepare: fn(&mut Pipeline, usize),
    /// Whether the goal is for it; the others show how exact the figures are.
    pub has_goal: bool,
}

const TASK: Task = Task { name: "", push: |_, _| {}, prepare: |_, _| {}, has_goal: true };

/// Other applications' keys, and other locks.
pub const TASKS: [Task; 5] = [
    Task { name: "PING", push: |pipeline, _| pipeline.push(&["PING"]), has_goal: false, ..TASK },
    Task {
        name: "GET",
        push: |pipeline, index| pipeline.push(&["GET", &format!("read:{index}")]),
        prepare: |pipeline, index| pipeline.push(&["SET", &format!("read:{index}"), "value"]),
        has_goal: false,
    },
    Task {
        name: "SET … EX",
        push: |pipeline, index| pipeline.push(&["SET", &format!("session:{index}"), "value", "EX", "3600"]),
        ..TASK
    },
    Task {
        name: "SET NX PX, DEL",
        push: |pipeline, index| push_pair(pipeline, &rivals::SET_DEL, index, &Vec::new().into()),
        ..TASK
    },
    Task {
        name: "LOCK",
        push: |pipeline, index| push_pair(pipeline, &rivals::LOCK, index, &Vec::new().into()),
        ..TASK
    },
];

/// One acquire and its release.
pub fn push_pair(pipeline: &mut Pipeline, rival: &Rival, index: usize, scripts: &Rc<[String]>) {
    let mut pair = Pair::default();
    (rival.pair)(&mut pair, &Names::numbered(index, scripts));
    pipeline.append(&pair.acquire);
    pipeline.append(&pair.release);
}

/// A lock that is held without end, for a client to wait for. It exists before the first waiter: if the database were
/// empty between two pairs, the server would not search it.
pub fn hold(server: &mut Server) -> io::Result<()> {
    server.must(&["CONFIG", "SET", "lock.keep-place", "0"])?;
    server.must(&["LOCK.ACQUIRE", "waited-for", "holder", "PERSIST"]).map(drop)
}

/// A client that waits for that lock.
pub struct Waiter {
    connection: Connection,
}

impl Waiter {
    pub fn start(server: &mut Server) -> io::Result<Waiter> {
        let mut connection = Connection::connect(server.port())?;
        futures_lite::future::block_on(connection.send(&["LOCK.ACQUIRE", "waited-for", "waiter", "BLOCK", "0"]))?;
        while server.info_number("clients", "blocked_clients")? < 1.0 {}
        Ok(Waiter { connection })
    }

    /// Its connection ends, and the module looks at no command any more.
    pub fn leave(self, server: &mut Server) -> io::Result<()> {
        drop(self.connection);
        while server.info_number("clients", "blocked_clients")? > 0.0 {}
        let is_watched =
            |reply: &Reply| matches!(reply, Reply::Bulk(text) if String::from_utf8_lossy(text).contains("filters=1"));
        while is_watched(&server.must(&["INFO", "modules"])?) {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

pub fn of_one_waiter(plan: &Plan) -> io::Result<Section> {
    let before = if plan.base.is_some() { &["before", "before, after it has left"][..] } else { &[] };
    let columns = [
        &["what others do", "CPU with one waiter to without", "after it has left"],
        before,
        &["µs with", "µs without"],
    ];
    let mut section = Section::new(
        "Tax: one waiter, and all other clients",
        "Two servers with the module run the same commands in turn, in pipelines; figures are server CPU. Then one \
         client waits for a lock on one of the servers, and both run the commands once more; and again when that \
         client and the lock are gone. The ratio is how that server changed against the other, over several pairs of \
         servers. PING and GET have nothing to do with locks: they show how exact the rest is. Before is another build \
         of the module, measured in the same run, where one was given.",
        &columns.concat(),
    );
    let Some(module) = &plan.module else {
        section.missing(&["LOCK"]);
        return Ok(section);
    };
    let ours = Tax::measure(plan, module)?;
    let base = plan.base.as_deref().map(|base| Tax::measure(plan, base)).transpose()?;
    for (place, (task, tax)) in TASKS.iter().zip(&ours).enumerate() {
        let [beside, after] = tax.ratios();
        let mut cells = vec![task.name.to_owned(), beside.show(), after.show()];
        if let Some(base) = &base {
            cells.extend(base[place].ratios().map(|ratio| ratio.show()));
        }
        cells.extend([Figure::of(tax.with.clone()).show(), Figure::of(tax.without.clone()).show()]);
        section.cells(cells);
        if task.has_goal {
            let what = format!("{} beside one waiter, server CPU, to none", task.name);
            section.verdicts.push(Verdict::at_most(&what, GOAL, Some(beside)));
            let what = format!("{} after the waiter has left, server CPU, to before it came", task.name);
            section.verdicts.push(Verdict::at_most(&what, GOAL, Some(after)));
        }
    }
    Ok(section)
}

/// The cost of one task on a server with a waiter, a reading for each pair of servers.
#[derive(Default)]
struct Tax {
    /// How the server changed against the other one beside the waiter.
    beside: Vec<f64>,
    /// And after that.
    after: Vec<f64>,
    /// µs.
    with: Vec<f64>,
    without: Vec<f64>,
}

impl Tax {
    /// Of each task.
    fn measure(plan: &Plan, module: &Path) -> io::Result<[Tax; TASKS.len()]> {
        let pipelines = TASKS.map(|task| {
            let mut pipeline = Pipeline::default();
            (0..KEYS).for_each(|index| (task.push)(&mut pipeline, index));
            pipeline
        });
        let rounds = plan.scale.pick(12, 5);
        let mut taxes: [Tax; TASKS.len()] = Default::default();
        for _ in 0..plan.scale.pick(7, 2) {
            let mut sides = [Side::start(plan, module)?, Side::start(plan, module)?];
            let before = compare(&mut sides, &pipelines, rounds)?;
            let waiter = Waiter::start(&mut sides[0].server)?;
            let beside = compare(&mut sides, &pipelines, rounds)?;
            waiter.leave(&mut sides[0].server)?;
            let after = compare(&mut sides, &pipelines, rounds)?;
            for (which, tax) in taxes.iter_mut().enumerate() {
                let ratio = |readings: &[Vec<f64>; 2]| Figure::of_ratios(&readings[0], &readings[1]).median;
                let normal = ratio(&before[which]);
                tax.beside.push(ratio(&beside[which]) / normal);
                tax.after.push(ratio(&after[which]) / normal);
                tax.with.push(Figure::of(beside[which][0].clone()).median);
                tax.without.push(Figure::of(before[which][0].clone()).median);
            }
        }
        Ok(taxes)
    }

    /// Beside the waiter, and after it.
    fn ratios(&self) -> [Figure; 2] {
        [&self.beside, &self.after].map(|ratios| Figure::of(ratios.clone()))
    }
}

struct Side {
    server: Server,
    client: Connection,
}

impl Side {
    fn start(plan: &Plan, module: &Path) -> io::Result<Side> {
        // No snapshots: a fork's copying would drown the difference.
        let mut server = Server::start(&plan.builder.clone().module(module).config("save \"\""))?;
        hold(&mut server)?;
        let mut client = Connection::connect(server.port())?;
        let mut pipeline = Pipeline::default();
        for task in &TASKS {
            (0..KEYS).for_each(|index| (task.prepare)(&mut pipeline, index));
        }
        client.run(&pipeline)?;
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
fn compare(
    sides: &mut [Side; 2],
    pipelines: &[Pipeline; TASKS.len()],
    rounds: usize,
) -> io::Result<[[Vec<f64>; 2]; TASKS.len()]> {
    let mut readings: [[Vec<f64>; 2]; TASKS.len()] = Default::default();
    for round in 0..=rounds {
        for (pipeline, readings) in pipelines.iter().zip(&mut readings) {
            // The first side alternates.
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
