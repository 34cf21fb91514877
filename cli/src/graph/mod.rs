//! `redis-lock graph`: the wait-for graph. Reads the locks with the most waiters (LOCK.TOP), and the first holders
//! (LOCK.INFO) and waiters (LOCK.WAITERS) of each. The number of commands is bounded, and each has a COUNT, however
//! many requests wait. The output says what is omitted.

mod cycle;
mod dot;
mod model;
mod read;
mod tree;

use std::os::unix::ffi::OsStrExt;
use std::time::UNIX_EPOCH;

use serde::Serialize;

use crate::args::{ConnectionArgs, GraphArgs};
use crate::error::Error;
use crate::exit_code::Answer;
use crate::message::say;
use crate::output::{print, print_json};
use crate::servers::{Missing, Servers};
use crate::text::Text;
use crate::top::sample::{Sample, Server};
use crate::top::summary;
use cycle::Cycle;
use model::{Graph, Lock};
use read::{Omitted, Reader};

#[derive(Serialize)]
struct Json<'a> {
    /// Milliseconds since the epoch.
    time: u64,
    servers: &'a [Server],
    /// The servers whose locks are missing.
    missing: &'a [Missing],
    locks: Vec<&'a Lock>,
    cycles: &'a [Cycle],
    left_out: Omitted,
}

pub async fn graph(args: GraphArgs, connection: &ConnectionArgs) -> Result<Answer, Error> {
    let mut servers = Servers::connect(connection).await?;
    let mut sample = Sample::take(&mut servers, args.locks).await?;
    for line in summary::other_nodes(&sample) {
        say(format_args!("{line}"));
    }
    let mut reader = Reader::new(&mut servers, connection.db()?, args.waiters);
    let mut locks = reader.locks_of(&sample).await?;
    let key = args.lock.as_ref().map(|key| Text(key.as_bytes().to_vec()));
    if let Some(key) = &key {
        if !locks.iter().any(|lock| reader.is(lock, key)) {
            locks.extend(reader.lock(key).await?);
        }
    }
    let mut graph = Graph::new(locks);
    if let Some(key) = &key {
        let Some(center) = graph.locks().position(|lock| reader.is(lock, key)) else {
            // A server that is missing may have it.
            servers.complete()?;
            if args.json {
                print_json(&())?;
            } else {
                say(format_args!("{key} is not held and has no waiters{}", args.names.hint(&[key])));
            }
            return Ok(Answer::No);
        };
        graph.keep_connected_to(center);
    }
    let cycles = reader.confirmed(cycle::cycles(&graph)).await;
    let left_out = reader.left_out(&sample, args.locks, &graph);
    let db = reader.db;
    // More servers may have become unreachable since the sample.
    sample.missing = servers.missing().to_vec();
    if args.json {
        let since_epoch = sample.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        print_json(&Json {
            time: since_epoch.as_millis().try_into().unwrap_or(u64::MAX),
            servers: &sample.servers,
            missing: &sample.missing,
            locks: graph.shown().collect(),
            cycles: &cycles,
            left_out,
        })?;
    } else if args.dot {
        print(&dot::dot(&graph, &cycles, &left_out, db))?;
    } else {
        print(&tree::tree(&graph, &cycles, &left_out, &sample, db))?;
    }
    servers.complete()?;
    Ok(Answer::Yes)
}
