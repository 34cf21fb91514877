//! `redis-lock ls`: the locks that are held, from LOCK.SCAN, sorted by key.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use redis::cmd;
use serde::Serialize;

use crate::args::{ConnectionArgs, LsArgs};
use crate::condition::{report_other_nodes, Condition, Info};
use crate::duration::left;
use crate::error::Error;
use crate::message::say;
use crate::output::{columns, print, print_json, Format};
use crate::reply::{decode, Fields};
use crate::servers::Servers;
use crate::table::{Align, Table};
use crate::text::Text;

/// How many keys the server visits per call. Other clients wait no longer than one call takes.
const STEP: u32 = 1000;

/// The fields of LOCK.SCAN, and the server of the lock.
#[derive(Serialize)]
struct Lock {
    server: String,
    key: Text,
    kind: String,
    owner: Text,
    holders: u64,
    ttl: i64,
    waiters: u64,
}

pub async fn ls(args: LsArgs, server: &ConnectionArgs) -> Result<(), Error> {
    let mut locks = BTreeMap::new();
    let mut servers = Servers::connect(server).await?;
    for server in servers.names() {
        match scan(&servers, &server, args.pattern.as_ref()).await {
            Ok(found) => locks.extend(found),
            Err(error) => servers.leave_out(&server, error)?,
        }
    }
    let locks: Vec<Lock> = locks.into_values().collect();
    match Format::new(args.json) {
        Format::Json => print_json(&locks)?,
        Format::Text if locks.is_empty() => say(format_args!("no locks")),
        Format::Text => print(&table(&locks).text(columns()))?,
    }
    report_other_nodes(&servers).await;
    report_limits(&mut servers).await;
    servers.complete()
}

/// The locks of one server by key, because a scan may return a key twice.
async fn scan(servers: &Servers, server: &str, pattern: Option<&OsString>) -> Result<BTreeMap<Text, Lock>, Error> {
    let mut locks = BTreeMap::new();
    let mut cursor = b"0".to_vec();
    loop {
        let mut command = cmd("LOCK.SCAN");
        command.arg(&cursor);
        if let Some(pattern) = pattern {
            command.arg("MATCH").arg(pattern.as_bytes());
        }
        let reply = servers.query_at(server, command.arg("COUNT").arg(STEP)).await?;
        let (next, found): (Vec<u8>, redis::Value) = decode(reply)?;
        for fields in Fields::all_of(found)? {
            let lock = Lock::decode(server.to_string(), fields)?;
            locks.insert(lock.key.clone(), lock);
        }
        cursor = next;
        if cursor == b"0" {
            return Ok(locks);
        }
    }
}

/// Prints why the list may be incomplete.
async fn report_limits(servers: &mut Servers) {
    // A user that may list locks may lack the permission for this.
    let Ok(infos) = Info::of_all(servers).await else { return };
    for (server, info) in infos {
        Condition::of(&info).report(&server);
    }
}

impl Lock {
    fn decode(server: String, mut fields: Fields) -> Result<Lock, Error> {
        Ok(Lock {
            server,
            key: fields.text("key")?,
            kind: fields.string("kind")?,
            owner: fields.text("owner")?,
            holders: fields.count("holders")?,
            ttl: fields.int("ttl")?,
            waiters: fields.count("waiters")?,
        })
    }
}

fn table(locks: &[Lock]) -> Table {
    let mut table = Table::new(&[
        ("KEY", Align::Whole),
        ("KIND", Align::Left),
        ("OWNER", Align::Name),
        ("HOLDERS", Align::Right),
        ("WAITERS", Align::Right),
        ("LEFT", Align::Right),
    ]);
    for lock in locks {
        table.row([
            lock.key.to_string(),
            lock.kind.clone(),
            lock.owner.to_string(),
            lock.holders.to_string(),
            lock.waiters.to_string(),
            left(lock.ttl),
        ]);
    }
    table
}
