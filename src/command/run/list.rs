//! The commands that list locks: LOCK.SCAN all of a database, LOCK.TOP the most waited-for ones of all databases.

use lock::key::KeyRef;
use lock::manager::lock_manager::LockManager;
use lock::queue::busiest::{busiest, BusyQueue};
use lock::value::time::Now;

use super::{inspect, Arguments};
use crate::errors::ErrorReply;
use crate::host::{CommandHost, Scanned};
use crate::parse::{self, ScanCommand};
use crate::reply::{self, FirstHolder, ScannedLock, TopLock};

/// `LOCK.SCAN cursor [MATCH pattern] [COUNT n]`: the locks of a database, some with each call. SCAN finds them, by
/// type: so cursor, COUNT, duplicates and the time of a call are SCAN's.
pub(super) fn scan<'h, H: CommandHost<'h>>(
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    let command = ScanCommand::parse(args.bytes)?;
    // Before the turn: the server deletes expired keys on the way, and calls back for each.
    let Scanned { cursor, keys } = host.scan(&command)?;
    let may_read = host.readable(c"lock.scan");
    let db = host.db();
    host.inspect(|manager, _, now| {
        let readable = keys.iter().filter(|key| may_read(key));
        let locks = readable.filter_map(|name| scanned_lock(host, manager, now, KeyRef { db, name }));
        let locks: Vec<_> = locks.collect();
        reply::scanned(&mut host, &cursor, &locks, now.timestamp());
    })
}

/// `None`: the lock has no holder any more.
fn scanned_lock<'h>(
    host: impl CommandHost<'h>,
    manager: &LockManager,
    now: &Now,
    key: KeyRef<'_>,
) -> Option<ScannedLock> {
    let scanned = host.read_key(key, |read| {
        let read = read?;
        let live = inspect::live(manager, key, read, now.timestamp())?;
        Some(ScannedLock {
            key: key.name.to_vec(),
            family: read.lock.family()?,
            owner: live.first.owner.clone(),
            holders: live.number,
            until: read.until,
            waiters: manager.queues().of_key(key).map_or(0, |queue| queue.waiters()),
        })
    });
    scanned.ok()?
}

/// `LOCK.TOP [COUNT n]`
pub(super) fn top<'h, H: CommandHost<'h>>(mut host: H, args: Arguments<'h, '_, H::Argument>) -> Result<(), ErrorReply> {
    let length = parse::top_length(args.bytes)?;
    // A server that has just become a replica may not have sent its waiters away yet.
    let is_primary = host.is_primary();
    host.inspect(|manager, _, now| {
        let found = if is_primary { busiest(manager.queues(), length) } else { Vec::new() };
        let locks: Vec<_> = found.iter().map(|busy| top_lock(host, manager, now, busy)).collect();
        reply::top(&mut host, &locks);
    })
}

fn top_lock<'q, 'h>(host: impl CommandHost<'h>, manager: &LockManager, now: &Now, busy: &BusyQueue<'q>) -> TopLock<'q> {
    let key = busy.queue.key.as_ref();
    let held = host.read_key(key, |read| {
        let read = read?;
        let live = inspect::live(manager, key, read, now.timestamp())?;
        let held_ms = live.first.age_ms(now.timestamp());
        Some((read.lock.family()?, FirstHolder { owner: live.first.owner.clone(), held_ms }))
    });
    let held = held.ok().flatten();
    let (family, holder) = held.map_or((busy.queue.family, None), |(family, holder)| (family, Some(holder)));
    TopLock {
        db: key.db,
        key: key.name,
        family,
        waiters: busy.queue.waiters(),
        longest_ms: now.instant().ms_since(busy.since),
        holder,
    }
}
