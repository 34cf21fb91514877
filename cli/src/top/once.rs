//! `redis-lock top --once`: prints the contents of the screen once.

use std::time::UNIX_EPOCH;

use serde::Serialize;

use super::sample::{Lock, Rates, Sample, Server};
use super::summary;
use crate::duration::human;
use crate::error::Error;
use crate::output::{columns, print, print_json, Format};
use crate::servers::Missing;
use crate::table::{Align, Table};

#[derive(Serialize)]
struct Top<'a> {
    /// Milliseconds since the epoch.
    time: u64,
    servers: &'a [Server],
    /// The servers whose locks are missing.
    missing: &'a [Missing],
    per_second: Rates,
    locks: &'a [Lock],
}

pub fn print_once(sample: &Sample, rates: Rates, format: Format) -> Result<(), Error> {
    let since_epoch = sample.time.duration_since(UNIX_EPOCH).unwrap_or_default();
    match format {
        Format::Json => print_json(&Top {
            time: since_epoch.as_millis().try_into().unwrap_or(u64::MAX),
            servers: &sample.servers,
            missing: &sample.missing,
            per_second: rates,
            locks: &sample.locks,
        }),
        Format::Text => {
            let mut lines = vec![summary::servers(sample)];
            lines.extend(summary::lines(sample, Some(rates)));
            lines.extend(summary::warnings(sample));
            let table = if sample.locks.is_empty() { "no waiters\n".into() } else { table(sample).text(columns()) };
            print(&format!("{}\n\n{table}", lines.join("\n")))
        }
    }
}

fn table(sample: &Sample) -> Table {
    let mut table = Table::new(&[
        ("WAITERS", Align::Right),
        ("OLDEST", Align::Right),
        ("HELD", Align::Right),
        ("KIND", Align::Left),
        ("DB", Align::Right),
        ("KEY", Align::Whole),
        ("HOLDER", Align::Name),
    ]);
    for lock in &sample.locks {
        table.row([
            lock.waiters.to_string(),
            human(lock.longest),
            held(lock),
            lock.kind.clone(),
            lock.db.to_string(),
            lock.key.to_string(),
            holder(lock),
        ]);
    }
    table
}

/// How long the first holder has held the lock.
pub fn held(lock: &Lock) -> String {
    u64::try_from(lock.held).map_or_else(|_| "-".to_string(), human)
}

/// The first holder.
pub fn holder(lock: &Lock) -> String {
    lock.holder.as_ref().map_or_else(|| "free".to_string(), ToString::to_string)
}
