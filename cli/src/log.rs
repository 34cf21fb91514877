//! `redis-lock log`: the lock log of the servers.

use std::time::{Duration, UNIX_EPOCH};

use redis::cmd;
use serde::Serialize;

use crate::args::{ConnectionArgs, LogArgs};
use crate::condition::report_other_nodes;
use crate::duration::human;
use crate::error::Error;
use crate::message::say;
use crate::output::{columns, print, print_json, Format};
use crate::reply::Fields;
use crate::servers::Servers;
use crate::table::{Align, Table};
use crate::text::Text;

/// The fields of LOCK.LOG, and the server of the entry.
#[derive(Serialize)]
struct Entry {
    server: String,
    id: u64,
    time: u64,
    event: String,
    key: Text,
    db: u64,
    owner: Text,
    ms: u64,
    waiters: u64,
    client: u64,
    addr: Text,
}

pub async fn log(args: LogArgs, server: &ConnectionArgs) -> Result<(), Error> {
    let mut entries = Vec::new();
    let mut servers = Servers::connect(server).await?;
    for (server, reply) in servers.query_all(cmd("LOCK.LOG").arg("GET").arg(args.count)).await? {
        for fields in Fields::all_of(reply)? {
            entries.push(Entry::decode(server.clone(), fields)?);
        }
    }
    // The sort is stable, so the entries of each server keep their order.
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.time));
    entries.truncate(args.count.try_into().unwrap_or(usize::MAX));
    match Format::new(args.json) {
        Format::Json => print_json(&entries)?,
        Format::Text if entries.is_empty() => say(format_args!("the log is empty")),
        Format::Text => print(&table(&entries).text(columns()))?,
    }
    report_other_nodes(&servers).await;
    servers.complete()
}

impl Entry {
    fn decode(server: String, mut fields: Fields) -> Result<Entry, Error> {
        Ok(Entry {
            server,
            id: fields.count("id")?,
            time: fields.count("time")?,
            event: fields.string("event")?,
            key: fields.text("key")?,
            db: fields.count("db")?,
            owner: fields.text("owner")?,
            ms: fields.count("ms")?,
            waiters: fields.count("waiters")?,
            client: fields.count("client")?,
            addr: fields.text("addr")?,
        })
    }
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new(&[
        ("TIME", Align::Left),
        ("EVENT", Align::Left),
        ("AFTER", Align::Right),
        ("DB", Align::Right),
        ("KEY", Align::Whole),
        ("OWNER", Align::Name),
        ("WAITERS", Align::Right),
        ("CLIENT", Align::Right),
        ("ADDRESS", Align::Left),
    ]);
    for entry in entries {
        let time = UNIX_EPOCH + Duration::from_millis(entry.time);
        table.row([
            humantime::format_rfc3339_millis(time).to_string(),
            entry.event.clone(),
            human(entry.ms),
            entry.db.to_string(),
            entry.key.to_string(),
            entry.owner.to_string(),
            entry.waiters.to_string(),
            or_dash(entry.client.to_string(), entry.client == 0),
            or_dash(entry.addr.to_string(), entry.addr.0.is_empty()),
        ]);
    }
    table
}

/// A dash for an event without a client.
fn or_dash(cell: String, is_nothing: bool) -> String {
    if is_nothing {
        "-".to_string()
    } else {
        cell
    }
}
