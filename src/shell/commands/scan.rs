//! `LOCK.SCAN cursor [MATCH pattern] [COUNT n]`: the locks of a database, some with each call.
//!
//! The server's own SCAN finds them, by type: so cursor, COUNT, what is told twice and how long a call takes are
//! SCAN's. The module API's own scan (`RedisModule_Scan`) is no way: its cursor cannot be given to a client and taken
//! back.

use command::errors::{self, ErrorReply};
use command::parse::ScanCommand;
use command::reply::{self, ScannedLock};
use lock::key::KeyRef;
use lock::value::time::Now;

use super::arguments::Arguments;
use super::inspect;
use crate::shell::background::gate;
use crate::shell::ffi::call::{self, call_again, Scanned};
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::Reader;
use crate::shell::ffi::string::Str;
use crate::shell::keyspace::datatype;
use crate::shell::state::State;
use crate::shell::turn;

/// `EPERM`: in a cluster, for a key of another node; SCAN has none.
const NOT_MY_SLOT: i32 = 1;

/// Runs the command.
pub fn run(mut ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    let command = ScanCommand::parse(args.bytes)?;
    // Before the state is borrowed: the server deletes expired keys on the way, and the module is told of that.
    let Scanned { cursor, keys } = scan(ctx, &command)?;
    let reader = Reader::of(ctx, c"lock.scan");
    turn::of_inspection(|state, now| {
        let readable = keys.iter().map(|key| key.as_str()).filter(|key| reader.may_read(*key));
        let locks: Vec<_> = readable.filter_map(|key| scanned(ctx, state, now, key)).collect();
        reply::scanned(&mut ctx, &cursor, &locks, now.timestamp());
    })
}

fn scan(ctx: Ctx<'_>, command: &ScanCommand<'_>) -> Result<Scanned, ErrorReply> {
    let mut words = vec![command.cursor, b"TYPE", datatype::NAME.to_bytes()];
    words.extend(command.pattern.into_iter().flat_map(|pattern| [b"MATCH", pattern]));
    words.extend(command.count.into_iter().flat_map(|count| [b"COUNT", count]));
    let mut found = call::scan(ctx, &words);
    if gate::is_in_cluster() && matches!(found, Err(NOT_MY_SLOT)) {
        found = call_again(ctx, || call::scan(ctx, &words));
    }
    found.map_err(|_| errors::NO_SCAN)
}

/// `None`: nobody holds it any more.
fn scanned(ctx: Ctx<'_>, state: &State, now: &Now, name: Str<'_>) -> Option<ScannedLock> {
    let key = inspect::open(ctx, name).ok()??;
    let key_ref = KeyRef { db: ctx.db(), name: name.bytes() };
    let live = inspect::live(state, key_ref, &key, now.timestamp())?;
    Some(ScannedLock {
        key: name.bytes().to_vec(),
        family: key.lock().family()?,
        owner: live.first.owner.clone(),
        holders: live.number,
        until: key.until(),
        waiters: state.manager.queues().of_key(key_ref).map_or(0, |queue| queue.waiters()),
    })
}
