//! The cost of one uncontended acquire and release to the server, in pipelines over 1,000 keys on one connection.

use std::io;

use support::Connection;

use super::plan::Plan;
use crate::batch::{Batch, KEYS};
use crate::plots::{Bar, Plot};
use crate::rivals::{self, prepare, Names, Pair, Rival};
use crate::section::Section;
use crate::server::Server;
use crate::stats::Figure;

/// All pairs, in table order.
const PAIRS: &[&Rival] = &[
    &rivals::PING,
    &rivals::SET_DEL,
    &rivals::LOCK,
    &rivals::RLOCK,
    &rivals::SET_LUA,
    &rivals::SETNX_WATCH,
    &rivals::COUNTER,
    &rivals::LUA_MUTEX,
    &rivals::LUA_HASH,
    &rivals::TWO_KEYS,
    &rivals::DELIFEQ,
    &rivals::DELEX,
    &rivals::SET_IFEQ,
    &rivals::REDIS_PY,
    &rivals::PYTHON_REDIS_LOCK,
    &rivals::REDISSON,
    &rivals::REDISSON_FAIR,
];

pub fn pipelined(plan: &Plan) -> io::Result<Section> {
    let mut server = Server::start(&plan.builder)?;
    let (readings, missing) = in_turn(&mut server, plan.scale.pick(61, 15))?;
    let find = |rival: &Rival| readings.iter().find(|entry| entry.rival.name == rival.name);
    let bare = find(&rivals::SET_DEL).expect("every server has SET and DEL");
    let ours = find(&rivals::LOCK);

    let mut section = Section::new(
        "Uncontended pair, pipelined: server CPU",
        &format!(
            "One connection sends pipelines of {KEYS} acquires and their {KEYS} releases. CPU is the user and system \
             time of the server process. Each round runs every implementation once on the same server. Ratios are \
             taken within a round, and the table shows their median and quartiles. The replies to every pair are \
             checked."
        ),
        &["implementation", "LOCK to it, CPU", "CPU to SET NX PX + DEL", "µs of server CPU per pair", "commands"],
    );
    let mut bars = Vec::new();
    for entry in &readings {
        let ours_to_it = ours.map_or("no module".to_owned(), |ours| Figure::of_ratios(&ours.us, &entry.us).show());
        let to_bare = Figure::of_ratios(&entry.us, &bare.us).show();
        let cost = Figure::of(entry.us.clone());
        section.row([entry.rival.name.to_owned(), ours_to_it, to_bare, cost.show(), commands(entry.rival).to_string()]);
        bars.push(Bar { label: entry.rival.name, value: cost.median, low: cost.low, high: cost.high });
    }
    section.missing(&missing);
    section.plot = Some(Plot::Bars { file: "pair-cpu", title: "Server CPU per uncontended pair", unit: "µs", bars });
    Ok(section)
}

/// CPU per pair of one rival, one reading per round.
struct Readings {
    rival: &'static Rival,
    us: Vec<f64>,
}

/// Measures each way once per round; also returns the names of the ways that the server cannot run.
fn in_turn(server: &mut Server, rounds: usize) -> io::Result<(Vec<Readings>, Vec<&'static str>)> {
    let (here, missing) = prepare(server, PAIRS)?;
    let mut client = Connection::connect(server.port())?;
    let batch_of: Vec<Batch> = here.iter().map(|(rival, scripts)| Batch::of(rival, scripts)).collect();
    let mut readings: Vec<Readings> = here.iter().map(|(rival, _)| Readings { rival, us: Vec::new() }).collect();
    for round in 0..=rounds {
        for position in 0..readings.len() {
            // Each round starts with a different way, so that none always runs after the same one.
            let which = (position + round) % readings.len();
            let us = batch_of[which].cpu_us_per_pair(server, &mut client)?;
            // The first round is a warm-up.
            if round > 0 {
                readings[which].us.push(us);
            }
        }
    }
    Ok((readings, missing))
}

fn commands(rival: &Rival) -> usize {
    let mut pair = Pair::default();
    (rival.pair)(&mut pair, &Names::numbered(0, &vec![String::new(); 2].into()));
    pair.acquire.commands + pair.release.commands
}
