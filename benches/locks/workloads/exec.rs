//! The cost of a command that runs only while a lock is held: LOCK.EXEC, a script that compares, WATCH. Measured in
//! instructions of the server's main thread by valgrind.

use std::io;

use support::{Connection, Pipeline, Reply};

use super::callgrind::Counter;
use super::instructions::{quotient, thousands};
use super::plan::Plan;
use crate::section::{Section, Verdict};
use crate::server::Server;
use crate::stats::Figure;

/// The number of held locks, and of commands in one pipeline.
const KEYS: usize = 50;

/// Runs of the pipeline in one count.
const RUNS: usize = 4;

/// The holder of every lock, as long as a UUID.
const TOKEN: &str = "0615c124-43c5-4ca6-bf89-a6986fb23e07";

const COMPARE_AND_SET: &str = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.error_reply('NOTHELD') end \
                               return redis.call('set', KEYS[2], ARGV[2])";

const HELD_AND_SET: &str = "if not redis.call('LOCK.HELD', KEYS[1], ARGV[1]) then return redis.error_reply('NOTHELD') \
                            end return redis.call('set', KEYS[2], ARGV[2])";

/// A way to write only while the lock is held.
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

/// The target for the ratio of LOCK.EXEC to the script that compares.
const TO_SCRIPT: f64 = 0.5;

/// The key of ways that store the token in a string.
fn string_of(lock: &str) -> String {
    format!("string:{lock}")
}

pub fn only_while_holding(plan: &Plan) -> io::Result<Section> {
    let mut section = Section::new(
        "A command only while holding: instructions",
        &format!(
            "{KEYS} locks are held, as locks of the module and as strings with the token; one connection writes {KEYS} \
             other keys in pipelines. Instructions are counted as above. In practice a client that uses WATCH has to \
             wait for the reply of GET before it continues, so a pipeline shows it at its best."
        ),
        &["implementation", "LOCK.EXEC to it", "to SET", "instructions", "commands", "round trips"],
    );
    if plan.module.is_none() {
        section.missing(&["LOCK.EXEC"]);
        return Ok(section);
    }
    let counts = count(plan)?;
    for (way, count) in WAYS.iter().zip(counts) {
        let mut pipeline = Pipeline::default();
        (way.push)(&mut pipeline, "", "", "");
        section.row([
            way.name.to_owned(),
            quotient(Some(counts[EXEC]), Some(count)),
            quotient(Some(count), Some(counts[BARE])),
            thousands(count),
            pipeline.commands.to_string(),
            way.round_trips.to_string(),
        ]);
    }
    let ratio = Figure::of(vec![counts[EXEC] / counts[LUA]]);
    section.verdicts = vec![Verdict::at_most("LOCK.EXEC to the script that compares", TO_SCRIPT, Some(ratio))];
    Ok(section)
}

/// Instructions for one command of each way.
fn count(plan: &Plan) -> io::Result<[f64; WAYS.len()]> {
    let mut counter = Counter::start(&plan.builder.clone().config("save \"\""))?;
    let pipelines = prepare(&mut counter.server, &mut counter.client)?;
    let mut counts = [0.0; WAYS.len()];
    for (pipeline, count) in pipelines.iter().zip(&mut counts) {
        *count = counter.count(KEYS * RUNS, |client| (0..RUNS).try_for_each(|_| client.run(pipeline)))?;
    }
    Ok(counts)
}

/// Acquires the locks, and builds each way's commands for them.
fn prepare(server: &mut Server, client: &mut Connection) -> io::Result<Vec<Pipeline>> {
    let names: Vec<(String, String)> =
        (0..KEYS).map(|index| (format!("lock:{index}"), format!("data:{index}"))).collect();
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
