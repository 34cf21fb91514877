//! (1) The cost of one uncontended acquire and release to the server, in pipelines over 1,000 keys on one connection;
//! (7) the same for each family.

use std::io;

use super::plan::Plan;
use super::readings::{in_turn, on_several_servers};
use crate::batch::KEYS;
use crate::plots::{Bar, Plot};
use crate::rivals::{self, prepare, Names, Pair, Rival};
use crate::section::{Section, Verdict};
use crate::server::Server;
use crate::stats::Figure;

/// Every way to pair, in the order of the table.
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

/// The targets: two ways and a bound on the ratio of their pairs. The bounds of LOCK to SET + DEL, DELIFEQ and the Lua
/// mutex follow from the floor, and stand there.
const TARGETS: &[(&str, &Rival, &Rival, f64)] = &[
    ("mutex pair to SET + Lua release", &rivals::LOCK, &rivals::SET_LUA, 0.43),
    ("reentrant pair to the Lua hash pair", &rivals::RLOCK, &rivals::LUA_HASH, 0.22),
];

pub fn pipelined(plan: &Plan) -> io::Result<Section> {
    let mut server = Server::start(&plan.builder)?;
    let (readings, missing) = in_turn(&mut server, PAIRS, plan.scale.pick(61, 15))?;
    let find = |rival: &Rival| readings.iter().find(|entry| entry.rival.name == rival.name);
    let floor = find(&rivals::SET_DEL).expect("every server has SET and DEL");

    let mut section = Section::new(
        "Uncontended pair, pipelined: server CPU",
        &format!(
            "One connection sends pipelines of {KEYS} acquires and their {KEYS} releases. CPU is user and system time \
             of the server's process. Each round runs every way once, in turn, on the same server; ratios are taken \
             within the round, and the table gives their median and quartiles. For the targets the two sides run \
             again, in turn with nothing between, on several servers one after the other. Every pair's replies are \
             checked."
        ),
        &["way", "CPU to SET NX PX + DEL", "µs of server CPU per pair", "commands"],
    );
    let mut bars = Vec::new();
    for entry in &readings {
        let ratio = Figure::of_ratios(&entry.us, &floor.us);
        let cost = Figure::of(entry.us.clone());
        section.row([entry.rival.name.to_owned(), ratio.show(), cost.show(), commands(entry.rival).to_string()]);
        bars.push(Bar { label: entry.rival.name, value: cost.median, low: cost.low, high: cost.high });
    }
    section.missing(&missing);
    section.plot = Some(Plot::Bars { file: "pair-cpu", title: "Server CPU per uncontended pair", unit: "µs", bars });

    for (what, ours, theirs, limit) in TARGETS {
        let both_there = find(ours).is_some() && find(theirs).is_some();
        let measured = match both_there {
            true => {
                let readings = on_several_servers(plan, || Server::start(&plan.builder), &[ours, theirs])?;
                Some(Figure::of_ratios(&readings[0].us, &readings[1].us))
            }
            false => None,
        };
        section.verdicts.push(Verdict::at_most(what, *limit, measured));
    }
    Ok(section)
}

/// (7) The families' pairs beside the mutex's.
pub fn families(plan: &Plan) -> io::Result<Section> {
    const FAMILIES: &[&Rival] =
        &[&rivals::LOCK, &rivals::RLOCK, &rivals::RWLOCK_READ, &rivals::RWLOCK_WRITE, &rivals::SEM, &rivals::MLOCK];
    let mut section = Section::new(
        "The families: server CPU of an uncontended pair",
        "As above, one holder each, on several servers; the ratio is to the mutex.",
        &["family", "CPU to the mutex", "µs of server CPU per pair"],
    );
    let (here, missing) = prepare(&mut Server::start(&plan.builder)?, FAMILIES)?;
    let here: Vec<&Rival> = here.iter().map(|(rival, _)| *rival).collect();
    let readings = on_several_servers(plan, || Server::start(&plan.builder), &here)?;
    let mutex = readings.iter().find(|entry| entry.rival.name == rivals::LOCK.name);
    let Some(mutex) = mutex else {
        section.missing(&missing);
        return Ok(section);
    };
    let mut bars = Vec::new();
    for entry in &readings {
        let cost = Figure::of(entry.us.clone());
        section.row([entry.rival.name.to_owned(), Figure::of_ratios(&entry.us, &mutex.us).show(), cost.show()]);
        bars.push(Bar { label: entry.rival.name, value: cost.median, low: cost.low, high: cost.high });
    }
    section.missing(&missing);
    section.plot =
        Some(Plot::Bars { file: "families-cpu", title: "Server CPU per pair, by family", unit: "µs", bars });
    section.verdicts = [
        ("RWLOCK READ pair to the mutex", &rivals::RWLOCK_READ),
        ("RWLOCK WRITE pair to the mutex", &rivals::RWLOCK_WRITE),
        ("SEM pair to the mutex", &rivals::SEM),
        ("MLOCK pair of one key to the mutex", &rivals::MLOCK),
    ]
    .into_iter()
    .map(|(what, family)| {
        let entry = readings.iter().find(|entry| entry.rival.name == family.name);
        Verdict::at_most(what, 1.3, entry.map(|entry| Figure::of_ratios(&entry.us, &mutex.us)))
    })
    .collect();
    Ok(section)
}

fn commands(rival: &Rival) -> usize {
    let mut pair = Pair::default();
    (rival.pair)(&mut pair, &Names::numbered(0, &vec![String::new(); 2].into()));
    pair.acquire.commands + pair.release.commands
}
