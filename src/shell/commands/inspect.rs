//! The commands that only inspect: LOCK.HELD, LOCK.INFO, LOCK.WAITERS. They change nothing,
//! even if a lease has ended.

use command::errors::{self, ErrorReply};
use command::parse::ListLength;
use command::reply::{self, HeldInfo, HolderInfo, LockInfo, WaiterInfo};
use lock::key::{KeyRef, RequestId};
use lock::manager::lock_manager::LockManager;
use lock::queue::request::QueuedRequest;
use lock::value::outcome::Hold;
use lock::value::outcome::LiveHolders;
use lock::value::rebuild::FamilyAndLimit;
use lock::value::time::{Deadline, Timestamp};

use super::arguments::Arguments;
use crate::shell::background::events;
use crate::shell::ffi::context::Ctx;
use crate::shell::ffi::server::{client_address, is_closing};
use crate::shell::ffi::string::Str;
use crate::shell::keyspace::lock_key::{ReadContent, ReadKey};
use crate::shell::state::State;
use crate::shell::{clock, turn};

/// The key, opened for reading; `None`: nothing is there, or it has expired.
pub(super) fn open<'c>(ctx: Ctx<'c>, key: Str<'_>) -> Result<Option<ReadKey<'c>>, ErrorReply> {
    // SAFETY: the command that runs opens no other key.
    match unsafe { ReadKey::open(ctx, key) } {
        ReadContent::Lock(key) => Ok(Some(key)),
        ReadContent::Free => Ok(None),
        ReadContent::Foreign => Err(errors::WRONG_TYPE),
    }
}

/// `LOCK.HELD key token`
pub fn held(mut ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    with_hold(ctx, args.strings[1], args.bytes[2], |hold, now| reply::held(&mut ctx, hold, now))
}

/// Whether the token holds the lock. Nobody has the key open afterwards.
pub fn is_held(ctx: Ctx<'_>, key: Str<'_>, token: &[u8]) -> Result<bool, ErrorReply> {
    with_hold(ctx, key, token, |hold, _| hold.is_some())
}

/// Tells how the token holds the lock, if it does: each holder by its own deadline.
fn with_hold<R>(
    ctx: Ctx<'_>,
    key: Str<'_>,
    token: &[u8],
    tell: impl FnOnce(Option<&Hold<'_>>, Timestamp) -> R,
) -> Result<R, ErrorReply> {
    let now = clock::now();
    let name = KeyRef { db: ctx.db(), name: key.bytes() };
    let (shortened_to, has_ended) = match events::concern_several() || events::concern_anybody() {
        true => turn::of_inspection(|state, _| {
            (state.manager.shortened_to(name), has_session_ended(ctx, &state.manager, name, token))
        })?,
        false => (Deadline::Never, false),
    };
    let key = open(ctx, key)?;
    let hold = key.as_ref().and_then(|key| {
        let until = key.lock().holders_until(key.until(), shortened_to);
        key.lock().hold(token, until)
    });
    let hold = hold.filter(|hold| !has_ended && !hold.until.is_over(now.timestamp()));
    let told = tell(hold.as_ref(), now.timestamp());
    if hold.is_some() && events::concern_anybody() {
        // After a lost reply the owner asks here: what it reads now it keeps.
        turn::of_told_owner(name, token);
    }
    Ok(told)
}

/// Whether the connection that the hold is bound to has ended, or is to be closed with the end of this turn: no event
/// has told of that yet.
fn has_session_ended(ctx: Ctx<'_>, manager: &LockManager, key: KeyRef<'_>, owner: &[u8]) -> bool {
    let client = manager.bindings().client_of(key, owner);
    manager.has_ended(key, owner) || client.is_some_and(|client| is_closing(ctx, client.0))
}

/// `LOCK.INFO key [COUNT n]`
pub fn info(mut ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    let length = ListLength::parse(args.bytes)?;
    turn::of_inspection(|state, now| {
        let name = KeyRef { db: ctx.db(), name: args.bytes[1] };
        let key = open(ctx, args.strings[1])?;
        let queue = state.manager.queues().of_key(name).filter(|queue| queue.waiters() > 0);
        let held = key.as_ref().and_then(|key| held_info(state, name, key, now.timestamp(), length));
        let family_and_limit = match (&held, queue) {
            (Some((kind, _)), _) => Some(*kind),
            (None, Some(queue)) => FamilyAndLimit::of(queue.family, queue.limit),
            (None, None) => None,
        };
        let waiters = queue.map_or(0, |queue| queue.waiters());
        let held = held.map(|(_, held)| held);
        let info = family_and_limit.map(|family_and_limit| LockInfo { family_and_limit, held, waiters });
        reply::info(&mut ctx, info.as_ref(), now.timestamp());
        Ok(())
    })?
}

fn held_info<'a>(
    state: &State,
    name: KeyRef<'_>,
    key: &'a ReadKey<'_>,
    now: Timestamp,
    length: ListLength,
) -> Option<(FamilyAndLimit, HeldInfo<'a>)> {
    let (lock, until) = (key.lock(), key.until());
    let mut holds = lock.holds(lock.holders_until(until, state.manager.shortened_to(name)));
    holds.retain(is_live(state, name, now));
    let holding = holds.len();
    let holders: Vec<_> = length
        .of(holds)
        .map(|hold| {
            let session = state.manager.bindings().client_of(name, hold.owner.as_bytes());
            HolderInfo { hold, session }
        })
        .collect();
    if holders.is_empty() {
        return None;
    }
    Some((lock.family_and_limit()?, HeldInfo { fence: lock.fence()?, until, holders, holding }))
}

/// Whether a hold counts: its lease is not over, and its connection has not ended.
fn is_live<'a>(state: &'a State, name: KeyRef<'a>, now: Timestamp) -> impl Fn(&Hold<'_>) -> bool + 'a {
    move |hold| !hold.until.is_over(now) && !state.manager.has_ended(name, hold.owner.as_bytes())
}

/// The holders of a key that count; `None`: there is none.
pub(super) fn live<'a>(
    state: &State,
    name: KeyRef<'_>,
    key: &'a ReadKey<'_>,
    now: Timestamp,
) -> Option<LiveHolders<'a>> {
    let until = key.lock().holders_until(key.until(), state.manager.shortened_to(name));
    key.lock().live(until, is_live(state, name, now))
}

/// `LOCK.WAITERS key [COUNT n]`
pub fn waiters(mut ctx: Ctx<'_>, args: Arguments<'_>) -> Result<(), ErrorReply> {
    let length = ListLength::parse(args.bytes)?;
    turn::of_inspection(|state, now| {
        open(ctx, args.strings[1])?;
        let queues = state.manager.queues();
        let queue = queues.of_key(KeyRef { db: ctx.db(), name: args.bytes[1] });
        let ids = queue.into_iter().flat_map(|queue| queue.present());
        let waiting: Vec<_> = length.of(ids.filter_map(|(_, id)| Some((id, queues.request(id)?)))).collect();
        let infos = waiting.into_iter().map(|(id, request)| waiter_info(state, id, request));
        reply::waiters(&mut ctx, infos, now.instant());
        Ok(())
    })?
}

fn waiter_info<'a>(state: &State, id: RequestId, request: &'a QueuedRequest) -> WaiterInfo<'a> {
    let client = state.clients.client_of(id);
    WaiterInfo {
        owner: request.owner.as_ref(),
        claim: request.claim,
        client,
        address: client.map(|client| client_address(client.0)).unwrap_or_default(),
        since: request.since,
        until: request.until,
    }
}
