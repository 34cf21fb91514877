//! (10) The module beside the floor, and the ratios that follow from it: reached or missed.

use std::borrow::{Borrow, BorrowMut};
use std::io;

use super::consumer::Consumer;
use super::plan::Plan;
use super::readings::on_several_servers;
use crate::rivals::{self, prepare, Rival};
use crate::section::{Section, Verdict};
use crate::server::Server;
use crate::stats::{digits, Figure};

/// The bound on the ratio of a pair to another one.
#[derive(Clone, Copy)]
enum Goal {
    AtMost(f64),
    /// Relative to the ratio of the floor, which is measured in the same rounds.
    OfTheFloor(f64),
    /// On Redis 7, and on later servers, which have cheaper scripts.
    OfScripts(f64, f64),
    /// Shown for comparison.
    None,
}

/// Ways that run in turn, and the comparisons between them.
struct Group {
    consumer: Consumer,
    ways: &'static [&'static Rival],
    ratios: &'static [(&'static Rival, &'static Rival, Goal)],
}

const GROUPS: &[Group] = &[
    Group {
        consumer: Consumer::Nobody,
        ways: &[&rivals::LOCK, &rivals::FLOOR, &rivals::SET_DEL],
        ratios: &[
            (&rivals::LOCK, &rivals::FLOOR, Goal::AtMost(1.04)),
            (&rivals::FLOOR, &rivals::SET_DEL, Goal::None),
            (&rivals::LOCK, &rivals::SET_DEL, Goal::OfTheFloor(1.04)),
        ],
    },
    Group {
        consumer: Consumer::Nobody,
        ways: &[&rivals::LOCK, &rivals::DELIFEQ],
        ratios: &[(&rivals::LOCK, &rivals::DELIFEQ, Goal::AtMost(1.04))],
    },
    Group {
        consumer: Consumer::Nobody,
        ways: &[&rivals::LOCK, &rivals::LUA_MUTEX],
        ratios: &[(&rivals::LOCK, &rivals::LUA_MUTEX, Goal::OfScripts(0.25, 0.28))],
    },
    Group {
        consumer: Consumer::Nobody,
        ways: &[&rivals::RLOCK, &rivals::LOCK],
        ratios: &[(&rivals::RLOCK, &rivals::LOCK, Goal::AtMost(1.02))],
    },
    Group {
        consumer: Consumer::Nobody,
        ways: &[&rivals::LOCK_BLOCK, &rivals::LOCK, &rivals::FLOOR_BLOCK, &rivals::FLOOR],
        ratios: &[
            (&rivals::LOCK_BLOCK, &rivals::LOCK, Goal::AtMost(1.01)),
            (&rivals::FLOOR_BLOCK, &rivals::FLOOR, Goal::None),
        ],
    },
    Group {
        consumer: Consumer::Nobody,
        ways: &[&rivals::LOCK_SESSION, &rivals::LOCK, &rivals::FLOOR_SESSION, &rivals::FLOOR],
        ratios: &[
            (&rivals::LOCK_SESSION, &rivals::LOCK, Goal::AtMost(1.15)),
            (&rivals::FLOOR_SESSION, &rivals::FLOOR, Goal::None),
        ],
    },
    Group {
        consumer: Consumer::AppendOnlyFile,
        ways: &[&rivals::LOCK, &rivals::RFLOOR, &rivals::SET_DEL],
        ratios: &[
            (&rivals::LOCK, &rivals::RFLOOR, Goal::None),
            (&rivals::RFLOOR, &rivals::SET_DEL, Goal::None),
            (&rivals::LOCK, &rivals::SET_DEL, Goal::OfTheFloor(1.05)),
        ],
    },
    Group {
        consumer: Consumer::AppendOnlyFile,
        ways: &[&rivals::LOCK, &rivals::SET_LUA],
        ratios: &[(&rivals::LOCK, &rivals::SET_LUA, Goal::AtMost(0.65))],
    },
    Group {
        consumer: Consumer::Replica,
        ways: &[&rivals::LOCK, &rivals::RFLOOR, &rivals::SET_DEL],
        ratios: &[
            (&rivals::LOCK, &rivals::RFLOOR, Goal::None),
            (&rivals::RFLOOR, &rivals::SET_DEL, Goal::None),
            (&rivals::LOCK, &rivals::SET_DEL, Goal::OfTheFloor(1.05)),
        ],
    },
];

pub fn beside_floor(plan: &Plan) -> io::Result<Section> {
    let mut section = Section::new(
        "The floor",
        "The floor is a module of the benchmark's own (benches/floor), loaded into the same server: nothing but a \
         fenced lock through the same API, by the cheapest calls that the server has, without options, queue or \
         retries; the replicating floor also sends the effects that a replica needs. The floor with BLOCK or SESSION \
         ignores these words: what the server takes to read them is below what a module can reach. Pairs as above, \
         pipelined, server CPU, in turn with nothing between, on several servers one after the other. Where the goal \
         is a multiple of the floor's ratio, that ratio comes from the same rounds.",
        &["pair", "to", "effects go to", "CPU ratio", "goal", "µs of server CPU per pair"],
    );
    let all: Vec<&'static Rival> = GROUPS.iter().flat_map(|group| group.ways).copied().collect();
    let (is_redis_7, missing) = {
        let mut server = Subject::start(plan, Consumer::Nobody)?.server;
        let (_, missing) = prepare(&mut server, &all)?;
        (server.info("server")?.version().starts_with("Redis 7."), missing)
    };
    for group in GROUPS {
        let lacks = |way: &&Rival| missing.contains(&way.name);
        if group.ways.iter().any(lacks) {
            for (ours, theirs, _) in group.ratios {
                let absent = "not there".to_owned();
                let names = [ours.name, theirs.name, group.consumer.name()].map(str::to_owned);
                let [ours, theirs, consumer] = names;
                section.row([ours, theirs, consumer, absent, String::new(), String::new()]);
            }
            continue;
        }
        let readings = on_several_servers(plan, || Subject::start(plan, group.consumer), group.ways)?;
        let us = |way: &Rival| {
            let reading = readings.iter().find(|reading| reading.rival.name == way.name);
            &reading.expect("a ratio's ways are in its group").us
        };
        for (ours, theirs, goal) in group.ratios {
            let ratio = Figure::of_ratios(us(ours), us(theirs));
            let limit = match goal {
                Goal::AtMost(limit) => Some(*limit),
                Goal::OfTheFloor(factor) => Some(factor * Figure::of_ratios(us(group.ways[1]), us(theirs)).median),
                Goal::OfScripts(redis_7, later) => Some(if is_redis_7 { *redis_7 } else { *later }),
                Goal::None => None,
            };
            // Differences below hundredths are noise.
            let limit = limit.map(|limit| (limit * 100.0).round() / 100.0);
            let cost = Figure::of(us(ours).clone()).show();
            let shown = limit.map_or(String::new(), |limit| format!("≤ {}", digits(limit)));
            let names = [ours.name, theirs.name, group.consumer.name()];
            let [name, other, consumer] = names.map(str::to_owned);
            section.row([name, other, consumer, ratio.show(), shown, cost]);
            if let Some(limit) = limit {
                let effects = match group.consumer {
                    Consumer::Nobody => String::new(),
                    consumer => format!(", effects to {}", consumer.name()),
                };
                let what = format!("{} to {}, server CPU{effects}", ours.name, theirs.name);
                section.verdicts.push(Verdict::at_most(&what, limit, Some(ratio)));
            }
        }
    }
    Ok(section)
}

/// A server with the module and the floor, and a consumer of its effects.
struct Subject {
    server: Server,
    _replica: Option<Server>,
}

impl Subject {
    fn start(plan: &Plan, consumer: Consumer) -> io::Result<Subject> {
        let mut server = Server::start(&consumer.config(plan.with_floor()))?;
        let replica = consumer.attach(plan, &mut server)?;
        Ok(Subject { server, _replica: replica })
    }
}

impl Borrow<Server> for Subject {
    fn borrow(&self) -> &Server {
        &self.server
    }
}

impl BorrowMut<Server> for Subject {
    fn borrow_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}
