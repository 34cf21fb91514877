//! The commands that inspect one key: LOCK.HELD, LOCK.INFO, LOCK.WAITERS. They change nothing, even if a lease has
//! ended.

use lock::key::{KeyRef, RequestId};
use lock::manager::lock_manager::LockManager;
use lock::queue::request::QueuedRequest;
use lock::value::outcome::{Hold, LiveHolders};
use lock::value::rebuild::FamilyAndLimit;
use lock::value::time::Timestamp;

use super::Arguments;
use crate::errors::ErrorReply;
use crate::host::{CommandHost, ReadLock, Waiting};
use crate::parse::{Argument, ListLength};
use crate::reply::{self, HeldInfo, HolderInfo, LockInfo, WaiterInfo};

/// `LOCK.HELD key token`
pub(super) fn held<'h, H: CommandHost<'h>>(
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    with_hold(host, args.strings[1], args.bytes[2], |hold, now| reply::held(&mut host, hold, now))
}

/// Whether the token holds the lock. The key is not open afterwards.
///
/// # Errors
/// WRONGTYPE.
pub fn is_held<'h, H: CommandHost<'h>>(host: H, key: H::Argument, token: &[u8]) -> Result<bool, ErrorReply> {
    with_hold(host, key, token, |hold, _| hold.is_some())
}

/// Passes on how the token holds the lock, if it does: each holder by its own deadline.
fn with_hold<'h, H: CommandHost<'h>, R>(
    host: H,
    key: H::Argument,
    token: &[u8],
    tell: impl FnOnce(Option<&Hold<'_>>, Timestamp) -> R,
) -> Result<R, ErrorReply> {
    let now = host.now();
    let name = KeyRef { db: host.db(), name: key.bytes() };
    let has_ended = match host.has_more_than_keys() {
        true => host.inspect(|manager, _, _| has_session_ended(host, manager, name, token))?,
        false => false,
    };
    let (told, is_held) = host.read(key, |read| {
        let hold = read.and_then(|ReadLock { lock, until }| lock.hold(token, until));
        let hold = hold.filter(|hold| !has_ended && !hold.until.is_over(now.timestamp()));
        (tell(hold.as_ref(), now.timestamp()), hold.is_some())
    })?;
    if is_held && host.has_more_than_keys() {
        // An owner asks here after a lost reply. Once it has read that it holds the lock, the grant is not taken back:
        // two owners would believe that they hold it. The token is all that tells an owner from another client.
        host.note(|manager| manager.confirm_grant(name.db, &[name.name], token));
    }
    Ok(told)
}

/// Whether the connection that the hold is bound to has ended, or ends with this turn, before the event of its end.
fn has_session_ended<'h>(host: impl CommandHost<'h>, manager: &LockManager, key: KeyRef<'_>, owner: &[u8]) -> bool {
    let client = manager.bindings().client_of(key, owner);
    manager.has_ended(key, owner) || client.is_some_and(|client| host.is_closing(client))
}

/// `LOCK.INFO key [COUNT n]`
pub(super) fn info<'h, H: CommandHost<'h>>(
    mut host: H,
    args: Arguments<'h, '_, H::Argument>,
) -> Result<(), ErrorReply> {
    let length = ListLength::parse(args.bytes)?;
    let name = KeyRef { db: host.db(), name: args.bytes[1] };
    host.inspect(|manager, _, now| {
        host.read(args.strings[1], |read| {
            let waiters = manager.waiters_for(name);
            let queue = manager.queues().of_key(name).filter(|_| waiters > 0);
            let held = read.and_then(|read| held_info(manager, name, read, now.timestamp(), length));
            let family_and_limit = match (&held, queue) {
                (Some((kind, _)), _) => Some(*kind),
                (None, Some(queue)) => FamilyAndLimit::of(queue.family, queue.limit),
                (None, None) => None,
            };
            let held = held.map(|(_, held)| held);
            let info = family_and_limit.map(|family_and_limit| LockInfo { family_and_limit, held, waiters });
            reply::info(&mut host, info.as_ref(), now.timestamp());
        })
    })?
}

fn held_info<'k>(
    manager: &LockManager,
    name: KeyRef<'_>,
    ReadLock { lock, until }: ReadLock<'k>,
    now: Timestamp,
    length: ListLength,
) -> Option<(FamilyAndLimit, HeldInfo<'k>)> {
    let mut holds = lock.holds(until);
    holds.retain(is_live(manager, name, now));
    let holding = holds.len();
    let holders: Vec<_> = length
        .of(holds)
        .map(|hold| {
            let session = manager.bindings().client_of(name, hold.owner.as_bytes());
            HolderInfo { hold, session }
        })
        .collect();
    if holders.is_empty() {
        return None;
    }
    Some((lock.family_and_limit()?, HeldInfo { fence: lock.fence()?, until, holders, holding }))
}

/// Whether a hold counts: its lease is not over, and its connection has not ended.
fn is_live<'a>(manager: &'a LockManager, name: KeyRef<'a>, now: Timestamp) -> impl Fn(&Hold<'_>) -> bool + 'a {
    move |hold| !hold.until.is_over(now) && !manager.has_ended(name, hold.owner.as_bytes())
}

/// The holders of a key that count; `None`: there is none.
pub(super) fn live<'k>(
    manager: &LockManager,
    name: KeyRef<'_>,
    ReadLock { lock, until }: ReadLock<'k>,
    now: Timestamp,
) -> Option<LiveHolders<'k>> {
    lock.live(until, is_live(manager, name, now))
}

/// `LOCK.WAITERS key [COUNT n]`
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
        let ids = ids.filter(|id| !manager.is_ending(*id));
        let waiting: Vec<_> = length.of(ids.filter_map(|id| Some((id, queues.request(id)?)))).collect();
        let infos = waiting.into_iter().map(|(id, request)| waiter_info(clients, id, request));
        reply::waiters(&mut host, infos, now.instant());
        Ok(())
    })?
}

fn waiter_info<'a>(clients: &impl Waiting, id: RequestId, request: &'a QueuedRequest) -> WaiterInfo<'a> {
    let (client, address) =
        clients.client_of(id).map_or_else(Default::default, |(client, address)| (Some(client), address));
    WaiterInfo {
        owner: request.owner.as_ref(),
        claim: request.claim,
        client,
        address,
        since: request.since,
        until: request.until,
        coalesces: request.coalesces,
    }
}
