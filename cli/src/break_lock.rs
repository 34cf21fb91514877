//! `redis-lock break`: force-releases a lock.

use std::os::unix::ffi::OsStrExt;

use redis::cmd;
use serde::Serialize;

use crate::args::{BreakArgs, ConnectionArgs};
use crate::connection::Node;
use crate::error::Error;
use crate::exit_code::Answer;
use crate::message::say;
use crate::output::{print, print_json, Format};
use crate::reply::decode;
use crate::text::Text;

#[derive(Serialize)]
struct Broken {
    key: Text,
    /// How many owners lost all their holds.
    broken: u64,
}

pub async fn break_lock(args: BreakArgs, server: &ConnectionArgs) -> Result<Answer, Error> {
    let key = Text(args.lock.as_bytes().to_vec());
    let owner = args.owner.map(|owner| Text(owner.as_bytes().to_vec()));
    let mut command = cmd("LOCK.BREAK");
    command.arg(&key.0);
    if let Some(owner) = &owner {
        command.arg("OWNER").arg(&owner.0);
    }
    let broken: u64 = decode(Node::of(server, &key).await?.query(&command).await?)?;
    match (Format::new(args.json), broken) {
        (Format::Json, _) => print_json(&Broken { key, broken })?,
        (Format::Text, 0) => match owner {
            Some(owner) => say(format_args!("{owner} does not hold {key}{}", args.names.hint(&[&key, &owner]))),
            None => say(format_args!("{key} is not held{}", args.names.hint(&[&key]))),
        },
        (Format::Text, 1) => print(&format!("1 holder of {key} was removed\n"))?,
        (Format::Text, _) => print(&format!("{broken} holders of {key} were removed\n"))?,
    }
    Ok(if broken > 0 { Answer::Yes } else { Answer::No })
}
