//! `LOCK.TOP [COUNT n]`: the most waited-for locks of all databases.

use command::errors::ErrorReply;
use command::parse;
use command::reply::{self, FirstHolder, TopLock};
use lock::queue::busiest::{busiest, BusyQueue};
use lock::value::claim::Family;
use lock::value::time::Now;
use redis_module::raw;

use super::arguments::Arguments;
use super::inspect;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::string::OwnedStr;
use crate::shell::state::State;
use crate::shell::turn;

/// Runs the command.
pub fn run(mut ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    let length = parse::top_length(args.bytes)?;
    // A server that has just become a replica may not have sent its waiters away yet.
    let is_primary = ctx.has_flag(raw::REDISMODULE_CTX_FLAGS_MASTER);
    turn::of_inspection(|state, now| {
        let found = if is_primary { busiest(state.manager.queues(), length) } else { Vec::new() };
        let locks: Vec<_> = found.iter().map(|busy| top_lock(ctx, state, now, busy)).collect();
        reply::top(&mut ctx, &locks);
    })
}

fn top_lock<'a>(ctx: Ctx<'_>, state: &State, now: &Now, busy: &BusyQueue<'a>) -> TopLock<'a> {
    let key = &busy.queue.key;
    let held = ctx.in_db(key.db, || first_holder(ctx, state, now, busy));
    let (family, holder) = held.map_or((busy.queue.family, None), |(family, holder)| (family, Some(holder)));
    TopLock {
        db: key.db,
        key: &key.name,
        family,
        waiters: busy.queue.waiters(),
        longest_ms: now.instant().ms_since(busy.since),
        holder,
    }
}

/// `None`: the key is free, or no lock. Its database is selected.
fn first_holder(ctx: Ctx<'_>, state: &State, now: &Now, busy: &BusyQueue<'_>) -> Option<(Family, FirstHolder)> {
    let name = OwnedStr::new(&busy.queue.key.name);
    let key = inspect::open(ctx, name.as_str()).ok()??;
    let live = inspect::live(state, busy.queue.key.as_ref(), &key, now.timestamp())?;
    let owner = live.first.owner.clone();
    Some((key.lock().family()?, FirstHolder { owner, held_ms: live.first.age_ms(now.timestamp()) }))
}
