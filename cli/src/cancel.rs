//! `redis-lock cancel`: removes a waiter from the queue of a lock.

use std::os::unix::ffi::OsStrExt;

use redis::cmd;
use serde::Serialize;

use crate::args::{CancelArgs, ConnectionArgs};
use crate::connection::Node;
use crate::error::Error;
use crate::exit_code::Answer;
use crate::message::say;
use crate::output::{print, print_json, Format};
use crate::reply::decode;
use crate::text::Text;

#[derive(Serialize)]
struct Cancelled {
    key: Text,
    token: Text,
    /// True if it waited.
    cancelled: bool,
}

pub async fn cancel(args: CancelArgs, server: &ConnectionArgs) -> Result<Answer, Error> {
    let key = Text(args.lock.as_bytes().to_vec());
    let token = Text(args.token.as_bytes().to_vec());
    let node = Node::of(server, &key).await?;
    let cancelled: bool = decode(node.query(cmd("LOCK.CANCEL").arg(&key.0).arg(&token.0)).await?)?;
    match Format::new(args.json) {
        Format::Json => print_json(&Cancelled { key, token, cancelled })?,
        Format::Text if cancelled => print(&format!("{token} no longer waits for {key}\n"))?,
        Format::Text => say(format_args!("{token} does not wait for {key}{}", args.names.hint(&[&key, &token]))),
    }
    Ok(if cancelled { Answer::Yes } else { Answer::No })
}
