//! (13) The cost of a command that runs only while a lock is held: LOCK.EXEC, a script that compares, WATCH.

use std::io;

use support::{Connection, Pipeline, Reply};

use super::instructions::{thousands, Counter};
use super::plan::Plan;
use crate::batch::KEYS;
use crate::section::{Section, Verdict};
use crate::server::Server;
use crate::stats::Figure;

/// How often a way's commands run between two readings of the CPU.
const RUNS: usize = 4;

/// Commands of one count of instructions, in one pipeline.
const COUNTED: usize = 50;

/// The holder of every lock, as long as a UUID.
const TOKEN: &str = "0615c124-43c5-4ca6-bf89-a6986fb23e07";

const COMPARE_AND_SET: &str = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.error_reply('NOTHELD') end \
                               return redis.call('set', KEYS[2], ARGV[2])";

const HELD_AND_SET: &str = "if not redis.call('LOCK.HELD', KEYS[1], ARGV[1]) then return redis.error_reply('NOTHELD') \
                            end return redis.call('set', KEYS[2], ARGV[2])";

/// A way to write only while holding.
struct Way {
    name: &'static str,
    /// How many round trips a client makes.
    round_trips: usize,
    script: Option<&'static str>,
    /// The lock's key, the data's key, the script's digest.
    push: fn(&mut Pipeline, &str, &str, &str),
}

const BARE: usize = 0;
const EXEC: usize = 1;
const LUA: usize = 2;
const WATCH: usize = 4;

const WAYS: [Way; 5] = [
    Way {
        name: "SET, without a check of the holder",
        round_trips: 1,
        script: None,
        push: |pipeline, _, data, _| pipeline.push(&["SET", data, "value"]),
    },
    Way {
        name: "LOCK.EXEC … SET",
        round_trips: 1,
        script: None,
        push: |pipeline, lock, data, _| pipeline.push(&["LOCK.EXEC", lock, TOKEN, "SET", data, "value"]),
    },
    Way {
        name: "EVALSHA: GET, compare, SET",
        round_trips: 1,
        script: Some(COMPARE_AND_SET),
        push: |pipeline, lock, data, digest| {
            pipeline.push(&["EVALSHA", digest, "2", &string_of(lock), data, TOKEN, "value"]);
        },
    },
    Way {
        name: "EVALSHA: LOCK.HELD, SET",
        round_trips: 1,
        script: Some(HELD_AND_SET),
        push: |pipeline, lock, data, digest| pipeline.push(&["EVALSHA", digest, "2", lock, data, TOKEN, "value"]),
    },
    Way {
        name: "WATCH, GET, MULTI, SET, EXEC",
        round_trips: 2,
        script: None,
        push: |pipeline, lock, data, _| {
            let lock = string_of(lock);
            for command in [&["WATCH", &lock][..], &["GET", &lock], &["MULTI"], &["SET", data, "value"], &["EXEC"]] {
                pipeline.push(command);
            }
        },
    },
];

/// The way to compare with, and the bound on the ratio.
const TARGETS: &[(&str, usize, f64)] =
    &[("LOCK.EXEC to the script that compares", LUA, 0.5), ("LOCK.EXEC to WATCH, GET, MULTI, EXEC", WATCH, 0.75)];

/// The string key of ways that keep the token in a string.
fn string_of(lock: &str) -> String {
    format!("string:{lock}")
}

pub fn only_while_holding(plan: &Plan) -> io::Result<Section> {
    let mut section = Section::new(
        "A command only while holding",
        &format!(
            "{KEYS} locks are held, as locks of the module and as strings with the token; one connection writes \
             {KEYS} other keys, in pipelines. The ways run in turn on the same server, on several servers; ratios are \
             taken within the round. A client that uses WATCH waits for GET's reply before it goes on: a pipeline is \
             kinder to it than life. Instructions are of the main thread, counted by valgrind, where it is there."
        ),
        &["way", "CPU to SET", "µs of server CPU", "instructions to SET", "instructions", "commands", "round trips"],
    );
    if plan.module.is_none() {
        section.missing(&["LOCK.EXEC"]);
        return Ok(section);
    }
    let mut us = [const { Vec::new() }; WAYS.len()];
    for _ in 0..plan.scale.pick(5, 2) {
        measure(plan, &mut us)?;
    }
    let counts = if super::instructions::has_valgrind() { Some(count(plan)?) } else { None };
    for (place, way) in WAYS.iter().enumerate() {
        let mut pipeline = Pipeline::default();
        (way.push)(&mut pipeline, "", "", "");
        let ratio = Figure::of_ratios(&us[place], &us[BARE]).show();
        let counted = counts.map(|counts| (format!("{:.2}", counts[place] / counts[BARE]), thousands(counts[place])));
        let (to_bare, instructions) = counted.unwrap_or_default();
        let spent = Figure::of(us[place].clone()).show();
        let commands = pipeline.commands.to_string();
        section.row([way.name.to_owned(), ratio, spent, to_bare, instructions, commands, way.round_trips.to_string()]);
    }
    for (what, other, limit) in TARGETS {
        let ratio = Figure::of_ratios(&us[EXEC], &us[*other]);
        section.verdicts.push(Verdict::at_most(&format!("{what}, server CPU"), *limit, Some(ratio)));
        if let Some(counts) = counts {
            let ratio = Figure::of(vec![counts[EXEC] / counts[*other]]);
            section.verdicts.push(Verdict::at_most(&format!("{what}, instructions"), *limit, Some(ratio)));
        }
    }
    Ok(section)
}

/// CPU for one command of each way in µs, a reading for each round.
fn measure(plan: &Plan, us: &mut [Vec<f64>; WAYS.len()]) -> io::Result<()> {
    let mut server = Server::start(&plan.builder.clone().config("save \"\""))?;
    let mut client = Connection::connect(server.port())?;
    let pipelines = prepare(&mut server, &mut client, KEYS)?;
    for round in 0..=plan.scale.pick(25, 12) {
        for turn in 0..WAYS.len() {
            let which = (turn + round) % WAYS.len();
            let before = server.cpu_us()?;
            for _ in 0..RUNS {
                client.run(&pipelines[which])?;
            }
            let spent = server.cpu_us()? - before;
            // The first round warms up.
            if round > 0 {
                us[which].push(spent / (RUNS * KEYS) as f64);
            }
        }
    }
    Ok(())
}

/// Instructions for one command of each way.
fn count(plan: &Plan) -> io::Result<[f64; WAYS.len()]> {
    let mut counter = Counter::start(&plan.builder.clone().config("save \"\""))?;
    let pipelines = prepare(&mut counter.server, &mut counter.client, COUNTED)?;
    let mut counts = [0.0; WAYS.len()];
    for (pipeline, count) in pipelines.iter().zip(&mut counts) {
        *count = counter.count(COUNTED * RUNS, |client| (0..RUNS).try_for_each(|_| client.run(pipeline)))?;
    }
    Ok(counts)
}

/// Takes so many locks; each way's commands for them.
fn prepare(server: &mut Server, client: &mut Connection, keys: usize) -> io::Result<Vec<Pipeline>> {
    let names: Vec<(String, String)> =
        (0..keys).map(|index| (format!("lock:{index}"), format!("data:{index}"))).collect();
    let mut taken = Pipeline::default();
    for (lock, data) in names.iter() {
        taken.push(&["LOCK.ACQUIRE", lock, TOKEN, "PERSIST"]);
        taken.push(&["SET", &string_of(lock), TOKEN]);
        taken.push(&["SET", data, "value"]);
    }
    client.run(&taken)?;
    let of_way = |way: &Way| {
        let digest = match way.script {
            None => String::new(),
            Some(script) => match server.must(&["SCRIPT", "LOAD", script])? {
                Reply::Bulk(digest) => String::from_utf8_lossy(&digest).into_owned(),
                other => return Err(io::Error::other(format!("SCRIPT LOAD answered {other:?}"))),
            },
        };
        let mut pipeline = Pipeline::default();
        names.iter().for_each(|(lock, data)| (way.push)(&mut pipeline, lock, data, &digest));
        Ok(pipeline)
    };
    WAYS.iter().map(of_way).collect()
}
