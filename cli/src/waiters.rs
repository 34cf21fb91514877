//! `redis-lock waiters`: the queue of a lock.

use std::os::unix::ffi::OsStrExt;

use redis::cmd;
use serde::Serialize;

use crate::args::{ConnectionArgs, WaitersArgs};
use crate::connection::Node;
use crate::duration::human;
use crate::error::Error;
use crate::message::say;
use crate::output::{columns, print, print_json, Format};
use crate::reply::Fields;
use crate::table::{Align, Table};
use crate::text::Text;

/// The fields of LOCK.WAITERS.
#[derive(Serialize)]
pub struct Waiter {
    pub owner: Text,
    pub mode: String,
    pub permits: u64,
    pub client: u64,
    pub addr: Text,
    pub waited: u64,
    pub remaining: i64,
    /// 1: it may end without a grant, when a release has done its work. None: an older module does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coalesce: Option<i64>,
}

pub async fn waiters(args: WaitersArgs, server: &ConnectionArgs) -> Result<(), Error> {
    let key = Text(args.lock.as_bytes().to_vec());
    let node = Node::of(server, &key).await?;
    let reply = node.query(cmd("LOCK.WAITERS").arg(&key.0).arg("COUNT").arg(args.count)).await?;
    let waiters: Vec<Waiter> = Fields::all_of(reply)?.into_iter().map(Waiter::decode).collect::<Result<_, _>>()?;
    match Format::new(args.json) {
        Format::Json => print_json(&waiters)?,
        Format::Text if waiters.is_empty() => say(format_args!("{key} has no waiters{}", args.names.hint(&[&key]))),
        Format::Text => print(&table(&waiters).text(columns()))?,
    }
    Ok(())
}

impl Waiter {
    pub fn decode(mut fields: Fields) -> Result<Waiter, Error> {
        Ok(Waiter {
            owner: fields.text("owner")?,
            mode: fields.string("mode")?,
            permits: fields.count("permits")?,
            client: fields.count("client")?,
            addr: fields.text("addr")?,
            waited: fields.count("waited")?,
            remaining: fields.int("remaining")?,
            coalesce: fields.optional_int("coalesce")?,
        })
    }

    /// How long the request will continue to wait; -1: no limit.
    pub fn remaining(&self) -> String {
        u64::try_from(self.remaining).map_or_else(|_| "no limit".to_string(), human)
    }
}

fn table(waiters: &[Waiter]) -> Table {
    let mut table = Table::new(&[
        ("OWNER", Align::Whole),
        ("MODE", Align::Left),
        ("PERMITS", Align::Right),
        ("WAITED", Align::Right),
        ("REMAINING", Align::Right),
        ("CLIENT", Align::Right),
        ("ADDRESS", Align::Left),
    ]);
    for waiter in waiters {
        table.row([
            waiter.owner.to_string(),
            waiter.mode.clone(),
            waiter.permits.to_string(),
            human(waiter.waited),
            waiter.remaining(),
            waiter.client.to_string(),
            waiter.addr.to_string(),
        ]);
    }
    table
}
