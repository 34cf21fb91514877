//! (6) The bytes that one pair writes to a replica and to the append-only file.

use std::io;
use std::time::Duration;

use support::Connection;

use super::consumer::Consumer;
use super::plan::Plan;
use crate::rivals::{self, prepare, Names, Pair, Rival};
use crate::section::Section;
use crate::server::Server;
use crate::stats::digits;

const PAIRS: usize = 5000;

pub fn per_pair(plan: &Plan) -> io::Result<Section> {
    const WAYS: &[&Rival] = &[
        &rivals::SET_DEL,
        &rivals::RFLOOR,
        &rivals::LOCK,
        &rivals::LOCK_SESSION,
        &rivals::RLOCK,
        &rivals::RWLOCK_READ,
        &rivals::RWLOCK_WRITE,
        &rivals::SEM,
        &rivals::MLOCK,
        &rivals::SET_LUA,
        &rivals::SETNX_WATCH,
        &rivals::COUNTER,
        &rivals::LUA_MUTEX,
        &rivals::LUA_HASH,
        &rivals::TWO_KEYS,
        &rivals::DELIFEQ,
        &rivals::DELEX,
        &rivals::PYTHON_REDIS_LOCK,
        &rivals::REDISSON,
        &rivals::REDISSON_FAIR,
    ];
    let mut section = Section::new(
        "Replication and AOF bytes per pair",
        "A server with a replica in sync and the append-only file switched on; 5,000 uncontended pairs each, keys of \
         12 bytes and owners of 36. The offset counts the bytes sent to replicas, the size the growth of the file, \
         and commands what the replica has run.",
        &["way", "replicated, to SET NX PX + DEL", "replicated bytes", "AOF bytes", "replicated commands"],
    );
    let builder = plan.with_floor();
    let mut primary = Server::start(&builder.config("appendonly yes"))?;
    let Some(mut replica) = Consumer::Replica.attach(plan, &mut primary)? else {
        return Err(io::Error::other("no replica"));
    };
    let (here, missing) = prepare(&mut primary, WAYS)?;
    let mut client = Connection::connect(primary.port())?;
    let mut floor = None;
    for (rival, scripts) in &here {
        let before = Written::by(&mut primary, &mut replica)?;
        let mut pair = Pair::default();
        for index in 0..PAIRS {
            (rival.pair)(&mut pair, &Names::numbered(index, scripts));
        }
        for pipeline in [&pair.acquire, &pair.release] {
            client.run(pipeline).map_err(|error| io::Error::other(format!("{}: {error}", rival.name)))?;
        }
        let after = Written::by(&mut primary, &mut replica)?;
        let each = |before: f64, after: f64| (after - before) / PAIRS as f64;
        let replicated = each(before.replicated, after.replicated);
        let floor = *floor.get_or_insert(replicated);
        section.row([
            rival.name.to_owned(),
            digits(replicated / floor),
            digits(replicated),
            digits(each(before.appended, after.appended)),
            digits(each(before.commands, after.commands)),
        ]);
    }
    section.missing(&missing);
    Ok(section)
}

/// The bytes written since the start.
struct Written {
    /// Bytes that replicas are sent.
    replicated: f64,
    /// Bytes in the append-only file.
    appended: f64,
    /// Commands that the replica has run.
    commands: f64,
}

impl Written {
    /// Waits until nothing is left to be written or run.
    fn by(primary: &mut Server, replica: &mut Server) -> io::Result<Written> {
        while primary.info_number("persistence", "aof_buffer_length")? > 0.0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let replicated = primary.info_number("replication", "master_repl_offset")?;
        // Each look is a command of its own, so there are few.
        while replica.info_number("replication", "slave_repl_offset")? < replicated {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(Written {
            replicated,
            appended: primary.info_number("persistence", "aof_current_size")?,
            commands: replica.info_number("stats", "total_commands_processed")?,
        })
    }
}
