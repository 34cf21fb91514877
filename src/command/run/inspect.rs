//! Commands that change no lock, even if a lease has expired. LOCK.HELD, LOCK.INFO and LOCK.WAITERS read one key;
//! LOCK.SCAN and LOCK.TOP list keys; LOCK.LOG reads or resets the log; LOCK.HELP lists the commands.

use lock::engine::lock_manager::LockManager;
use lock::key::{ClientId, KeyRef};
use lock::queue::busiest::{busiest, BusyQueue};
use lock::queue::request::QueuedRequest;
use lock::value::claim::{Claim, InvalidClaim, LockType, Origin};
use lock::value::outcome::{Hold, KeyError, LiveHolders};
use lock::value::owner::Owner;
use lock::value::rebuild::LockTypeAndLimit;
use lock::value::time::{Deadline, Instant, Now, Timestamp};

use super::Arguments;
use crate::catalog::{Command, CATALOG};
use crate::errors::{self, ErrorReply};
use crate::host::{CommandHost, GrantedTo, ReadLock, Scanned, Waiting};
use crate::lock_log::LogEntry;
use crate::parse::{self, Argument, ListLength, LogCommand, ScanCommand};
use crate::reply::{client_number, count, integer_field, signed, text_field, ReplyWriter};

/// The ttl that LOCK.INFO shows for a free key with queued requests.
const FREE_TTL: i64 = -2;

/// `LOCK.HELD key token`
pub(super) fn held<'h, H: CommandHost<'h>>(
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    with_hold(host, args.strings[1], args.bytes[2], |hold, now| write_hold(&mut host, hold, now))
}

/// `[fence, holds, ttl]`, with the holds of both modes added up; nil if the token does not hold the lock.
fn write_hold(out: &mut impl ReplyWriter, hold: Option<&Hold<'_>>, now: Timestamp) {
    let Some(hold) = hold else { return out.null() };
    out.array(3);
    out.integer(hold.fence.signed());
    out.integer(i64::from(hold.holds) + i64::from(hold.reads));
    out.integer(hold.until.ttl_ms(now));
}

/// Whether the token holds the lock. The key is closed afterwards.
///
/// # Errors
/// WRONGTYPE.
pub fn is_held<'h, H: CommandHost<'h>>(host: H, key: H::Argument, token: &[u8]) -> Result<bool, ErrorReply> {
    with_hold(host, key, token, |hold, _| hold.is_some())
}

/// Calls back with the token's hold, if it has one. Each holder counts by its own deadline.
fn with_hold<'h, H: CommandHost<'h>, R>(
    host: H,
    key: H::Argument,
    token: &[u8],
    look: impl FnOnce(Option<&Hold<'_>>, Timestamp) -> R,
) -> Result<R, ErrorReply> {
    let now = host.now();
    let name = KeyRef { db: host.db(), name: key.bytes() };
    let has_ended = host.has_waiters_or_sessions()
        && host.inspect(|manager, _, _| has_session_ended(host, manager, name, token))?;
    let (result, is_held) = host.read(key, |read| {
        let hold = read.and_then(|ReadLock { lock, until }| lock.hold(token, until));
        let hold = hold.filter(|hold| !has_ended && !hold.until.has_passed(now.timestamp()));
        (look(hold.as_ref(), now.timestamp()), hold.is_some())
    })?;
    if is_held && host.has_waiters_or_sessions() {
        // An owner asks here after a lost reply. Once the reply says that it holds the lock, the grant must not be
        // revoked, or two owners would believe that they hold it. Only the token distinguishes the owner from another
        // client.
        host.update(|manager| manager.confirm_grant(name.db, &[name.name], token));
    }
    Ok(result)
}

pub(super) struct CountedHolder {
    /// Its owner: the token that clients see.
    pub owner: Owner,
    /// Its hold count.
    pub holds: u32,
}

/// The holder of an exclusive lock. `None`: the key is free, or the hold has ended.
///
/// # Errors
/// The key holds something else.
pub(super) fn holder_of<'h, H: CommandHost<'h>>(
    host: H,
    key: H::Argument,
    lock_type: LockType,
) -> Result<Option<CountedHolder>, KeyError> {
    let now = host.now();
    let holder = host.read(key, |read| {
        let Some(ReadLock { lock, .. }) = read.filter(|read| !read.until.has_passed(now.timestamp())) else {
            return Ok(None);
        };
        match lock.lock_type() {
            Some(other) if other != lock_type => Err(KeyError::Invalid(InvalidClaim::WrongLockType(other))),
            _ => Ok(lock.exclusive_owner().map(|owner| CountedHolder {
                owner: owner.clone(),
                holds: lock.exclusive_holds(owner.as_bytes()).unwrap_or_default(),
            })),
        }
    });
    let Some(holder) = holder.map_err(|_| KeyError::WrongType)?? else { return Ok(None) };
    if !host.has_waiters_or_sessions() {
        return Ok(Some(holder));
    }
    let (db, token) = (host.db(), holder.owner.as_bytes());
    let name = KeyRef { db, name: key.bytes() };
    let inspected = host.inspect(|manager, _, _| has_session_ended(host, manager, name, token));
    if inspected.unwrap_or(false) {
        return Ok(None);
    }
    // As in LOCK.HELD: a client that has seen its token believes that it holds the lock.
    host.update(|manager| manager.confirm_grant(db, &[name.name], token));
    Ok(Some(holder))
}

/// Whether the hold's connection has closed, or closes in this event-loop iteration, before its disconnect event.
fn has_session_ended<'h>(host: impl CommandHost<'h>, manager: &LockManager, key: KeyRef<'_>, owner: &[u8]) -> bool {
    let client = manager.bindings().client_of(key, owner);
    manager.has_ended(key, owner) || client.is_some_and(|client| host.is_closing(client))
}

/// `LOCK.INFO key [COUNT n]`: a map, or nil for a key without holders and waiters.
pub(super) fn info<'h, H: CommandHost<'h>>(
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    let length = ListLength::parse(args.bytes)?;
    let name = KeyRef { db: host.db(), name: args.bytes[1] };
    host.inspect(|manager, _, now| {
        let now = now.timestamp();
        host.read(args.strings[1], |read| {
            let waiters = manager.waiters_for(name);
            let mut holds = read.map_or_else(Vec::new, |ReadLock { lock, until }| lock.holds(until));
            holds.retain(is_live(manager, name, now));
            let held = read.filter(|_| !holds.is_empty());
            let held =
                held.and_then(|ReadLock { lock, until }| Some((lock.lock_type_and_limit()?, lock.fence()?, until)));
            let queue = manager.queues().of_key(name).filter(|_| waiters > 0);
            let (lock_type_and_limit, fence, ttl) = match (held, queue) {
                (Some((kind, fence, until)), _) => (Some(kind), fence.signed(), until.ttl_ms(now)),
                (None, Some(queue)) => (LockTypeAndLimit::of(queue.lock_type, queue.limit), 0, FREE_TTL),
                (None, None) => (None, 0, FREE_TTL),
            };
            let Some(LockTypeAndLimit { lock_type, limit }) = lock_type_and_limit else { return host.null() };
            let session = |hold: &Hold<'_>| manager.bindings().client_of(name, hold.owner.as_bytes());
            let granted_to = |hold: &Hold<'_>| {
                (hold.origin == Origin::Adopted).then(|| host.granted_to(hold.fence).unwrap_or_default())
            };
            let row = |hold| rows(hold, lock_type, session(hold), granted_to(hold));
            let rows: Vec<_> = length.of(&holds).flat_map(row).collect();
            host.map(7);
            text_field(&mut host, "kind", lock_type.name().as_bytes());
            integer_field(&mut host, "limit", i64::from(limit));
            integer_field(&mut host, "fence", fence);
            integer_field(&mut host, "ttl", ttl);
            host.bytes(b"holders");
            host.array(rows.len());
            for row in &rows {
                row.write(&mut host, now);
            }
            integer_field(&mut host, "waiters", count(waiters));
            integer_field(&mut host, "holding", count(holds.len()));
        })
    })?
}

/// A hold in one mode.
struct HolderRow<'a> {
    hold: &'a Hold<'a>,
    mode: &'static str,
    holds: u32,
    /// For a semaphore; -1: no slot.
    slot: Option<i64>,
    /// The connection that the hold is bound to.
    session: Option<ClientId>,
    /// For an adopted hold: the connection that was granted it.
    granted_to: Option<GrantedTo>,
}

/// A row for each mode: an owner may hold both.
fn rows<'a>(
    hold: &'a Hold<'a>,
    lock_type: LockType,
    session: Option<ClientId>,
    granted_to: Option<GrantedTo>,
) -> impl Iterator<Item = HolderRow<'a>> {
    let mode = match lock_type {
        LockType::Mutex | LockType::Reentrant => "exclusive",
        LockType::ReadWrite => "write",
        LockType::Semaphore => "permits",
    };
    let slot = (lock_type == LockType::Semaphore).then(|| hold.slot.map_or(-1, |slot| i64::from(slot.number())));
    // A reentrant mutex may be held 0 times, when its owner has counted down without releasing it.
    let is_shown = move |(of, holds): &(&'static str, u32)| *holds > 0 || *of == "exclusive";
    let modes = [(mode, hold.holds), ("read", hold.reads)].into_iter().filter(is_shown);
    modes.map(move |(mode, holds)| HolderRow { hold, mode, holds, slot, session, granted_to: granted_to.clone() })
}

impl HolderRow<'_> {
    fn write(&self, out: &mut impl ReplyWriter, now: Timestamp) {
        let HolderRow { hold, mode, holds, slot, session, granted_to } = self;
        out.map(8 + usize::from(slot.is_some()) + if granted_to.is_some() { 2 } else { 0 });
        text_field(out, "owner", hold.owner.as_bytes());
        text_field(out, "mode", mode.as_bytes());
        integer_field(out, "holds", i64::from(*holds));
        integer_field(out, "fence", hold.fence.signed());
        integer_field(out, "ttl", hold.until.ttl_ms(now));
        integer_field(out, "lease", hold.lease.as_ms());
        integer_field(out, "age", signed(hold.age_ms(now)));
        integer_field(out, "session", client_number(*session));
        if let Some(slot) = slot {
            integer_field(out, "slot", *slot);
        }
        if let Some(GrantedTo { addr, name }) = granted_to {
            text_field(out, "addr", addr.as_bytes());
            text_field(out, "client", name);
        }
    }
}

/// Whether a hold counts: its lease has not expired, and its connection is open.
fn is_live<'a>(manager: &'a LockManager, name: KeyRef<'a>, now: Timestamp) -> impl Fn(&Hold<'_>) -> bool + 'a {
    move |hold| !hold.until.has_passed(now) && !manager.has_ended(name, hold.owner.as_bytes())
}

/// `LOCK.WAITERS key [COUNT n]`: an array of maps, in queue order.
pub(super) fn waiters<'h, H: CommandHost<'h>>(
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    let length = ListLength::parse(args.bytes)?;
    let name = KeyRef { db: host.db(), name: args.bytes[1] };
    host.inspect(|manager, clients, now| {
        host.read(args.strings[1], |_| ())?;
        let queues = manager.queues();
        let ids = queues.of_key(name).into_iter().flat_map(|queue| queue.present()).map(|(_, id)| id);
        let ids = ids.filter(|id| !manager.is_being_removed(*id));
        let waiting: Vec<_> = length.of(ids.filter_map(|id| Some((id, queues.request(id)?)))).collect();
        host.array(waiting.len());
        for (id, request) in waiting {
            write_waiter(&mut host, request, clients.client_of(id), now.instant());
        }
        Ok(())
    })?
}

/// `client`: the waiting connection and its address.
fn write_waiter(out: &mut impl ReplyWriter, request: &QueuedRequest, client: Option<(ClientId, String)>, now: Instant) {
    let permits = match request.claim {
        Claim::Permits { count, .. } => count.number(),
        Claim::Mutex
        | Claim::AdoptedMutex
        | Claim::Reentrant(_)
        | Claim::AdoptedReentrant(_)
        | Claim::ReadWrite(..)
        | Claim::Slot { .. } => 1,
    };
    out.map(8);
    text_field(out, "owner", request.owner.as_bytes());
    text_field(out, "mode", request.claim.mode_name().as_bytes());
    integer_field(out, "permits", i64::from(permits));
    write_client(out, client.as_ref());
    integer_field(out, "waited", signed(now.ms_since(request.since)));
    integer_field(out, "remaining", request.until.map_or(-1, |until| signed(until.ms_since(now))));
    integer_field(out, "coalesce", i64::from(request.coalesces));
}

/// `LOCK.SCAN cursor [MATCH pattern] [COUNT n]`: the next cursor, and a map for each lock found. SCAN finds them by
/// data type, so cursor, COUNT, duplicates and the time of a call are those of SCAN.
pub(super) fn scan<'h, H: CommandHost<'h>>(
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    let command = ScanCommand::parse(args.bytes)?;
    // Before the engine is borrowed: the server deletes expired keys during the scan and calls back for each.
    let Scanned { cursor, keys } = host.scan(&command)?;
    let may_read = host.readable(c"lock.scan");
    let db = host.db();
    host.inspect(|manager, _, now| {
        let readable = keys.iter().filter(|key| may_read(key));
        let locks = readable.filter_map(|name| scanned_lock(host, manager, now, KeyRef { db, name }));
        let locks: Vec<_> = locks.collect();
        host.array(2);
        host.bytes(&cursor);
        host.array(locks.len());
        for lock in &locks {
            lock.write(&mut host, now.timestamp());
        }
    })
}

struct ScannedLock<'k> {
    key: &'k [u8],
    lock_type: LockType,
    /// The first holder: the owner with the smallest fencing token.
    owner: Owner,
    holders: usize,
    /// The key's own deadline.
    until: Deadline,
    /// The number of waiters, without reserved positions.
    waiters: usize,
}

/// `None` if the lock no longer has a holder.
fn scanned_lock<'k, 'h>(
    host: impl CommandHost<'h>,
    manager: &LockManager,
    now: &Now,
    key: KeyRef<'k>,
) -> Option<ScannedLock<'k>> {
    let scanned = host.read_key(key, |read| {
        let read = read?;
        let live = live(manager, key, read, now.timestamp())?;
        Some(ScannedLock {
            key: key.name,
            lock_type: read.lock.lock_type()?,
            owner: live.first.owner.clone(),
            holders: live.number,
            until: read.until,
            waiters: manager.queues().of_key(key).map_or(0, |queue| queue.waiters()),
        })
    });
    scanned.ok()?
}

impl ScannedLock<'_> {
    fn write(&self, out: &mut impl ReplyWriter, now: Timestamp) {
        out.map(6);
        text_field(out, "key", self.key);
        text_field(out, "kind", self.lock_type.name().as_bytes());
        text_field(out, "owner", self.owner.as_bytes());
        integer_field(out, "holders", count(self.holders));
        integer_field(out, "ttl", self.until.ttl_ms(now));
        integer_field(out, "waiters", count(self.waiters));
    }
}

/// `LOCK.TOP [COUNT n]`: an array of maps, for the locks with the most waiters in all databases.
pub(super) fn top<'h, H: CommandHost<'h>>(mut host: H, args: Arguments<'h, '_, H::Argument>) -> Result<(), ErrorReply> {
    let length = parse::top_length(args.bytes)?;
    // A server that has just become a replica may not have dismissed its waiters yet.
    let is_primary = host.is_primary();
    host.inspect(|manager, _, now| {
        let found = if is_primary { busiest(manager.queues(), length) } else { Vec::new() };
        // Read all keys before the reply starts, because the server may push messages to this client during the reads.
        let read: Vec<_> = found.iter().map(|busy| first_holder(host, manager, now, busy)).collect();
        host.array(found.len());
        for (busy, first) in found.iter().zip(read) {
            write_busy(&mut host, now, busy, first);
        }
    })
}

/// The type of the lock, and the holder with the smallest fencing token: its owner, and for how many milliseconds it
/// has held.
fn first_holder<'h>(
    host: impl CommandHost<'h>,
    manager: &LockManager,
    now: &Now,
    busy: &BusyQueue<'_>,
) -> Option<(LockType, Owner, u64)> {
    let key = busy.queue.key.as_ref();
    let first = host.read_key(key, |read| {
        let read = read?;
        let live = live(manager, key, read, now.timestamp())?;
        Some((read.lock.lock_type()?, live.first.owner.clone(), live.first.age_ms(now.timestamp())))
    });
    first.ok().flatten()
}

/// If the key is free, the type is that of the wait queue.
fn write_busy(out: &mut impl ReplyWriter, now: &Now, busy: &BusyQueue<'_>, first: Option<(LockType, Owner, u64)>) {
    let lock_type = first.as_ref().map_or(busy.queue.lock_type, |(lock_type, ..)| *lock_type);
    out.map(7);
    integer_field(out, "db", i64::from(busy.queue.key.db));
    text_field(out, "key", busy.queue.key.as_ref().name);
    text_field(out, "kind", lock_type.name().as_bytes());
    integer_field(out, "waiters", count(busy.queue.waiters()));
    integer_field(out, "longest", signed(now.instant().ms_since(busy.since)));
    match &first {
        Some((_, owner, _)) => text_field(out, "holder", owner.as_bytes()),
        None => {
            out.bytes(b"holder");
            out.null();
        }
    }
    integer_field(out, "held", first.map_or(-1, |(.., held_ms)| signed(held_ms)));
}

/// The holders of a key that count; `None` if there are none.
fn live<'k>(
    manager: &LockManager,
    name: KeyRef<'_>,
    ReadLock { lock, until }: ReadLock<'k>,
    now: Timestamp,
) -> Option<LiveHolders<'k>> {
    lock.live(until, is_live(manager, name, now))
}

/// `LOCK.LOG GET [n] | LEN | RESET`
pub(super) fn log<'h, H: CommandHost<'h>>(mut host: H, args: Arguments<'h, '_, H::Argument>) -> Result<(), ErrorReply> {
    let command = LogCommand::parse(args.bytes)?;
    host.with_log(|log| match command {
        LogCommand::Get(length) => {
            let entries: Vec<_> = length.of(log.entries()).collect();
            host.array(entries.len());
            for entry in entries {
                write_entry(&mut host, entry);
            }
        }
        LogCommand::Len => host.integer(count(log.entries().len())),
        LogCommand::Reset => {
            log.reset();
            host.status("OK");
        }
    })
}

fn write_entry(out: &mut impl ReplyWriter, entry: &LogEntry) {
    let LogEntry { id, time, event, db, key, owner, ms, waiters, client } = entry;
    out.map(10);
    integer_field(out, "id", signed(*id));
    integer_field(out, "time", signed(time.ms()));
    text_field(out, "event", event.word().as_bytes());
    text_field(out, "key", key);
    integer_field(out, "db", i64::from(*db));
    text_field(out, "owner", owner);
    integer_field(out, "ms", signed(*ms));
    integer_field(out, "waiters", count(*waiters));
    write_client(out, client.as_ref());
}

/// The fields `client` and `addr`; 0 and an empty string if the connection is unknown.
fn write_client(out: &mut impl ReplyWriter, client: Option<&(ClientId, String)>) {
    integer_field(out, "client", client_number(client.map(|(client, _)| *client)));
    text_field(out, "addr", client.map_or("", |(_, address)| address).as_bytes());
}

/// `LOCK.HELP [command]`: like the HELP subcommands of Redis, a headline, then the syntax of each command and,
/// indented, its summary. A command may be named by its prefix or verb alone.
pub(super) fn help(out: &mut impl ReplyWriter, names: &[&[u8]]) -> Result<(), ErrorReply> {
    let name = match names {
        [] => None,
        [name] => Some(*name),
        _ => return Err(errors::wrong_arity("LOCK.HELP")),
    };
    let is_meant = |command: &&Command| {
        let parts = std::iter::once(command.name).chain(command.name.split('.'));
        name.is_none_or(|name| parts.into_iter().any(|part| part.as_bytes().eq_ignore_ascii_case(name)))
    };
    let commands: Vec<_> = CATALOG.iter().filter(is_meant).collect();
    if commands.is_empty() {
        return Err(errors::no_help(name.unwrap_or_default()));
    }
    out.array(1 + 2 * commands.len());
    out.status("The redis-lock commands are:");
    for command in commands {
        out.status(&syntax(command));
        out.status(&format!("    {}", command.summary));
    }
    Ok(())
}

fn syntax(command: &Command) -> String {
    let args = command.args.iter().map(|arg| format!(" {arg}"));
    std::iter::once(command.name.to_string()).chain(args).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_log::LogEvent;
    use crate::reply::recorder::{record, Written};
    use lock::value::fence::Fence;
    use lock::value::holders::Slot;
    use lock::value::time::Lease;

    const FENCE: u64 = 995_000_999;

    fn now() -> Timestamp {
        Timestamp::from_ms(1_000_000)
    }

    fn owner() -> Owner {
        Owner::new(b"t").unwrap()
    }

    /// Granted 5 seconds ago, with 20 of 25 seconds left.
    fn hold(owner: &Owner, holds: u32, reads: u32) -> Hold<'_> {
        let (lease, until) = (Lease::from_ms(25_000).unwrap(), Deadline::At(Timestamp::from_ms(1_020_000)));
        Hold {
            owner,
            fence: Fence::new(FENCE).unwrap(),
            lease,
            until,
            holds,
            reads,
            slot: None,
            origin: Origin::Native,
        }
    }

    fn row(mode: &str, holds: i64, [ttl, lease]: [i64; 2], session: i64, slot: Option<i64>) -> Vec<Written> {
        let mut fields: Vec<Written> = vec!["owner".into(), "t".into(), "mode".into(), mode.into()];
        let integers = [("holds", holds), ("fence", FENCE as i64), ("ttl", ttl), ("lease", lease), ("age", 5_000)];
        let last = [Some(("session", session)), slot.map(|slot| ("slot", slot))];
        let integers = integers.into_iter().chain(last.into_iter().flatten());
        fields.extend(integers.flat_map(|(name, integer)| [name.into(), integer.into()]));
        [vec![Written::Map(fields.len() / 2)], fields].concat()
    }

    fn written(hold: &Hold<'_>, lock_type: LockType, session: Option<ClientId>) -> Vec<Written> {
        record(|out| rows(hold, lock_type, session, None).for_each(|row| row.write(out, now())))
    }

    #[test]
    fn held_returns_fence_holds_and_ttl() {
        let owner = owner();
        let cases = [(hold(&owner, 1, 0), 1), (hold(&owner, 2, 3), 5), (hold(&owner, 0, 1), 1)];
        for (hold, holds) in cases {
            let expected = [Written::Array(3), 995_000_999.into(), holds.into(), 20_000.into()];
            assert_eq!(record(|out| write_hold(out, Some(&hold), now())), expected);
        }
        let no_deadline = Hold { until: Deadline::Never, ..hold(&owner, 1, 0) };
        let expected = [Written::Array(3), 995_000_999.into(), 1.into(), (-1).into()];
        assert_eq!(record(|out| write_hold(out, Some(&no_deadline), now())), expected);
        let most = hold(&owner, u32::MAX, u32::MAX);
        assert_eq!(record(|out| write_hold(out, Some(&most), now()))[2], Written::Integer(8_589_934_590));
    }

    #[test]
    fn held_is_nil_if_nothing_is_held() {
        assert_eq!(record(|out| write_hold(out, None, now())), [Written::Null]);
    }

    #[test]
    fn info_shows_the_mode_of_each_lock_type() {
        let owner = owner();
        let cases = [
            (LockType::Mutex, "exclusive", None),
            (LockType::Reentrant, "exclusive", None),
            (LockType::ReadWrite, "write", None),
            (LockType::Semaphore, "permits", Some(-1)),
        ];
        for (lock_type, mode, slot) in cases {
            let expected = row(mode, 2, [20_000, 25_000], 9, slot);
            assert_eq!(written(&hold(&owner, 2, 0), lock_type, Some(ClientId(9))), expected, "{lock_type:?}");
        }
    }

    #[test]
    fn info_shows_the_slot_of_a_semaphores_holder() {
        let owner = owner();
        let hold = Hold { slot: Slot::new(4), ..hold(&owner, 1, 0) };
        assert_eq!(written(&hold, LockType::Semaphore, None), row("permits", 1, [20_000, 25_000], 0, Some(4)));
    }

    #[test]
    fn info_has_a_row_for_each_mode_of_a_holder() {
        let owner = owner();
        let read = |holds| row("read", holds, [20_000, 25_000], 0, None);
        let both = [row("write", 2, [20_000, 25_000], 0, None), read(3)].concat();
        assert_eq!(written(&hold(&owner, 2, 3), LockType::ReadWrite, None), both);
        assert_eq!(written(&hold(&owner, 0, 1), LockType::ReadWrite, None), read(1));
    }

    #[test]
    fn info_shows_no_deadline_as_minus_one() {
        let owner = owner();
        let hold = Hold { lease: Lease::Persist, until: Deadline::Never, ..hold(&owner, 1, 0) };
        assert_eq!(written(&hold, LockType::Mutex, None), row("exclusive", 1, [-1, -1], 0, None));
    }

    #[test]
    fn an_entry_is_a_map_in_the_documented_order() {
        let entry = LogEntry {
            id: 7,
            time: Timestamp::from_ms(1_000_000),
            event: LogEvent::Hold,
            db: 3,
            key: b"k".as_slice().into(),
            owner: b"a\xff".as_slice().into(),
            ms: 250,
            waiters: 2,
            client: Some((ClientId(9), "127.0.0.1:5".into())),
        };
        let other = LogEntry { id: 6, event: LogEvent::Broken, client: None, ..entry.clone() };
        let row = |id: i64, event: &str, client: i64, address: &str| -> Vec<Written> {
            let id_and_time = ["id".into(), id.into(), "time".into(), 1_000_000.into()];
            let what = ["event".into(), event.into(), "key".into(), "k".into(), "db".into(), 3.into()];
            let owner_and_ms = ["owner".into(), Written::Bytes(b"a\xff".into()), "ms".into(), 250.into()];
            let rest = ["waiters".into(), 2.into(), "client".into(), client.into(), "addr".into(), address.into()];
            [&[Written::Map(10)][..], &id_and_time, &what, &owner_and_ms, &rest].concat()
        };
        let entries = [entry, other];
        let expected = [row(7, "hold", 9, "127.0.0.1:5"), row(6, "broken", 0, "")].concat();
        assert_eq!(record(|out| entries.iter().for_each(|entry| write_entry(out, entry))), expected);
    }

    #[test]
    fn every_command_has_its_syntax_and_its_summary() {
        let written = record(|out| help(out, &[]).unwrap());
        assert_eq!(written[0], Written::Array(written.len() - 1));
        let lines: Vec<&str> = written[1..]
            .iter()
            .map(|line| match line {
                Written::Status(line) => line.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        for command in CATALOG {
            let line_index = lines.iter().position(|line| line.split(' ').next() == Some(command.name));
            let line_index = line_index.unwrap_or_else(|| panic!("no line of {}", command.name));
            assert_eq!(lines[line_index + 1], format!("    {}", command.summary));
        }
        assert!(
            lines.contains(&"RLOCK.RELEASE key owner [HOLDS holds]") && lines.contains(&"LOCK.HELP [command]"),
            "{lines:?}"
        );
    }

    #[test]
    fn help_finds_a_command_by_its_full_name_or_a_part() {
        let names = |name: &str| -> Vec<String> {
            let written = record(|out| help(out, &[name.as_bytes()]).unwrap());
            let lines = written.into_iter().filter_map(|line| match line {
                Written::Status(line) if !line.starts_with(' ') => line.split(' ').next().map(String::from),
                _ => None,
            });
            lines.skip(1).collect()
        };
        assert_eq!(names("lock.acquire"), ["LOCK.ACQUIRE"]);
        let all = ["LOCK.RENEW", "RLOCK.RENEW", "RWLOCK.RENEW", "SEM.RENEW", "MLOCK.RENEW"];
        assert_eq!(names("RENEW"), all);
        assert_eq!(names("Sem"), ["SEM.ACQUIRE", "SEM.RELEASE", "SEM.RENEW"]);
        for (words, error) in [
            (&[&b"me"[..]][..], "ERR unknown command 'me'. Try LOCK.HELP."),
            (&[b"sem", b"renew"], "ERR wrong number of arguments for 'lock.help' command"),
        ] {
            record(|out| assert_eq!(help(out, words).unwrap_err().as_str(), error));
        }
    }
}
