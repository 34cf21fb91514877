//! (6) What one pair writes to a replica and to the append-only file.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use support::Connection;

use super::plan::Plan;
use crate::rivals::{self, prepare, Names, Pair, Rival};
use crate::section::Section;
use crate::server::Server;
use crate::stats::digits;

const PAIRS: usize = 5000;

pub fn per_pair(plan: &Plan) -> io::Result<Section> {
    const WAYS: &[&Rival] = &[
        &rivals::SET_DEL,
        &rivals::LOCK,
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
         12 bytes and owners of 36. The offset counts what replicas are sent, the size what the file grows by.",
        &["way", "replicated, to SET NX PX + DEL", "replicated bytes", "AOF bytes"],
    );
    let mut primary = Server::start(&plan.builder.clone().config("appendonly yes"))?;
    let _replica = primary.replica(&plan.builder)?;
    let (here, missing) = prepare(&mut primary, WAYS)?;
    let mut client = Connection::connect(primary.port())?;
    let mut floor = None;
    for (rival, scripts) in &here {
        let (replicated, appended) = bytes(&mut primary, &mut client, rival, scripts)?;
        let floor = *floor.get_or_insert(replicated);
        section.row([rival.name.to_owned(), digits(replicated / floor), digits(replicated), digits(appended)]);
    }
    section.missing(&missing);
    Ok(section)
}

fn bytes(
    server: &mut Server,
    client: &mut Connection,
    rival: &Rival,
    scripts: &Rc<[String]>,
) -> io::Result<(f64, f64)> {
    let before = written(server)?;
    let mut pair = Pair::default();
    for index in 0..PAIRS {
        (rival.pair)(&mut pair, &Names::numbered(index, scripts));
    }
    for pipeline in [&pair.acquire, &pair.release] {
        client.run(pipeline).map_err(|error| io::Error::other(format!("{}: {error}", rival.name)))?;
    }
    let after = written(server)?;
    Ok(((after.0 - before.0) / PAIRS as f64, (after.1 - before.1) / PAIRS as f64))
}

/// Bytes replicated and bytes in the append-only file, once nothing waits to be written to it.
fn written(server: &mut Server) -> io::Result<(f64, f64)> {
    while server.info_number("persistence", "aof_buffer_length")? > 0.0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let offset = server.info_number("replication", "master_repl_offset")?;
    Ok((offset, server.info_number("persistence", "aof_current_size")?))
}
