//! (1) What one uncontended acquire and release costs the server, when the commands come in pipelines over 1,000 keys on
//! one connection, and how long it takes when they come one at a time.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use futures_lite::future::block_on;
use hdrhistogram::Histogram;
use support::{Connection, Pipeline, Reply};

use super::plan::Plan;
use crate::plots::{Bar, Plot};
use crate::report::{Section, Verdict};
use crate::rivals::{self, prepare, ClientConfig, Names, Pair, Rival, Threading};
use crate::server::Server;
use crate::stats::{digits, Figure};

const KEYS: usize = 1000;
/// Pipelines between two readings of the CPU: long enough for the reading itself not to count, short enough for what
/// is compared to run within the same few milliseconds.
const BATCHES: usize = 4;

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

/// What is to be reached: whose pair, to whose, and at most how much of it.
const TARGETS: &[(&str, &Rival, &Rival, f64)] = &[
    ("mutex pair, server CPU, to SET NX PX + DEL", &rivals::LOCK, &rivals::SET_DEL, 1.0),
    ("mutex pair to the Lua mutex pair", &rivals::LOCK, &rivals::LUA_MUTEX, 0.22),
    ("mutex pair to SET + Lua release", &rivals::LOCK, &rivals::SET_LUA, 0.43),
    ("mutex pair to SET + DELIFEQ", &rivals::LOCK, &rivals::DELIFEQ, 0.80),
    ("reentrant pair to the Lua hash pair", &rivals::RLOCK, &rivals::LUA_HASH, 0.22),
];

/// CPU per pair of one rival, a reading for each round.
struct Readings {
    rival: &'static Rival,
    us: Vec<f64>,
}

pub fn pipelined(plan: &Plan) -> io::Result<Section> {
    let mut server = Server::start(&plan.builder)?;
    let (readings, missing) = measure(&mut server, PAIRS, plan.scale.pick(101, 15))?;
    let find = |rival: &Rival| readings.iter().find(|entry| entry.rival.name == rival.name);
    let floor = find(&rivals::SET_DEL).expect("every server has SET and DEL");

    let mut section = Section::new(
        "Uncontended pair, pipelined: server CPU",
        &format!(
            "One connection sends pipelines of {KEYS} acquires and their {KEYS} releases. CPU is user and system time of the \
             server's process. Each round runs every way once, in turn, on the same server; ratios are taken within the \
             round, and the table gives their median and quartiles. For the targets the two sides run again, in turn with nothing \
             between, on several servers one after the other. Every pair's replies are checked."
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
        let measured = if both_there { Some(duel(plan, ours, theirs)?) } else { None };
        section.verdicts.push(Verdict::at_most(what, *limit, measured));
    }
    Ok(section)
}

/// What one pair costs to the other: A, B, B, A, with nothing in between. On several servers, because where the memory of one
/// happens to lie moves the ratio by some hundredths.
fn duel(plan: &Plan, ours: &'static Rival, theirs: &'static Rival) -> io::Result<Figure> {
    let mut us = [Vec::new(), Vec::new()];
    for _ in 0..plan.scale.pick(5, 2) {
        let mut server = Server::start(&plan.builder)?;
        let (readings, _) = measure(&mut server, &[ours, theirs], plan.scale.pick(25, 12))?;
        us.iter_mut().zip(readings).for_each(|(us, reading)| us.extend(reading.us));
    }
    Ok(Figure::of_ratios(&us[0], &us[1]))
}

/// (7) The families' pairs beside the mutex's.
pub fn families(plan: &Plan) -> io::Result<Section> {
    const FAMILIES: &[&Rival] =
        &[&rivals::LOCK, &rivals::RLOCK, &rivals::RWLOCK_READ, &rivals::RWLOCK_WRITE, &rivals::SEM, &rivals::MLOCK];
    let mut section = Section::new(
        "The families: server CPU of an uncontended pair",
        "As above, one holder each; the ratio is to the mutex.",
        &["family", "CPU to the mutex", "µs of server CPU per pair"],
    );
    let mut server = Server::start(&plan.builder)?;
    let (readings, missing) = measure(&mut server, FAMILIES, plan.scale.pick(101, 15))?;
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

fn measure(
    server: &mut Server,
    rivals: &[&'static Rival],
    rounds: usize,
) -> io::Result<(Vec<Readings>, Vec<&'static str>)> {
    let (here, missing) = prepare(server, rivals)?;
    let mut client = Connection::connect(server.port())?;
    let batch_of: Vec<Batch> = here.iter().map(|(rival, scripts)| Batch::of(rival, scripts)).collect();
    let mut readings: Vec<Readings> = here.iter().map(|(rival, _)| Readings { rival, us: Vec::new() }).collect();
    for round in 0..=rounds {
        for turn in 0..readings.len() {
            // Every round starts with another way, so that none always runs behind the same neighbour.
            let which = (turn + round) % readings.len();
            let before = server.cpu_us()?;
            for _ in 0..BATCHES {
                batch_of[which].run(&mut client)?;
            }
            let spent = server.cpu_us()? - before;
            free_all(server)?;
            // The first round warms up.
            if round > 0 {
                readings[which].us.push(spent / (BATCHES * KEYS) as f64);
            }
        }
    }
    Ok((readings, missing))
}

/// Waits until the last lock of a round is gone, for those that can only shorten its lease.
fn free_all(server: &mut Server) -> io::Result<()> {
    let last = Names::numbered(KEYS - 1, &Vec::new().into()).key;
    while server.must(&["EXISTS", &last])? != Reply::Int(0) {}
    Ok(())
}

/// A pipeline of one pair for each key, ready to send.
struct Batch {
    pipeline: Pipeline,
    /// From here on the replies are those of releases.
    releases: usize,
    replies_per_release: usize,
    freed: fn(&Reply) -> bool,
    name: &'static str,
}

impl Batch {
    fn of(rival: &Rival, scripts: &Rc<[String]>) -> Batch {
        let mut pair = Pair::default();
        for index in 0..KEYS {
            (rival.pair)(&mut pair, &Names::numbered(index, scripts));
        }
        let mut pipeline = pair.acquire;
        let releases = pipeline.commands;
        pipeline.bytes.extend_from_slice(&pair.release.bytes);
        pipeline.commands += pair.release.commands;
        Batch {
            pipeline,
            releases,
            replies_per_release: pair.release.commands / KEYS,
            freed: rival.freed,
            name: rival.name,
        }
    }

    fn run(&self, client: &mut Connection) -> io::Result<()> {
        let mut wrong = None;
        client.pipeline(&self.pipeline, |index, reply| {
            let last_of_release = index >= self.releases && (index - self.releases + 1) % self.replies_per_release == 0;
            let fine = !matches!(reply, Reply::Error(_)) && (!last_of_release || (self.freed)(&reply));
            if !fine {
                wrong.get_or_insert((index, reply));
            }
        })?;
        match wrong {
            None => Ok(()),
            Some((index, reply)) => Err(io::Error::other(format!("{}: reply {index} is {reply:?}", self.name))),
        }
    }
}

fn commands(rival: &Rival) -> usize {
    let mut pair = Pair::default();
    (rival.pair)(&mut pair, &Names::numbered(0, &vec![String::new(); 2].into()));
    pair.acquire.commands + pair.release.commands
}

/// One connection, one lock, no contention: how long an acquire and its release take.
pub fn one_at_a_time(plan: &Plan) -> io::Result<Section> {
    let mut server = Server::start(&plan.builder)?;
    let (here, missing) = prepare(&mut server, rivals::LOCKS)?;
    let mut lockers = Vec::new();
    for (rival, scripts) in &here {
        let open = rival.open.expect("only floors cannot be opened");
        let config = ClientConfig {
            port: server.port(),
            names: Names::numbered(0, scripts),
            threading: Threading::Own,
            sent: Rc::default(),
        };
        lockers.push((rival, block_on(open(config))?, Histogram::<u64>::new(3).expect("three digits")));
    }
    let rounds = plan.scale.pick(20, 5);
    let pairs = plan.scale.pick(400, 100);
    for round in 0..=rounds {
        let count = lockers.len();
        for turn in 0..count {
            let (_, locker, histogram) = &mut lockers[(turn + round) % count];
            for _ in 0..pairs {
                let start = Instant::now();
                block_on(locker.acquire())?;
                block_on(locker.release())?;
                if round > 0 {
                    histogram.record(start.elapsed().as_nanos() as u64).expect("the histogram grows");
                }
            }
            server.must(&["FLUSHALL"])?;
        }
    }

    let mut section = Section::new(
        "Uncontended pair, one at a time: latency",
        "One connection takes and frees one lock and waits for each reply, over the loopback interface.",
        &["way", "p50 to LOCK", "p50 µs", "p99 µs", "p99.9 µs"],
    );
    let ours = lockers.iter().find(|(rival, ..)| rival.name == rivals::LOCK.name);
    let ours = ours.map(|(_, _, histogram)| histogram.value_at_quantile(0.5) as f64);
    let mut bars = Vec::new();
    for (rival, _, histogram) in &lockers {
        let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        let ratio = ours.map_or("no module".to_owned(), |ours| digits(us(0.5) * 1000.0 / ours));
        section.row([rival.name.to_owned(), ratio, digits(us(0.5)), digits(us(0.99)), digits(us(0.999))]);
        bars.push(Bar { label: rival.name, value: us(0.5), low: us(0.25), high: us(0.75) });
    }
    section.missing(&missing);
    section.plot =
        Some(Plot::Bars { file: "pair-latency", title: "Latency of an uncontended pair", unit: "µs", bars });
    Ok(section)
}
