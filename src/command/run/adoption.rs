//! `LOCK.ADOPTION`, and the way back: an adopted lock becomes the string or hash again that its clients expect.

use std::collections::BTreeMap;

use lock::value::claim::{LockType, Origin};
use lock::value::owner::Owner;
use lock::value::time::Deadline;

use super::Arguments;
use crate::adopted::seen::{Assessment, Surroundings};
use crate::adopted::PatternRow;
use crate::catalog::Container;
use crate::errors::ErrorReply;
use crate::host::{CommandHost, ReadLock, VisitedKey};
use crate::parse::{AdoptionCommand, Argument};
use crate::reply::{integer_field, signed, text_field};

pub(super) fn run<'h, H: CommandHost<'h>>(mut host: H, args: Arguments<'h, '_, H::Argument>) -> Result<(), ErrorReply> {
    match AdoptionCommand::parse(args.bytes)? {
        AdoptionCommand::Report => report(host)?,
        AdoptionCommand::Return => {
            let is_returned = return_key(host, args.strings[2])?;
            host.integer(i64::from(is_returned));
        }
    }
    Ok(())
}

/// About this many keys are visited for a report; in a larger database the data types are a sample.
const MOST_VISITED: usize = 100_000;

fn report<'h>(mut host: impl CommandHost<'h>) -> Result<(), ErrorReply> {
    let rows = host.pattern_rows();
    let visited = host.keys_and_types(MOST_VISITED, |key| rows.iter().any(|row| row.matches(key)))?;
    host.array(rows.len());
    for row in &rows {
        let mut keys: BTreeMap<String, u64> = BTreeMap::new();
        for VisitedKey { kind, .. } in visited.iter().filter(|key| row.matches(&key.name)) {
            if let Some(kind) = &kind {
                *keys.entry(kind.clone()).or_default() += 1;
            }
        }
        let nearest = if keys.is_empty() {
            visited.iter().map(|key| &key.name).max_by_key(|key| row.in_common(key))
        } else {
            None
        };
        let nearest = nearest.filter(|key| row.in_common(key) > 0).map_or(&[][..], Vec::as_slice);
        let (matches_all, is_hash, refused_users) = (row.matches_all(), row.is_hash, refused_users(host, row));
        let around = Surroundings { keys, matches_all, is_hash, refused_users };
        let Assessment { fits, reason } = row.seen.assess(&around);
        let (acts, numbers): (Vec<_>, _) = (row.seen.acts().collect(), row.seen.numbers());
        host.map(8 + acts.len() + numbers.len());
        text_field(&mut host, "pattern", &row.text());
        text_field(&mut host, "mode", row.mode.word().as_bytes());
        host.bytes(b"keys");
        host.map(around.keys.len());
        for (kind, count) in &around.keys {
            integer_field(&mut host, kind, signed(*count));
        }
        for (name, count) in acts {
            integer_field(&mut host, name, signed(count));
        }
        host.bytes(b"wrongtype");
        host.map(row.seen.wrong_types().len());
        for (name, count) in row.seen.wrong_types() {
            integer_field(&mut host, name, signed(*count));
        }
        for (name, count) in numbers {
            integer_field(&mut host, name, signed(count));
        }
        host.bytes(b"users");
        host.array(around.refused_users.len());
        for user in &around.refused_users {
            host.bytes(user.as_bytes());
        }
        text_field(&mut host, "nearest", nearest);
        text_field(&mut host, "fits", fits.as_bytes());
        text_field(&mut host, "reason", reason.as_bytes());
    }
    Ok(())
}

/// The users that may set and read such a key now but would get NOPERM once it is adopted.
fn refused_users<'h>(host: impl CommandHost<'h>, row: &PatternRow) -> Vec<String> {
    let key = row.example();
    let commands: Vec<Vec<&[u8]>> = if row.is_hash {
        vec![vec![b"HSET", &key, b"a", b"1"], vec![b"HEXISTS", &key, b"a"]]
    } else {
        vec![vec![b"SET", &key, b"a", b"NX"], vec![b"GET", &key]]
    };
    let containers = [Container::Writes.name(), Container::Reads.name()];
    let contained: Vec<Vec<&[u8]>> = containers
        .iter()
        .zip(&commands)
        .map(|(container, command)| [&[container.as_bytes()][..], command].concat())
        .collect();
    host.refused_users(&commands, &contained)
}

/// An adopted hold, as its clients see it.
struct Adopted {
    token: Owner,
    lock_type: LockType,
    holds: u32,
    until: Deadline,
}

/// Turns an adopted lock into a string or hash with the same expiry. False: the key has no adopted lock.
pub(super) fn return_key<'h, H: CommandHost<'h>>(host: H, key: H::Argument) -> Result<bool, ErrorReply> {
    let now = host.now();
    let adopted = host.read(key, |read| {
        let ReadLock { lock, until } = read.filter(|read| !read.until.has_passed(now.timestamp()))?;
        let hold = lock.exclusive_owner().and_then(|owner| lock.hold(owner.as_bytes(), until))?;
        let (token, holds) = (hold.owner.clone(), hold.holds);
        let lock_type = lock.lock_type().filter(|_| hold.origin == Origin::Adopted)?;
        Some(Adopted { token, lock_type, holds, until })
    });
    // A key with another value is not an adopted lock.
    let Ok(Some(Adopted { token, lock_type, holds, until })) = adopted else { return Ok(false) };
    let (name, token) = (key.bytes(), token.as_bytes());
    let at = until.timestamp().map(|timestamp| timestamp.ms().to_string());
    match lock_type {
        LockType::Reentrant => {
            let holds = holds.to_string();
            // A server that is out of memory rejects this, as it would HSET, and the lock stays as it was.
            host.call(&[b"SET", name, token])?;
            host.call(&[b"DEL", name])?;
            host.call(&[b"HSET", name, token, holds.as_bytes()])?;
            if let Some(at) = at {
                host.call(&[b"PEXPIREAT", name, at.as_bytes()])?;
            }
        }
        // SET overwrites a key of any type.
        _ => match at {
            Some(at) => host.call(&[b"SET", name, token, b"PXAT", at.as_bytes()])?,
            None => host.call(&[b"SET", name, token])?,
        },
    }
    Ok(true)
}
