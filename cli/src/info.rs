//! `redis-lock info`: the holders of a lock.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use redis::{cmd, Value};
use serde::Serialize;

use crate::args::{ConnectionArgs, InfoArgs};
use crate::condition::Condition;
use crate::connection::Node;
use crate::duration::{human, left};
use crate::error::Error;
use crate::exit_code::Answer;
use crate::message::say;
use crate::output::{columns, print, print_json, Format};
use crate::reply::Fields;
use crate::table::{Align, Table};
use crate::text::Text;

/// The fields of LOCK.INFO.
#[derive(Serialize)]
pub struct Lock {
    pub key: Text,
    pub kind: String,
    pub limit: u64,
    pub fence: u64,
    pub ttl: i64,
    pub holders: Vec<Holder>,
    pub waiters: u64,
    pub holding: u64,
}

#[derive(Serialize)]
pub struct Holder {
    pub owner: Text,
    pub mode: String,
    pub holds: u64,
    pub fence: u64,
    pub ttl: i64,
    pub lease: i64,
    pub age: u64,
    pub session: u64,
    /// Only for a semaphore; -1: this permit has no slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<i64>,
    /// Only for a hold granted by `lock.adopt`: the address and name of the connection, empty if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addr: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Text>,
}

pub async fn info(args: InfoArgs, server: &ConnectionArgs) -> Result<Answer, Error> {
    let key = Text(args.lock.as_bytes().to_vec());
    let node = Node::of(server, &key).await?;
    let reply = node.query(cmd("LOCK.INFO").arg(&key.0).arg("COUNT").arg(args.count)).await?;
    let format = Format::new(args.json);
    if reply == Value::Nil {
        match format {
            Format::Json => print_json(&())?,
            Format::Text => say(format_args!("{key} is not held{}", args.names.hint(&[&key]))),
        }
        return Ok(Answer::No);
    }
    let lock = Lock::decode(key, Fields::of(reply)?)?;
    match format {
        Format::Json => print_json(&lock)?,
        Format::Text => print(&lock.describe())?,
    }
    if lock.holding == 0 {
        // The lock is free but has waiters, and the server may be the reason.
        Condition::at(&node).await.iter().for_each(|condition| condition.report(&node.name));
    }
    Ok(Answer::Yes)
}

impl Lock {
    pub fn decode(key: Text, mut fields: Fields) -> Result<Lock, Error> {
        Ok(Lock {
            key,
            kind: fields.string("kind")?,
            limit: fields.count("limit")?,
            fence: fields.count("fence")?,
            ttl: fields.int("ttl")?,
            holders: fields.maps("holders")?.into_iter().map(Holder::decode).collect::<Result<_, _>>()?,
            waiters: fields.count("waiters")?,
            holding: fields.count("holding")?,
        })
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing into a string cannot fail.
            let _ = writeln!(text, "{name:<8} {value}");
        };
        line("key", self.key.to_string());
        line("kind", self.kind.clone());
        if self.kind == "semaphore" {
            line("limit", self.limit.to_string());
        }
        line("fence", self.fence.to_string());
        line("left", left(self.ttl));
        line("holders", self.holding.to_string());
        line("waiters", self.waiters.to_string());
        // A hold granted by lock.adopt has no session, so the operator needs this client.
        if let Some(Holder { addr: Some(addr), client: Some(client), .. }) = self.holders.first() {
            if !addr.0.is_empty() {
                line("client", format!("{addr} {client}").trim_end().to_string());
            }
        }
        if self.holders.is_empty() {
            return text;
        }
        let mut table = Table::new(&[
            ("OWNER", Align::Whole),
            ("MODE", Align::Left),
            ("HOLDS", Align::Right),
            ("FENCE", Align::Right),
            ("HELD", Align::Right),
            ("LEFT", Align::Right),
            ("LEASE", Align::Right),
            ("SESSION", Align::Right),
        ]);
        for holder in &self.holders {
            table.row(holder.cells());
        }
        text + "\n" + &table.text(columns())
    }
}

impl Holder {
    fn decode(mut fields: Fields) -> Result<Holder, Error> {
        Ok(Holder {
            owner: fields.text("owner")?,
            mode: fields.string("mode")?,
            holds: fields.count("holds")?,
            fence: fields.count("fence")?,
            ttl: fields.int("ttl")?,
            lease: fields.int("lease")?,
            age: fields.count("age")?,
            session: fields.count("session")?,
            slot: fields.optional_int("slot")?,
            addr: fields.text_if_given("addr")?,
            client: fields.text_if_given("client")?,
        })
    }

    fn cells(&self) -> [String; 8] {
        let session = if self.session == 0 { "-".to_string() } else { self.session.to_string() };
        [
            self.owner.to_string(),
            match self.slot {
                Some(slot @ 0..) => format!("slot {slot}"),
                _ => self.mode.clone(),
            },
            self.holds.to_string(),
            self.fence.to_string(),
            human(self.age),
            left(self.ttl),
            u64::try_from(self.lease).map_or_else(|_| "none".to_string(), human),
            session,
        ]
    }
}
